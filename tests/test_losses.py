"""Losses that are more than one expression: CTC and multilabel margin, with gradients, against the CPU."""

import itertools

import pytest
import torch
from conftest import DEVICE, assert_same

F = torch.nn.functional


def ctc(device, log_probs, targets, lengths, as_tensors, *options):
    log_probs = log_probs.to(device).requires_grad_()
    lengths = [n.to(device) if as_tensors and device != "cpu" else n.tolist() for n in lengths]
    loss, alpha = torch.ops.aten._ctc_loss(log_probs, targets.to(device), *lengths, *options)
    weights = torch.linspace(1, 2, loss.numel(), device=device).reshape(loss.shape).to(loss)
    return loss, torch.autograd.grad((loss * weights).sum(), log_probs)[0], alpha


@pytest.mark.parametrize("sizes", [(12, 4, 6, 5), (1, 1, 3, 1), (7, 3, 5, 0), (30, 5, 20, 10)])
@pytest.mark.parametrize("flat, as_tensors, zero_infinity", list(itertools.product((False, True), repeat=3)))
def test_ctc(sizes, flat, as_tensors, zero_infinity):
    times, batch, classes, labels = sizes
    for dtype, last_is_blank in ((torch.float32, False), (torch.float64, True)):
        lengths = torch.randint(times + 1, (batch,)), torch.randint(labels + 1, (batch,))
        log_probs = (3 * torch.randn(times, batch, classes, dtype=dtype)).log_softmax(-1)
        targets = torch.randint(classes - 1, (batch, labels)) + (not last_is_blank)
        targets[: batch // 2] = targets[: batch // 2, :1]  # repeated labels need a blank between them
        if flat:
            targets = torch.cat([t[:n] for t, n in zip(targets, lengths[1])])
        options = (classes - 1 if last_is_blank else 0, zero_infinity)
        expected, actual = (ctc(d, log_probs, targets, lengths, as_tensors, *options) for d in ("cpu", DEVICE))
        assert_same(actual[:2], expected[:2], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_ctc_through_the_module(reduction):
    log_probs, targets = torch.randn(9, 2, 4).log_softmax(-1), torch.randint(1, 4, (2, 3))
    for lengths in (((9, 5), (3, 2)), (torch.tensor([9, 5]), torch.tensor([3, 2]))):
        results = []
        for device in ("cpu", DEVICE):
            x = log_probs.to(device).requires_grad_()
            loss = F.ctc_loss(x, targets.to(device), *lengths, reduction=reduction)
            results.append((loss, torch.autograd.grad(loss.sum(), x)[0]))
        assert_same(results[1], results[0], rtol=1e-4, atol=1e-4)
    single = log_probs[:, 0]
    assert_same(
        F.ctc_loss(single.to(DEVICE), targets[0].to(DEVICE), torch.tensor(9), torch.tensor(3)),
        F.ctc_loss(single, targets[0], torch.tensor(9), torch.tensor(3)),
    )


def test_ctc_errors():
    log_probs, targets = torch.zeros(5, 2, 4, device=DEVICE), torch.ones(2, 3, dtype=torch.long, device=DEVICE)
    for arguments, text in (
        ((log_probs, targets, [5, 5], [3, 3], 4), "blank must be in label range"),
        ((log_probs, targets, [5], [3, 3]), "input_lengths must be of size batch_size"),
        ((log_probs, targets, [6, 5], [3, 3]), "Expected input_lengths to have value at most 5, but got value 6"),
        ((log_probs, targets, [5, 5], [3, 4]), "Expected tensor to have size at least 4 at dimension 1, but got size 3"),
        ((log_probs[:0], targets, [0, 0], [3, 3]), "log_probs tensor must not be empty"),
        ((log_probs.half(), targets, [5, 5], [3, 3]), "not implemented for 'Half'"),
    ):
        with pytest.raises(RuntimeError, match=text):
            torch.ops.aten._ctc_loss(*arguments)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_multilabel_margin(reduction):
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        for sizes in ((6, 5), (5,), (1, 1), (4, 9)):
            x, target = torch.randn(sizes, dtype=dtype), torch.randint(-1, sizes[-1], sizes)
            results = []
            for device in ("cpu", DEVICE):
                y = x.to(device).requires_grad_()
                loss = F.multilabel_margin_loss(y, target.to(device), reduction=reduction)
                weights = torch.linspace(1, 2, loss.numel(), device=device).reshape(loss.shape).to(loss)
                results.append((loss, torch.autograd.grad((loss * weights).sum(), y)[0]))
            assert_same(results[1], results[0], rtol=tolerance, atol=tolerance)
    with pytest.raises(RuntimeError, match="argument #2 'target' is out of range"):
        F.multilabel_margin_loss(torch.zeros(3, device=DEVICE), torch.tensor([3, 0, 0], device=DEVICE)).item()
        torch.tpu.synchronize()

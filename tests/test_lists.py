"""Operators over lists whose members overlap: PyTorch's CPU kernels go through the members one after another."""

import pytest
import torch
from conftest import DEVICE, assert_same

def in_place():
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        base, _, overload = name.removeprefix("aten::").partition(".")
        if name.startswith("aten::_foreach_") and base.endswith("_"):
            yield getattr(getattr(torch.ops.aten, base), overload or "default")


IN_PLACE = list(in_place())


def twice(base):
    return [base, base, base]


def shifted(base):
    return [base[:4], base[2:6], base[1:5]]


def turned(base):
    square = base[:4].view(2, 2)
    return [square, square.t(), base[3:7].view(2, 2)]


def arguments(op, others):
    """Values for the schema's arguments after the first: lists, tensors and numbers, all within every operator's domain."""
    made = []
    for argument in op._schema.arguments[1:]:
        kind = str(argument.type)
        if kind == "List[Tensor]":
            made.append(others[len(made) % len(others)])
        elif kind == "Tensor":
            made.append(torch.tensor([0.5, 0.25, 0.75] if argument.name == "scalars" else 0.5))
        elif kind.startswith("List["):
            made.append([0.5, 0.25, 0.75])
        elif kind == "number":
            made.append(0.5)
    return made


def test_all_in_place_overloads_are_here():
    assert len(IN_PLACE) > 60


@pytest.mark.parametrize("mode", [torch.tpu.EagerMode.DEFER_NEVER, torch.tpu.EagerMode.DEFER_AND_FUSE])
@pytest.mark.parametrize("views", [twice, shifted, turned])
def test_in_place_on_overlapping_members(views, mode):
    def run(op, device):
        base = (torch.arange(1, 9) / 10).to(device)
        members = views(base)
        apart = [torch.full(m.shape, 0.3 + 0.1 * i).to(device) for i, m in enumerate(members)]
        rotated = members[1:] + members[:1]  # what one member writes, another one reads
        op(members, *arguments(op, [rotated, apart]))
        return base.cpu()

    tried = 0
    with torch.tpu.set_eager_mode(mode):
        for op in IN_PLACE:
            try:
                expected = run(op, "cpu")
            except RuntimeError as error:  # not for floats, or partial overlap between what a member reads and writes
                if "unsupported operation" in str(error):
                    with pytest.raises(RuntimeError, match="unsupported operation"):
                        run(op, DEVICE)
                continue
            assert_same(run(op, DEVICE), expected, rtol=1e-5, atol=1e-6, msg=lambda text, op=op: f"{op}: {text}")
            tried += 1
    assert tried > 45


def test_out_lists_are_read_first():
    results = []
    for device in ("cpu", DEVICE):
        base = torch.arange(8.0).to(device)
        members = twice(base)
        torch.ops.aten._foreach_add.Scalar_out(members, 1.0, out=members)
        shift = shifted(base)
        torch.ops.aten._foreach_mul.List_out(shift, shift[1:] + shift[:1], out=shift)
        results.append(base.cpu())
    assert_same(results[1], results[0])


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad])
@pytest.mark.parametrize("kind", ["fused", "foreach"])
def test_optimizers_with_a_parameter_that_is_there_twice(optimizer, kind):
    results = []
    for device in ("cpu", DEVICE):
        base = torch.linspace(1, 2, 6).to(device)
        views = [base[:4].detach(), base[2:6].detach()]
        for i, view in enumerate(views):
            view.requires_grad_()
            view.grad = torch.full((4,), 0.5 + i).to(device)
        step = optimizer(views, lr=0.1, **{kind: True}, **({"momentum": 0.9} if optimizer is torch.optim.SGD else {}))
        for _ in range(3):
            step.step()
        results.append(base.cpu())
    assert_same(results[1], results[0], rtol=1e-5, atol=1e-6)


def test_unscale_of_the_same_gradient_twice():
    results = []
    for device in ("cpu", DEVICE):
        grad, found, scale = torch.ones(4).to(device), torch.zeros(1).to(device), torch.tensor([0.5]).to(device)
        torch._amp_foreach_non_finite_check_and_unscale_([grad, grad[:2], grad], found, scale)
        results.append((grad.cpu(), found.cpu()))
    assert_same(results[1], results[0])

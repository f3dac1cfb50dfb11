"""Distances between rows, and fractional pooling, against the CPU with gradients."""

import pytest
import torch
from conftest import DEVICE, assert_same, to_device

NECESSARY, PRODUCT, NONE = (f"{x}use_mm_for_euclid_dist{y}" for x, y in (("", "_if_necessary"), ("", ""), ("donot_", "")))


def check_with_gradients(function, *args, **tolerance):
    results = []
    for device in ("cpu", DEVICE):
        arguments = [to_device(a, device).requires_grad_(a.is_floating_point()) for a in args]
        y = function(*arguments)
        outputs = y if isinstance(y, tuple) else (y,)
        weights = torch.linspace(-1, 1, outputs[0].numel(), device=device).reshape(outputs[0].shape).to(outputs[0])
        grads = torch.autograd.grad((outputs[0] * weights).sum(), arguments, allow_unused=True)
        results.append([*outputs, *(g for g in grads if g is not None)])
    assert_same(results[1], results[0], **tolerance)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_cdist(p):
    for dtype in (torch.float32, torch.float64):
        for a, b in (((4, 3), (5, 3)), ((2, 1, 4, 3), (3, 5, 3)), ((0, 3), (4, 3)), ((4, 0), (5, 0)), ((2, 0, 3), (2, 4, 3))):
            x, y = torch.randn(a, dtype=dtype), torch.randn(b, dtype=dtype)
            if a == (4, 3):
                y[0], y[1, 0] = x[0], x[0, 0]  # a distance of 0, and a difference
            check_with_gradients(lambda x, y: torch.cdist(x, y, p, NONE), x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", [NECESSARY, PRODUCT])
def test_cdist_by_products(mode):
    for a, b in (((30, 4), (28, 4)), ((2, 4, 3), (2, 5, 3))):
        x, y = torch.randn(a), torch.randn(b)
        check_with_gradients(lambda x, y: torch.cdist(x, y, 2.0, mode), x, y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_pdist(p):
    for dtype in (torch.float32, torch.float64):
        for sizes in ((5, 3), (1, 3), (4, 0), (40, 7), (2, 1)):
            x = torch.randn(sizes, dtype=dtype)
            if sizes == (5, 3):
                x[1] = x[0]
            check_with_gradients(lambda x: torch.pdist(x, p), x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spatial", [2, 3])
def test_fractional_max_pool(spatial):
    function = getattr(torch.nn.functional, f"fractional_max_pool{spatial}d")
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for sizes in ((2, 3, 9, 7, 6), (1, 1, 4, 4, 4)):
            for window, out in ((2, 1), (3, 1), (2, (4, 3, 2))):
                if sizes[2] == 4 and out != 1:
                    continue
                x = torch.randn(sizes[: spatial + 2]).to(dtype)
                drawn = torch.rand(sizes[0] + 1, sizes[1], spatial).to(dtype)  # the last one is not needed
                out_size = out[:spatial] if isinstance(out, tuple) else (out,) * spatial

                def pooled(x, window=window, out_size=out_size, drawn=drawn):
                    return function(x, window, out_size, return_indices=True, _random_samples=drawn.to(x.device))

                check_with_gradients(pooled, x, rtol=1e-3, atol=1e-3)
                check_with_gradients(pooled, x[0], rtol=1e-3, atol=1e-3)

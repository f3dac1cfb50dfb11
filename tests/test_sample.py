"""Grid sampling against the CPU, with gradients."""

import itertools

import pytest
import torch
from conftest import DEVICE, assert_same

NAN, INF = float("nan"), float("inf")
MODES = [(2, m) for m in ("bilinear", "nearest", "bicubic")] + [(3, m) for m in ("bilinear", "nearest")]
OUTSIDE = list(itertools.product(("zeros", "border", "reflection"), (False, True)))


def sampled(x, grid, device, *options):
    x, grid = x.to(device).requires_grad_(), grid.to(device).requires_grad_()
    y = torch.nn.functional.grid_sample(x, grid, *options)
    weights = torch.linspace(-1, 1, y.numel(), device=device).reshape(y.shape).to(y)
    return y, *torch.autograd.grad((y * weights).sum(), (x, grid))


@pytest.mark.parametrize("spatial, mode", MODES)
@pytest.mark.parametrize("padding, aligned", OUTSIDE)
def test_values_and_gradients(spatial, mode, padding, aligned):
    for dtype, sizes, tolerance in ((torch.float32, (2, 3, 5, 7, 4), 1e-4), (torch.float64, (1, 1, 1, 1, 1), 1e-9)):
        x = torch.randn(sizes[: spatial + 2], dtype=dtype)
        grid = 1.3 * torch.randn(sizes[0], *(3, 4, 2)[:spatial], spatial, dtype=dtype)
        expected, actual = (sampled(x, grid, d, mode, padding, aligned) for d in ("cpu", DEVICE))
        assert_same(actual, expected, rtol=tolerance, atol=tolerance)
        assert actual[0].stride() == expected[0].stride()


@pytest.mark.parametrize("spatial, mode", MODES)
@pytest.mark.parametrize("padding, aligned", OUTSIDE)
def test_places_that_are_none(spatial, mode, padding, aligned):
    values = [NAN, INF, -INF, 1.0, -1.0, 0.0, 1.5, -3.25]
    grid = torch.cartesian_prod(*[torch.tensor(values)] * spatial).reshape(1, -1, *[1] * (spatial - 1), spatial)
    x = torch.randn((1, 2, 5, 7, 4)[: spatial + 2])
    options = (mode, padding, aligned)
    expected = torch.nn.functional.grid_sample(x, grid, *options)
    actual = torch.nn.functional.grid_sample(x.to(DEVICE), grid.to(DEVICE), *options)
    assert_same(actual, expected, rtol=1e-4, atol=1e-4)


def test_no_images():
    x, grid = torch.randn(0, 2, 3, 3), torch.randn(0, 2, 2, 2)
    expected, actual = (sampled(x, grid, d, "bilinear", "zeros", False) for d in ("cpu", DEVICE))
    assert_same(actual, expected)


def test_errors():
    x = torch.zeros(1, 2, 3, 3, 3, device=DEVICE)
    with pytest.raises(RuntimeError, match="bicubic interpolation only supports 4D input"):
        torch.nn.functional.grid_sample(x, torch.zeros(1, 2, 2, 2, 3, device=DEVICE), "bicubic", align_corners=False)
    with pytest.raises(RuntimeError, match="non-empty spatial dimensions"):
        torch.nn.functional.grid_sample(x[:, :, :0, 0], torch.zeros(1, 2, 2, 2, device=DEVICE), align_corners=False)

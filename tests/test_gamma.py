"""The gamma family of functions and Airy's, over all regions that have a form of their own."""

import math

import pytest
import torch
from conftest import DEVICE, assert_same, check

SPECIAL = [0.0, -0.0, -1.0, math.inf, -math.inf, math.nan, 1.0, 1e-3, 1e30, 0.5, 25.0]


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_incomplete_gamma(name, dtype):
    """float64 on the CPU loses digits near a for a > 20 (1e-9); float32 is compared with it."""
    function = getattr(torch.special, name)
    a = torch.logspace(-4, 5, 60, dtype=dtype)
    ratios = [1e-6, 1e-3, 0.1, 0.3, 0.5, 0.69, 0.71, 0.9, 0.99, 0.999, 1, 1.001, 1.01, 1.1, 1.29, 1.31, 1.5, 2, 3, 10, 100, 1e4]
    x = a[:, None] * torch.tensor(ratios, dtype=dtype)
    a, x = a[:, None].expand_as(x).flatten(), x.flatten()
    a, x = torch.cat([a, 30 * torch.rand(2000, dtype=dtype)]), torch.cat([x, 40 * torch.rand(2000, dtype=dtype)])
    expected, actual = function(a.double(), x.double()), function(a.to(DEVICE), x.to(DEVICE)).cpu().double()
    tiny = 1e-37 if dtype == torch.float32 else 1e-290  # the CPU's float32 loses these as well
    assert_same(actual, expected, rtol=1e-4 if dtype == torch.float32 else 1e-7, atol=tiny)
    edges = torch.cartesian_prod(*[torch.tensor(SPECIAL, dtype=dtype)] * 2)
    check(function, edges[:, 0], edges[:, 1], rtol=3e-4, atol=tiny)


def test_incomplete_gamma_of_halves_and_gradient():
    a, x = torch.tensor([0.5, 2.0, 9.0]), torch.tensor([0.25, 3.0, 30.0])
    check(torch.special.gammainc, a.bfloat16(), x.bfloat16(), rtol=1e-2, atol=1e-2)
    slopes = []
    for device in ("cpu", DEVICE):
        y = x.to(device).requires_grad_()
        slopes.append(torch.autograd.grad(torch.special.gammaincc(a.to(device), y).sum(), y)[0])
    assert_same(slopes[1], slopes[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 2e-5), (torch.float64, 1e-9)])
def test_zeta_left_of_its_poles(dtype, tolerance):
    q = torch.cat([torch.linspace(-30.37, 30, 400, dtype=dtype), torch.tensor([0, -0.0, -1, -2, -0.5], dtype=dtype)])
    for s in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 10.0):
        check(lambda q, s=s: torch.special.zeta(s, q), q, rtol=tolerance, atol=0)


@pytest.mark.parametrize("n", range(5))
def test_polygamma(n):
    """Far enough from the poles for the CPU, whose trigamma takes the sine of pi x there."""
    x = torch.linspace(-30.37, 30, 400, dtype=torch.float64)
    check(lambda x: torch.polygamma(n, x), x, rtol=1e-9, atol=1e-9)
    x = x[(x - x.round()).abs() > 0.05].float()
    check(lambda x: torch.polygamma(n, x), x, rtol=1e-4, atol=1e-5)


def test_airy():
    x = torch.cat([torch.linspace(-60, 60, 2001, dtype=torch.float64), torch.tensor([math.inf, -math.inf, math.nan, 110])])
    check(torch.special.airy_ai, x, rtol=1e-9, atol=5e-6)  # the CPU is off by 3e-6 around -2
    check(torch.special.airy_ai, x[~(x < -1)], rtol=1e-9, atol=1e-300)
    check(torch.special.airy_ai, x[x.abs() < 30].float(), rtol=1e-4, atol=1e-5)

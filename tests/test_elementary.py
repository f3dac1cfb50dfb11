"""Elementary functions of float32, which the CPU plugins compute in forms of our own: accuracy over all magnitudes.

XLA:CPU takes subnormal numbers for 0 and gives 0 for them, in every operation; they are left out.
"""

import itertools
import math

import pytest
import torch
from conftest import DEVICE, assert_same, check

SPECIAL = [0.0, 1.0, 0.5, 2.0, 3.0, 7.0, 2.5, 1.1754944e-38, 16777216.0, 16777217.0, 3.4028235e38, math.inf]
SMALLEST = torch.finfo(torch.float32).tiny
SPECIAL = torch.tensor([s * v for v in SPECIAL for s in (1, -1)] + [math.nan])


def floats(count=200_000):
    """Numbers of every exponent, and ordinary ones."""
    bits = torch.randint(-(2**31), 2**31, (count,)).to(torch.int32)
    x = torch.cat([SPECIAL, bits.view(torch.float32), torch.randn(count), 100 * torch.randn(count)])
    return torch.where(x.abs() < SMALLEST, 0, x)


def ulps(actual, exact):
    """How far a float32 is from the exact number, in units of its last place; equal infinities and NaNs are 0 apart."""
    rounded = exact.float()
    unit = torch.nextafter(rounded.abs(), torch.tensor(math.inf)).double() - rounded.abs().double()
    apart = (actual.double() - exact).abs() / unit.clamp(min=2.0**-149)
    same = (actual == rounded) | (actual.isnan() & exact.isnan()) | ((actual == 0) & (exact.abs() < SMALLEST))
    return torch.where(same, 0, apart.nan_to_num(math.inf, math.inf)).max().item()


@pytest.mark.parametrize(
    "name, largest",
    [("sin", 1.0), ("cos", 1.0), ("tan", 1.0), ("asin", 4.0), ("acos", 4.0), ("atan", 2.5), ("exp2", 1.0), ("log2", 1.0)],
)
def test_unary_accuracy(name, largest):
    function, x = getattr(torch, name), floats()
    for part in (x, x[x.abs() < 2**20]):  # one large angle sends all to another form
        exact = function(part.double())
        assert ulps(function(part.to(DEVICE)).cpu(), exact) <= largest


@pytest.mark.parametrize("name", ["sin", "cos", "tan", "asin", "acos", "atan", "exp2", "log2"])
def test_unary_special_values(name):
    x = torch.cat([SPECIAL, torch.tensor([math.pi, math.pi / 2, 1e5, 1e8, 1e22]), torch.arange(-126.0, 140.0)])
    function = getattr(torch, name)
    check(function, x, rtol=1e-6, atol=1e-7)
    check(function, x[0], rtol=1e-6, atol=1e-7)
    zeros = torch.tensor([0.0, -0.0])
    assert_same(torch.signbit(function(zeros.to(DEVICE)).cpu()), torch.signbit(function(zeros)))


def test_powers_of_two_are_exact():
    n = torch.arange(-126.0, 128.0)
    assert_same(torch.exp2(n.to(DEVICE)), torch.exp2(n.double()).float(), rtol=0, atol=0)
    assert_same(torch.log2(torch.exp2(n.double()).float().to(DEVICE)), n, rtol=0, atol=0)


def pairs():
    special = torch.tensor(list(itertools.product(SPECIAL.tolist(), SPECIAL.tolist())))
    x, y = floats(60_000), floats(60_000)
    y = y[torch.randperm(len(y))]
    whole = torch.randint(-40, 40, (10_000,)).float()
    base = torch.randn(10_000) * 3
    return torch.cat([special[:, 0], x, base]), torch.cat([special[:, 1], y, whole])


def test_pow():
    x, y = pairs()
    exact = torch.pow(x.double(), y.double())
    assert ulps(torch.pow(x.to(DEVICE), y.to(DEVICE)).cpu(), exact) <= 1.5
    signs = torch.signbit(torch.pow(x.to(DEVICE), y.to(DEVICE)).cpu())[~exact.isnan()]
    assert torch.equal(signs, torch.signbit(exact[~exact.isnan()]))


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 7.0, -1.0, -3.0, 0.5, -0.5, 2.5, 1e10, -1e10, math.inf, -math.inf, math.nan])
def test_pow_of_numbers(exponent):
    x = torch.cat([SPECIAL, torch.randn(1000)])
    check(lambda t: t**exponent, x, rtol=2e-6, atol=SMALLEST)
    check(lambda t: exponent**t, x, rtol=2e-6, atol=SMALLEST)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_pow_of_other_floats(dtype):
    x, y = torch.randn(1000).abs().to(dtype), torch.randn(1000).to(dtype)
    check(torch.pow, x, y)


def test_atan2():
    y, x = pairs()
    exact = torch.atan2(y.double(), x.double())
    actual = torch.atan2(y.to(DEVICE), x.to(DEVICE)).cpu()
    assert ulps(actual[exact.abs() > 1e-35], exact[exact.abs() > 1e-35]) <= 3
    assert_same(actual, exact.float(), rtol=1e-6, atol=1e-37)
    known = ~exact.isnan()
    assert torch.equal(torch.signbit(actual[known]), torch.signbit(exact[known]))


@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_rest_of_a_division(name):
    function = getattr(torch, name)
    x, y = pairs()
    rest = torch.fmod(x.double(), y.double()).abs()
    whole = (rest == 0) | ~(rest < SMALLEST)
    x, y = x[whole], y[whole]
    near = (x / y).abs() < 2**28  # one large quotient sends all to another form
    for a, b in ((x, y), (x[near], y[near])):
        actual, expected = function(a.to(DEVICE), b.to(DEVICE)).cpu(), function(a.double(), b.double()).float()
        assert_same(actual, expected, rtol=0, atol=SMALLEST)
        if name == "fmod":
            known = ~expected.isnan()
            assert torch.equal(torch.signbit(actual[known]), torch.signbit(expected[known]))

"""Fourier transforms against the CPU: values, strides and gradients."""

import itertools

import pytest
import torch
from conftest import DEVICE, assert_same, check, to_device

COMPLEX, REAL = (torch.complex64, torch.complex128), (torch.float32, torch.float64)
TOLERANCE = {torch.float32: 1e-4, torch.complex64: 1e-4, torch.float64: 1e-10, torch.complex128: 1e-10}
NORMS = ("backward", "ortho", "forward")


def same_layout(function, x):
    """Strides are those of PyTorch's meta kernel; the CPU's differ where more than three dimensions are transformed."""
    tolerance = TOLERANCE[x.dtype]
    actual = check(function, x, rtol=tolerance, atol=tolerance)
    assert actual.stride() == function(x.to("meta")).stride()


@pytest.mark.parametrize("forward, norm", list(itertools.product((True, False), range(3))))
def test_complex_to_complex_over_any_dimensions(forward, norm):
    x = torch.randn(3, 2, 5, 4, dtype=COMPLEX[norm % 2])
    for dims in ((0,), (3, 1), (2, 0, 1), (0, 1, 2, 3), (3, 2, 1, 0), ()):
        same_layout(lambda x, dims=dims: torch.ops.aten._fft_c2c(x, dims, norm, forward), x)
    same_layout(lambda x: torch.ops.aten._fft_c2c(x, (0, 2), norm, forward), x.transpose(0, 3))


@pytest.mark.parametrize("onesided, norm", list(itertools.product((True, False), range(3))))
def test_real_to_complex_over_any_dimensions(onesided, norm):
    x = torch.randn(3, 2, 5, 4, dtype=REAL[norm % 2])
    for dims in ((0,), (3,), (3, 1), (1, 3), (2, 0, 1), (3, 2, 1, 0)):
        same_layout(lambda x, dims=dims: torch.ops.aten._fft_r2c(x, dims, norm, onesided), x)


@pytest.mark.parametrize("n, norm", list(itertools.product((6, 7, 1), range(3))))
def test_complex_to_real_ignores_what_no_signal_has(n, norm):
    x = torch.randn(3, n // 2 + 1, 5, 2, dtype=COMPLEX[norm % 2])  # the first and last value have imaginary parts
    for dims in ((1,), (0, 1), (3, 2, 0, 1)):
        same_layout(lambda x, dims=dims: torch.ops.aten._fft_c2r(x, dims, norm, n), x)


def test_functions_and_gradients():
    fft = torch.fft
    functions = [
        (fft.fft, False), (fft.ifft, False), (fft.rfft, True), (fft.irfft, False), (fft.hfft, False), (fft.ihfft, True),
        (fft.fft2, False), (fft.rfft2, True), (fft.irfft2, False), (fft.fftn, False), (fft.rfftn, True), (fft.irfftn, False),
        (fft.hfft2, False), (fft.ihfft2, True), (fft.hfftn, False), (fft.ihfftn, True),
    ]  # fmt: skip
    for (function, is_real), norm in zip(functions, itertools.cycle(NORMS)):
        x = torch.randn(4, 5, 6, dtype=torch.float64 if is_real else torch.complex128, requires_grad=True)
        y = to_device(x)
        expected, actual = function(x, norm=norm), function(y, norm=norm)
        assert_same(actual, expected, rtol=1e-10, atol=1e-10)
        weights = torch.randn_like(expected)
        for result, argument in ((expected, x), (actual, y)):
            (result * weights.to(result.device)).abs().sum().backward()
            assert argument.grad is not None
        assert_same(y.grad, x.grad, rtol=1e-8, atol=1e-8)


def test_lengths_shorter_and_longer_than_the_input():
    for n in (1, 3, 8, 13):
        check(lambda x, n=n: torch.fft.fft(x, n), torch.randn(2, 8, dtype=torch.complex64), rtol=1e-4, atol=1e-4)
        check(lambda x, n=n: torch.fft.rfft(x, n, dim=0), torch.randn(8, 2), rtol=1e-4, atol=1e-4)
        check(lambda x, n=n: torch.fft.irfft(x, n), torch.randn(2, 8, dtype=torch.complex64), rtol=1e-4, atol=1e-4)


def test_odd_prime_and_empty():
    for n in (1, 2, 31, 127, 1009, 1000):
        check(torch.fft.fft, torch.randn(2, n, dtype=torch.complex128), rtol=1e-9, atol=1e-9)
    empty = torch.randn(0, 3, dtype=torch.complex64, device=DEVICE)  # MKL refuses these
    assert torch.fft.fft(empty).shape == (0, 3) and torch.fft.irfft(empty, 4).shape == (0, 4)


def test_short_time_transforms_there_and_back():
    x, window = torch.randn(2, 200), torch.hann_window(32)

    def both(x, window):
        spectrum = torch.stft(x, 32, 8, window=window, return_complex=True)
        return spectrum, torch.istft(spectrum, 32, 8, window=window, length=200)

    actual = check(both, x, window, rtol=1e-4, atol=1e-4)
    assert_same(actual[1], x, rtol=1e-4, atol=1e-4)


def test_errors():
    with pytest.raises(RuntimeError, match="Unsupported dtype Half"):
        torch.fft.fft(torch.zeros(4, dtype=torch.float16, device=DEVICE))
    with pytest.raises(RuntimeError, match="Invalid number of data points"):
        torch.fft.fft(torch.zeros(4, device=DEVICE), 0)
    with pytest.raises(RuntimeError, match="dims must be unique"):
        torch.fft.fftn(torch.zeros(4, 4, device=DEVICE), dim=(0, 0))

"""QR, eigenvalues, singular values, least squares. With LAPACK the answers are the CPU's to the bit. Without it, in which form the
last test runs this file again, they are as good: factors are unique up to signs and phases."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import DEVICE

WITHOUT = os.environ.get("TORCH_TPU_INTERNAL_FFI") == "0"
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
SHAPES = [(5, 5), (7, 4), (4, 7), (2, 3, 6, 5), (1, 1), (0, 3), (3, 0), (2, 0, 0), (0, 3, 3), (33, 33)]
EPSILON = {torch.float32: 2e-5, torch.complex64: 5e-5, torch.float64: 1e-13, torch.complex128: 1e-13}


def same_form(got, wanted, bits=not WITHOUT):
    """Sizes, dtypes and strides; and with LAPACK every bit."""
    for g, w in zip(got, wanted, strict=True):
        assert (g.shape, g.dtype, g.stride()) == (w.shape, w.dtype, w.stride())
        assert not bits or torch.equal(g.cpu(), w)


def near(got, wanted, epsilon):
    size = wanted.abs().max().item() if wanted.numel() else 0
    torch.testing.assert_close(got, wanted, rtol=0, atol=epsilon * max(size, 1e-30))


def orthonormal(columns, epsilon):
    near(columns.mH @ columns, torch.eye(columns.shape[-1], dtype=columns.dtype).expand(*columns.shape[:-2], -1, -1), epsilon)


def on_cpu(*tensors):
    return [t.cpu() for t in tensors]


def check_svd(a, epsilon, bits=not WITHOUT):
    for full in (False, True):
        got, wanted = torch.linalg.svd(a.to(DEVICE), full_matrices=full), torch.linalg.svd(a, full_matrices=full)
        same_form(got, wanted, bits)
        u, s, vh = on_cpu(*got)
        k = s.shape[-1]
        near(s, wanted[1], epsilon)
        near((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a, epsilon)
        orthonormal(u, epsilon), orthonormal(vh.mH, epsilon)
    same_form([torch.linalg.svdvals(a.to(DEVICE))], [torch.linalg.svdvals(a)], bits)


def check_eigh(a, epsilon, bits=not WITHOUT):
    full = {"L": a.tril() + a.tril(-1).mH, "U": a.triu() + a.triu(1).mH}
    for uplo, h in full.items():
        h = h - 1j * torch.diag_embed(h.diagonal(dim1=-2, dim2=-1).imag) if h.is_complex() else h
        got, wanted = torch.linalg.eigh(a.to(DEVICE), UPLO=uplo), torch.linalg.eigh(a, UPLO=uplo)
        same_form(got, wanted, bits)
        w, v = on_cpu(*got)
        near(w, wanted[0], epsilon)
        near((v * w.unsqueeze(-2)) @ v.mH, h, epsilon)
        orthonormal(v, epsilon)
        same_form([torch.linalg.eigvalsh(a.to(DEVICE), UPLO=uplo)], [torch.linalg.eigvalsh(a, UPLO=uplo)], bits)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_qr(dtype, shape):
    a = torch.randn(shape, dtype=dtype)
    for mode in ("reduced", "complete", "r"):
        got, wanted = torch.linalg.qr(a.to(DEVICE), mode), torch.linalg.qr(a, mode)
        same_form(got, wanted)
        for g, w in zip(got, wanted, strict=True):  # reflectors have the signs of LAPACK's
            near(g.cpu(), w, EPSILON[dtype])
    factor, tau = torch.geqrf(a)
    same_form(torch.geqrf(a.to(DEVICE)), (factor, tau))
    m, n = shape[-2:]
    for left in (True, False):
        other = torch.randn(*shape[:-2], *((m, 3) if left else (3, m)), dtype=dtype)
        for transpose in (True, False):
            args = (factor, tau, other)
            got, wanted = torch.ormqr(*(t.to(DEVICE) for t in args), left, transpose), torch.ormqr(*args, left, transpose)
            same_form([got], [wanted])
            near(got.cpu(), wanted, EPSILON[dtype])
    if m >= n:
        same_form([torch.linalg.householder_product(factor.to(DEVICE), tau.to(DEVICE))], [torch.linalg.householder_product(factor, tau)])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_singular_values_and_eigenvalues(dtype, shape):
    a = torch.randn(shape, dtype=dtype)
    check_svd(a, EPSILON[dtype])
    if shape[-1] == shape[-2]:
        check_eigh(a, EPSILON[dtype])


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_matrices_that_are_hard(scale):
    """Of no or little rank, with equal and with tiny values, and far from 1, where XLA flushes what is subnormal."""
    bits = not WITHOUT and scale == 1
    q = torch.linalg.qr(torch.randn(12, 12)).Q
    equal = (q * torch.tensor([1.0] * 6 + [-1.0] * 3 + [2.0] * 3)) @ q.T
    graded = (q * torch.logspace(0, -12, 12)) @ q.T
    low = q[:, :2] @ q[:2]
    for a in (equal, graded, low, torch.zeros(5, 5), torch.eye(6), torch.ones(7, 3), torch.ones(3, 8), torch.diag(torch.arange(6.0))):
        a = a * scale
        check_svd(a, 5e-6, bits)
        if a.shape[0] == a.shape[1]:
            check_eigh((a + a.T) / 2, 5e-6, bits)


@pytest.mark.skipif(WITHOUT, reason="these need LAPACK")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_eigenvalues_of_any_matrix(dtype):
    for shape in ((5, 5), (2, 3, 4, 4), (0, 0), (2, 0, 0), (1, 1), (20, 20)):
        a = torch.randn(shape, dtype=dtype)
        same_form(torch.linalg.eig(a.to(DEVICE)), torch.linalg.eig(a))
        same_form([torch.linalg.eigvals(a.to(DEVICE))], [torch.linalg.eigvals(a)])


@pytest.mark.skipif(not WITHOUT, reason="only there it is refused")
def test_eigenvalues_of_any_matrix_say_what_they_need():
    with pytest.raises(NotImplementedError, match="computed by LAPACK"):
        torch.linalg.eig(torch.eye(3, device=DEVICE))


def test_numbers_that_are_not_finite():
    a = torch.randn(4, 4)
    a[1, 0] = float("nan")
    for f, message in ((torch.linalg.svd, "linalg.svd: The algorithm failed to converge because the input matrix contained non-finite"),
                       (torch.linalg.eigh, "linalg.eigh: The algorithm failed to converge because the input matrix is ill-conditioned")):
        for run in (lambda: f(a), lambda: f(a.to(DEVICE))[0].cpu()):
            with pytest.raises(torch.linalg.LinAlgError, match=message):
                run()
    if not WITHOUT:
        with pytest.raises(RuntimeError, match="input tensor should not contain infs or NaNs"):
            torch.linalg.eig(a.to(DEVICE))[0].cpu()


@pytest.mark.parametrize("call", [
    lambda d: torch.linalg.qr(torch.ones(3, device=d)),
    lambda d: torch.linalg.qr(torch.ones(3, 3, device=d), "full"),
    lambda d: torch.linalg.eigh(torch.ones(3, 2, device=d)),
    lambda d: torch.linalg.eigh(torch.ones(3, 3, device=d), UPLO="X"),
    lambda d: torch.linalg.eig(torch.ones(3, 2, device=d)),
    lambda d: torch.linalg.householder_product(torch.ones(2, 3, device=d), torch.ones(2, device=d)),
    lambda d: torch.ormqr(torch.ones(3, 3, device=d), torch.ones(3, device=d), torch.ones(4, 4, device=d)),
    lambda d: torch.linalg.lstsq(torch.ones(3, device=d), torch.ones(3, device=d)),
    lambda d: torch.linalg.lstsq(torch.ones(3, 3, device=d), torch.ones(4, 3, device=d)),
    lambda d: torch.linalg.lstsq(torch.ones(3, 3, device=d), torch.ones(3, 3, device=d), driver="other"),
])
def test_what_pytorch_refuses(call):
    with pytest.raises(RuntimeError) as wanted:
        call("cpu")
    with pytest.raises(RuntimeError) as got:
        call(DEVICE)
    assert str(wanted.value) in str(got.value)


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss", None])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64], ids=str)
def test_least_squares(driver, dtype):
    def compare(a, b, **options):
        got = torch.linalg.lstsq(a.to(DEVICE), b.to(DEVICE), driver=driver, **options)
        for g, w in zip(got, torch.linalg.lstsq(a, b, driver=driver, **options), strict=True):
            assert (g.shape, g.dtype, g.stride()) == (w.shape, w.dtype, w.stride())
            near(g.cpu(), w, 1e-4 if dtype == torch.complex64 else 1e-11)

    for batch in ((), (2,), (2, 3)):
        for m, n in ((5, 3), (3, 5), (4, 4), (0, 3), (3, 0)):
            compare(torch.randn(*batch, m, n, dtype=dtype), torch.randn(*batch, m, 2, dtype=dtype))
    compare(torch.randn(2, 5, 3, dtype=dtype), torch.randn(2, 5, dtype=dtype))
    compare(torch.randn(5, 3, dtype=dtype), torch.randn(5, dtype=dtype))
    compare(torch.randn(1, 5, 3, dtype=dtype), torch.randn(4, 5, 2, dtype=dtype))
    if driver != "gels":  # which wants full rank
        a = torch.randn(2, 6, 3, dtype=dtype)
        a[1, :, 2] = a[1, :, 1]
        compare(a, torch.randn(2, 6, 2, dtype=dtype))
    if driver in ("gelsd", "gelss"):  # the CPU's gelsy finds rank 1 or 2 here, changing from call to call
        compare(torch.diag(torch.tensor([1, 0.5, 0.01], dtype=dtype)), torch.randn(3, 2, dtype=dtype), rcond=0.1)


def test_least_squares_of_less_than_full_rank():
    a = torch.tensor([[1.0, 0.0]] * 4)
    for device in ("cpu", DEVICE):
        with pytest.raises(torch.linalg.LinAlgError, match="the input matrix does not have full rank"):
            torch.linalg.lstsq(a.to(device), a.to(device), driver="gels").solution.cpu()


GRADIENTS = {
    "qr": lambda a: torch.linalg.qr(a)[1].square().sum() + torch.linalg.qr(a)[0].sum(),
    "svd": lambda a: torch.linalg.svd(a, full_matrices=False).S.pow(3).sum(),
    "vectors": lambda a: (lambda u, s, v: (u @ v).sum())(*torch.linalg.svd(a, full_matrices=False)),
    "eigh": lambda a: (lambda w, v: ((v * w.exp().unsqueeze(-2)) @ v.mT).sum())(*torch.linalg.eigh(a @ a.mT)),
    "lstsq": lambda a: torch.linalg.lstsq(a, a.cos()).solution.square().sum(),
    "pinv": lambda a: torch.linalg.pinv(a).square().sum(),
    "cond": torch.linalg.cond,
    "nuclear": lambda a: torch.linalg.matrix_norm(a, "nuc"),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    a = torch.randn(6, 4, dtype=torch.float64)
    mine, theirs = a.to(DEVICE).requires_grad_(), a.clone().requires_grad_()
    GRADIENTS[name](mine).backward()
    GRADIENTS[name](theirs).backward()
    near(mine.grad.cpu(), theirs.grad, 1e-9)


@pytest.mark.skipif(WITHOUT, reason="this is the run without LAPACK")
def test_all_of_this_without_lapack():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", Path(__file__).name],
        env={**os.environ, "TORCH_TPU_INTERNAL_FFI": "0"}, cwd=Path(__file__).parent, capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]

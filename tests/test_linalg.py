"""LU factors, systems and what is made of them. The last test runs this file again in the form that needs no LAPACK."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import DEVICE, check

WITHOUT = os.environ.get("TORCH_TPU_INTERNAL_FFI") == "0"
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
BATCHES = [(), (3,), (2, 0), (2, 1, 2)]


def tolerance(dtype):
    return {"rtol": 1e-8, "atol": 1e-8} if dtype in (torch.float64, torch.complex128) else {"rtol": 1e-3, "atol": 1e-3}


def check_all(function, *args, **tolerances):
    """Values, dtypes and strides as on the CPU."""
    results, expected = check(function, *args, **tolerances), function(*args)
    for got, wanted in zip(*((r if isinstance(r, tuple | list) else (r,)) for r in (results, expected)), strict=True):
        assert got.dtype == wanted.dtype and got.stride() == wanted.stride()
    return results


def singular(dtype):
    """The second matrix has no inverse: its second pivot is zero."""
    return torch.stack([torch.eye(3), torch.tensor([[1.0, 2, 3], [2, 4, 6], [1, 1, 1]]), torch.ones(3, 3)]).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("m, n", [(5, 5), (7, 4), (4, 9), (1, 1), (0, 0), (0, 3), (3, 0), (70, 90), (150, 130)])
def test_lu_factors(dtype, m, n):
    for batch in BATCHES:
        check_all(torch.linalg.lu_factor_ex, torch.randn(*batch, m, n, dtype=dtype), **tolerance(dtype))
    check_all(torch.linalg.lu_factor_ex, torch.randn(2, n, m, dtype=dtype).mT, **tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_zero_pivot_is_told_in_info(dtype):
    for a in (singular(dtype), torch.zeros(4, 4, dtype=dtype)):
        info = torch.linalg.lu_factor_ex(a.to(DEVICE)).info
        assert info.dtype == torch.int32
        assert torch.equal(info.cpu() != 0, torch.linalg.lu_factor_ex(a).info != 0)


@pytest.mark.skipif(WITHOUT, reason="this is the run without LAPACK")
def test_all_of_this_without_lapack():
    run = [sys.executable, "-m", "pytest", "-q", "-x", Path(__file__).name]
    done = subprocess.run(
        run, env={**os.environ, "TORCH_TPU_INTERNAL_FFI": "0"}, cwd=Path(__file__).parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:]

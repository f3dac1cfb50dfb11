"""LU factors, systems and what is made of them. The last test runs this file again in the form that needs no LAPACK."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import DEVICE, check, compiled, programs_by_kernels

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


def regular(*shape, dtype):
    """Random matrices that are far from singular."""
    n = shape[-1]
    return torch.randn(*shape, dtype=dtype) + 2 * n**0.5 * torch.eye(n, dtype=dtype)[torch.randperm(n)] if n else torch.randn(*shape, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [1, 4, 70])
def test_systems(dtype, n):
    for a_batch, b_batch in (((), ()), ((3,), (3,)), ((2, 1), (3,)), ((), (2,)), ((0,), (0,))):
        a = regular(*a_batch, n, n, dtype=dtype)
        for left in (True, False):
            b = torch.randn(*b_batch, *((n, 2) if left else (2, n)), dtype=dtype)
            check_all(lambda a, b: torch.linalg.solve_ex(a, b, left=left), a, b, **tolerance(dtype))
            for adjoint in (False, True):
                factors, pivots = torch.linalg.lu_factor(a)
                check_all(lambda f, p, b: torch.linalg.lu_solve(f, p, b, left=left, adjoint=adjoint), factors, pivots, b, **tolerance(dtype))
        check_all(torch.linalg.inv_ex, a, **tolerance(dtype))
        check_all(torch.linalg.inv_ex, a.mT, **tolerance(dtype))
    check_all(torch.linalg.solve, regular(2, n, n, dtype=dtype), torch.randn(2, n, dtype=dtype), **tolerance(dtype))
    check_all(torch.linalg.solve, regular(n, n, dtype=dtype), torch.randn(n, dtype=dtype), **tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_determinants(dtype):
    matrices = [regular(2, 3, 4, 4, dtype=dtype), regular(5, 5, dtype=dtype).mT, *(torch.zeros(s, dtype=dtype) for s in ((0, 0), (0, 2, 2), (2, 2)))]
    if not WITHOUT:  # else rounding decides whether a pivot is zero or tiny
        matrices.append(singular(dtype))
    for a in matrices:
        check_all(torch.ops.aten._linalg_det, a, **tolerance(dtype))
        check_all(torch.ops.aten._linalg_slogdet, a, **tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("m, n", [(5, 5), (7, 4), (4, 9), (0, 3), (3, 0)])
def test_unpacking(dtype, m, n):
    a = torch.randn(2, m, n, dtype=dtype)
    check_all(torch.linalg.lu, a, **tolerance(dtype))
    factors, pivots, _ = torch.linalg.lu_factor_ex(a)
    for data, order in ((True, True), (True, False), (False, True)):
        check_all(lambda f, p: torch.lu_unpack(f, p, unpack_data=data, unpack_pivots=order), factors, pivots, **tolerance(dtype))


def test_pivots_that_are_none():
    a, b = torch.eye(3).to(DEVICE), torch.ones(3, 1).to(DEVICE)
    for bad in (torch.tensor([4, 1, 1]), torch.tensor([1, 2**31 - 1, 1])):
        pivots = bad.int().to(DEVICE)
        for call in (torch.linalg.lu_solve, torch.linalg.ldl_solve, lambda a, p, b: torch.lu_unpack(a, p)):
            with pytest.raises(RuntimeError, match="(?i)pivots"):
                call(a, pivots, b)
                torch.tpu.synchronize()
    torch.linalg.ldl_solve(a, torch.tensor([1, 2, -3], dtype=torch.int32).to(DEVICE), b).cpu()  # half a block: whatever comes, nothing is read


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ldl_factors(dtype, hermitian):
    for shape in ((1, 1), (5, 5), (3, 17, 17), (0, 0), (0, 3, 3)):
        for diagonal in (None, 0.0):  # without a diagonal there are blocks of two
            a = torch.randn(shape, dtype=dtype)
            a = a + (a.mH if hermitian else a.mT)
            if diagonal is not None and a.shape[-1] > 1:
                a.diagonal(dim1=-2, dim2=-1).fill_(diagonal)
            check_all(lambda x: torch.linalg.ldl_factor_ex(x, hermitian=hermitian), a, **tolerance(dtype))
            factors, pivots, _ = torch.linalg.ldl_factor_ex(a, hermitian=hermitian)
            assert diagonal is None or shape != (5, 5) or (pivots < 0).any()
            b = torch.randn(*shape[:-1], 2, dtype=dtype)
            check_all(lambda f, p, y: torch.linalg.ldl_solve(f, p, y, hermitian=hermitian), factors, pivots, b, **tolerance(dtype))
    assert torch.linalg.ldl_factor_ex(torch.zeros(2, 2, dtype=dtype).to(DEVICE)).info.item() == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matrix_exponentials(dtype):
    for shape in ((4, 4), (1, 1), (0, 0), (0, 2, 2), (2, 3, 5, 5)):
        for size in (1e-9, 0.1, 2):
            check_all(torch.linalg.matrix_exp, torch.randn(shape, dtype=dtype) * size, **tolerance(dtype))
    mixed = torch.randn(3, 4, 4, dtype=dtype) * torch.tensor([1e-3, 1, 5]).view(3, 1, 1)  # each matrix is scaled by itself
    wanted = torch.linalg.matrix_exp(mixed.to(torch.promote_types(dtype, torch.float64)))
    error = (torch.linalg.matrix_exp(mixed.to(DEVICE)).cpu() - wanted).abs().amax((-2, -1)) / wanted.abs().amax((-2, -1))
    assert error.max() < (1e-12 if dtype in (torch.float64, torch.complex128) else 1e-5)
    for value in (float("inf"), float("nan")):  # and the loops end
        assert not torch.linalg.matrix_exp(torch.full((2, 2), value, dtype=dtype).to(DEVICE)).abs().isfinite().any()


@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_gradients(dtype, layout):
    def gradient(function):
        def of(a, b):
            a = a.mT.detach().requires_grad_() if layout == "columns" else a.detach().requires_grad_()
            y = function(a, b)
            return torch.autograd.grad(torch.view_as_real(y.resolve_conj()).sum() if y.is_complex() else y.sum(), a)

        return of

    a, b = regular(2, 4, 4, dtype=dtype), torch.randn(2, 4, 3, dtype=dtype)
    functions = [
        lambda a, b: torch.linalg.solve(a, b), lambda a, b: torch.linalg.inv(a), lambda a, b: torch.linalg.det(a),
        lambda a, b: torch.linalg.slogdet(a)[1], lambda a, b: torch.linalg.matrix_exp(a), lambda a, b: torch.linalg.lu(a)[2],
        lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b), lambda a, b: torch.linalg.matrix_power(a, -3),
    ]  # fmt: skip
    for function in functions:
        check(gradient(function), a, b, **tolerance(dtype))


def message_of(call):
    with pytest.raises(RuntimeError) as caught:
        call()
        torch.tpu.synchronize()
    return type(caught.value), str(caught.value)


def test_errors_are_those_of_the_cpu():
    bad = singular(torch.float32)
    calls = {
        torch.linalg.inv: bad, lambda a: torch.linalg.solve(a, a): bad, torch.linalg.lu_factor: bad, torch.linalg.cholesky: -bad,
        lambda a: torch.linalg.inv_ex(a, check_errors=True): bad, lambda a: torch.linalg.solve_ex(a, a, check_errors=True): bad,
        lambda a: torch.linalg.lu_factor_ex(a, check_errors=True): bad, lambda a: torch.linalg.cholesky_ex(a, check_errors=True): -bad,
        torch.cholesky: -bad,
    }  # fmt: skip
    calls |= {(lambda a, f=f: f(a)): bad[1] for f in (torch.linalg.inv, torch.linalg.lu_factor)}
    calls |= {(lambda a, f=f: f(a)): torch.ones(3, 4) for f in (torch.linalg.inv, torch.linalg.det, torch.matrix_exp)}
    calls |= {(lambda a, f=f: f(a)): torch.ones(3) for f in (torch.linalg.inv, torch.linalg.det, torch.matrix_exp, torch.linalg.cholesky)}
    calls |= {(lambda a, f=f: f(a)): torch.ones(3, 3, dtype=torch.int64) for f in (torch.linalg.inv, torch.linalg.slogdet, torch.linalg.ldl_factor)}
    for call, a in calls.items():
        assert message_of(lambda call=call, a=a: call(a.to(DEVICE))) == message_of(lambda call=call, a=a: call(a))


COMPILED = {
    "inv_ex": lambda a: torch.linalg.inv_ex(a, check_errors=True)[0] * 2,
    "inv": lambda a: torch.linalg.inv(a) * 2,
    "solve": lambda a: torch.linalg.solve(a, a[..., 0]) * 2,
    "cholesky": lambda a: torch.linalg.cholesky(a) * 2,
    "lu_factor": lambda a: torch.linalg.lu_factor(a)[0] * 2,
}


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize("batched", [False, True])
def test_a_compiled_factorisation_fails_too(name, batched):
    """In a graph nothing can be looked at between operators: the flag of the program tells, which matrix, and where."""
    function = torch.compile(COMPILED[name], backend="tpu", fullgraph=True, dynamic=False)
    good = torch.eye(3) * 2 + 0.1
    bad = torch.stack([good, torch.zeros(3, 3)]) if batched else torch.zeros(3, 3)
    check(function, torch.stack([good, good]) if batched else good, rtol=1e-4, atol=1e-4)
    with pytest.raises(RuntimeError) as expected:
        COMPILED[name](bad)
    with pytest.raises(type(expected.value), match=f"^{re.escape(str(expected.value))}"):
        function(bad.to(DEVICE))
        torch.tpu.synchronize()


def test_which_programs_call_lapack(tmp_path):
    code = "import torch; torch.linalg.lu_factor(torch.eye(9).to('tpu')); torch.tpu.synchronize()"
    by_kernels, plain = programs_by_kernels(code, tmp_path)
    assert "tt_getrf_v1" in by_kernels and "stablehlo.while" not in by_kernels
    assert "tt_getrf_v1" not in plain and "stablehlo.while" in plain


@pytest.mark.skipif(WITHOUT, reason="this is the run without LAPACK")
def test_all_of_this_without_lapack():
    rare = ["float32", "complex128", "which_programs", "errors_are_those", "gradients"]  # the other dtypes go the same way
    run = [sys.executable, "-m", "pytest", "-q", "-x", Path(__file__).name, "-k", " and ".join(f"not {r}" for r in rare)]
    done = subprocess.run(
        run, env={**os.environ, "TORCH_TPU_INTERNAL_FFI": "0"}, cwd=Path(__file__).parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:]

"""Operators that use own kernels on the CPU plugins. The last test runs this file again without them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICE, assert_same, check, programs_by_kernels

WITHOUT = os.environ.get("TORCH_TPU_INTERNAL_FFI") == "0"
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
SHAPES = [(0,), (1,), (41,), (40_000,), (3, 50), (5, 4, 61), (2, 0, 3), ()]


def sample(shape, dtype):
    """Duplicates, both zeros, infinities, NaN."""
    x = torch.randint(-9, 9, shape).double()
    if dtype.is_floating_point:
        x = x / 4 * torch.rand(shape).round()
        for value, every in ((-0.0, 5), (float("nan"), 7), (float("inf"), 11), (-float("inf"), 13)):
            x.view(-1)[every // 2 :: every] = value
    return (x % 9 if dtype == torch.uint8 else x).to(dtype)


def layouts(x):
    yield x
    if x.dim() == 2:
        yield x[:, ::2].t()


def dims(x):
    return range(-1, max(x.dim(), 1))


def cases(dtypes):
    return [pytest.param(d, s, id=f"{d}-{s}".removeprefix("torch.")) for d in dtypes for s in SHAPES]


@pytest.mark.parametrize("dtype, shape", cases([*FLOATS, *INTS, torch.bool]))
def test_sort_is_stable(dtype, shape):
    for x in layouts(sample(shape, dtype)):
        for dim in dims(x):
            for descending in (False, True):
                values, at = check(lambda t: torch.sort(t, dim=dim, descending=descending, stable=True), x, rtol=0, atol=0)
                expected = torch.sort(x, dim=dim, descending=descending, stable=True).values
                if dtype.is_floating_point:
                    assert torch.equal(torch.signbit(values.cpu()), torch.signbit(expected))


@pytest.mark.parametrize("dtype, shape", cases([*FLOATS, torch.int64, torch.uint8]))
def test_topk(dtype, shape):
    x = sample(shape, dtype)
    for dim in dims(x):
        size = x.shape[dim] if x.dim() else 1
        for k in {0, min(1, size), size // 6, size} if x.dim() else {1}:
            for largest in (False, True):
                values, at = torch.topk(x.to(DEVICE), k, dim, largest)
                assert_same(values, torch.topk(x, k, dim, largest).values, rtol=0, atol=0)
                if x.dim():
                    assert_same(x.gather(dim, at.cpu()), values, rtol=0, atol=0)
                    if k < 2:
                        continue
                    first = at.cpu().sort(dim).values
                    assert (first.diff(dim=dim) > 0).all()


@pytest.mark.skipif(WITHOUT, reason="which of equal elements are chosen is the kernels' choice")
@pytest.mark.parametrize("n", (3, 17, 65, 128, 1000, 5000))
def test_equal_elements_are_chosen_as_on_the_cpu(n):
    """Around the places where the CPU's algorithms change: runs of equal elements, sorted ones, and NaN."""
    for most, dtype in ((3, torch.uint8), (9, torch.float32), (60, torch.bfloat16)):
        x = torch.randint(0, most, (20, n))
        x[10:] = x[10:].sort(descending=True).values
        x = x.to(dtype)
        if dtype.is_floating_point:
            x[x == 1] = torch.nan
        for k in {n // 64 or 1, n // 63 or 1, (n + 1) // 2}:
            for largest, in_order in ((True, True), (False, True), (True, False)):
                check(lambda t: torch.topk(t, k, -1, largest, in_order), x, rtol=0, atol=0)
            check(lambda t: torch.kthvalue(t, k), x, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_order_statistics(dtype):
    x = sample((7, 33), dtype)
    for dim in (0, 1):
        check(lambda t: torch.kthvalue(t, 5, dim).values, x, rtol=0, atol=0)
        check(lambda t: torch.median(t, dim).values, x, rtol=0, atol=0)
        check(lambda t: torch.mode(t.nan_to_num(), dim).values if t.is_floating_point() else torch.mode(t, dim).values, x)
    check(torch.median, x)


@pytest.mark.parametrize("dtype, shape", cases([*FLOATS, *INTS, torch.bool]))
def test_running_sums_and_products(dtype, shape):
    x = sample(shape, dtype)
    if dtype.is_floating_point:
        x = torch.rand(shape).sub(0.4).to(dtype)
    for part in layouts(x):
        for dim in dims(part):
            tolerance = {} if dtype != torch.float32 else {"rtol": 2e-6, "atol": 1e-6}
            check(lambda t: t.cumsum(dim), part, **tolerance)
            check(lambda t: t.cumprod(dim), part, **tolerance)
    check(lambda t: t.cumsum(-1, dtype=torch.float64), x)
    check(lambda t: t.cumsum(-1, dtype=torch.int32), x)


def test_running_sums_of_special_values():
    x = torch.tensor([1.0, float("inf"), 2.0, -float("inf"), 3.0, float("nan"), 1.0])
    for i in range(len(x)):
        check(lambda t: t.cumsum(0), x.roll(i))
        check(lambda t: t.cumprod(0), x.roll(i))
        check(lambda t: t.logcumsumexp(0), x.roll(i))
    check(lambda t: t.cumsum(0), torch.tensor([2**62, 2**62, 2**62, -1]))


@pytest.mark.skipif(WITHOUT, reason="the plain form adds in float32")
def test_running_sums_add_in_double():
    for x in (torch.tensor([3e38, 3e38, -3e38, 2e38, -3e38]), torch.tensor([16777216.0, 1.0, 1.0, 0.5, -16777216.0])):
        for i in range(len(x)):
            check(lambda t: t.cumsum(0), x.roll(i), rtol=0, atol=0)
    check(lambda t: t.cumsum(0), torch.rand(100_003), rtol=1e-7, atol=0)


@pytest.mark.parametrize("dtype, shape", cases([*FLOATS, *INTS, torch.bool]))
def test_running_extremes(dtype, shape):
    x = sample(shape, dtype)
    for dim in dims(x):
        check(lambda t: torch.cummax(t, dim), x, rtol=0, atol=0)
        check(lambda t: torch.cummin(t, dim), x, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_logcumsumexp(dtype):
    x = sample((9, 31), dtype)
    for dim in (0, 1):
        check(lambda t: torch.logcumsumexp(t, dim), x)
        check(lambda t: torch.logcumsumexp(t, dim), x.nan_to_num(1, 20, -20))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(1,), (7,), (5, 33), (3, 40, 17), (2, 300, 5), (0, 4), ()])
def test_softmax_gradients(dtype, shape):
    x, g = torch.randn(shape).mul(4), torch.randn(shape).to(dtype)
    if x.dim() == 2 and len(x):
        x[:, 1:] = torch.where(torch.rand(shape)[:, 1:] < 0.3, -float("inf"), x[:, 1:])
    for dim in dims(x):
        y, log = x.softmax(dim).to(dtype), x.log_softmax(dim).to(dtype)
        check(lambda g, y: torch.ops.aten._softmax_backward_data(g, y, dim, dtype), g, y)
        check(lambda g, y: torch.ops.aten._log_softmax_backward_data(g, y, dim, dtype), g, log)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape, inner", [((4, 16), 1), ((3, 5, 33), 1), ((2, 3, 4, 5), 2), ((7, 1), 1), ((100,), 1), ((0, 8), 1)])
@pytest.mark.parametrize("affine", [0, 1, 2])
def test_layer_norm_gradients(dtype, shape, inner, affine):
    def gradients(x, g, *parameters):
        leaves = [t.detach().requires_grad_() for t in (x, *parameters)]
        F.layer_norm(leaves[0], shape[-inner:], *leaves[1:]).backward(g)
        return [t.grad for t in leaves]

    parameters = [torch.randn(shape[-inner:]).to(dtype) for _ in range(affine)]
    wide = {torch.bfloat16: 4e-2, torch.float16: 1e-2}
    tolerance = {"rtol": wide[dtype], "atol": wide[dtype]} if dtype in wide else {"rtol": 1e-4, "atol": 1e-4}
    check(gradients, torch.randn(shape).to(dtype), torch.randn(shape).to(dtype), *parameters, **tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("index_dtype", [torch.int64, torch.int32], ids=str)
def test_embedding_bags(dtype, mode, index_dtype):
    table = torch.randn(20, 9).to(dtype)
    index, offsets = torch.randint(20, (30,)).to(index_dtype), torch.tensor([0, 4, 4, 19]).to(index_dtype)
    scale = torch.rand(30).to(dtype)

    def bags(w, i, o, **options):
        w = w.detach().requires_grad_()
        out = F.embedding_bag(i, w, o, mode=mode, **options)
        out.square().sum().backward()
        return out.detach(), w.grad

    check(bags, table, index, offsets)
    check(lambda w, i, o: bags(w, i, o, padding_idx=3), table, index % 5, offsets)
    last = torch.cat([offsets, torch.tensor([30])]).to(index_dtype)
    check(lambda w, i, o: bags(w, i, o, include_last_offset=True), table, index, last)
    check(lambda w, i: bags(w, i, None), table, index.view(5, 6))
    if mode == "sum":
        check(lambda w, i, o, s: bags(w, i, o, per_sample_weights=s), table, index, offsets, scale)
    check(lambda w, i, o: torch.ops.aten._embedding_bag(w, i, o, False, ["sum", "mean", "max"].index(mode))[0], table, index, offsets)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_rows_are_taken(dtype):
    x = torch.randn(9, 4, 40).mul(5).to(dtype)
    for index in (torch.tensor([0, 8, 3, 3]), torch.tensor([[1, 2], [-1, 0]]), torch.tensor([], dtype=torch.int64), torch.tensor(5)):
        check(lambda t, i: t[i], x, index)
        check(lambda t, i: t[:, i % 4], x, index)
    check(lambda t, i: t.index_select(0, i), x, torch.tensor([8, 0, 8]))
    check(lambda t, i: t.index_select(1, i), x, torch.tensor([3, 0, 2], dtype=torch.int32))


def test_indices_outside_are_errors():
    x = torch.randn(9, 40).to(DEVICE)
    for bad in ([9], [-10], [0, 3, 2**40], [-(2**33)]):
        index = torch.tensor(bad).to(DEVICE)
        with pytest.raises(IndexError):
            x[index]
            torch.tpu.synchronize()
        with pytest.raises(IndexError):
            F.embedding(index, x)
            torch.tpu.synchronize()


CONVOLUTIONS = {  # input, weight, options
    "plain": ((3, 5, 20, 33), (18, 5, 3, 3), dict(padding=1)),
    "narrow": ((2, 24, 7, 7), (40, 24, 3, 3), dict(padding=1)),
    "strided": ((2, 3, 31, 30), (7, 3, 5, 4), dict(stride=(2, 3), padding=(2, 0))),
    "dilated": ((1, 4, 30, 29), (6, 4, 3, 2), dict(dilation=(3, 2), padding=(5, 1))),
    "points": ((2, 40, 9, 9), (16, 40, 1, 1), {}),
    "strided points": ((2, 8, 9, 9), (16, 8, 1, 1), dict(stride=2)),
    "more padding than window": ((1, 2, 9, 10), (3, 2, 2, 2), dict(padding=4)),
    "in groups": ((2, 6, 12, 12), (9, 2, 3, 3), dict(groups=3, padding=1)),
    "one dimension": ((2, 7, 100), (5, 7, 9), dict(stride=2, padding=4)),
    "three dimensions": ((1, 3, 6, 7, 8), (4, 3, 3, 3, 3), dict(padding=1)),
    "no images": ((0, 3, 8, 8), (4, 3, 3, 3), dict(padding=1)),
}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name, transposed):
    x_shape, w_shape, options = CONVOLUTIONS[name]
    spatial = len(x_shape) - 2
    function = getattr(F, f"conv{'_transpose' if transposed else ''}{spatial}d")
    if transposed:
        x_shape = x_shape[0], w_shape[0], *(min(n, 12) for n in x_shape[2:])

    def gradients(x, w, b):
        x, w, b = (t.detach().requires_grad_() for t in (x, w, b))
        y = function(x, w, b, **options)
        return y.detach(), *torch.autograd.grad(y.square().sum(), (x, w, b))

    features = w_shape[1] * options.get("groups", 1) if transposed else w_shape[0]
    x, w, b = torch.randn(x_shape), torch.randn(w_shape) / 8, torch.randn(features)
    results = check(gradients, x, w, b, rtol=1e-4, atol=2e-3)
    check(gradients, x.transpose(-1, -2).contiguous().transpose(-1, -2), w, b, rtol=1e-4, atol=2e-3)
    if spatial == 2 and x_shape[0]:
        last = torch.channels_last
        for got, wanted in zip(gradients(x.to(DEVICE, memory_format=last), w.to(DEVICE, memory_format=last), b.to(DEVICE)), results, strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=2e-3)


def test_an_infinity_reaches_only_what_sees_it():
    x, w = torch.randn(1, 2, 20, 20), torch.randn(3, 2, 3, 3)
    x[0, 1, 4, 19] = float("inf")
    y = F.conv2d(x.to(DEVICE), w.to(DEVICE), padding=1)
    assert torch.equal(y.isfinite().cpu(), F.conv2d(x, w, padding=1).isfinite())


def test_kernels_read_row_major_arrays():
    """Whatever the plugin would like: operands that are transposed inside the same program."""
    x = torch.randn(6, 50)
    check(lambda t: torch.sort(t.t().contiguous().t(), dim=0, stable=True), x)
    check(lambda t: t.t().cumsum(0), x)
    check(lambda t: t.t().softmax(0), x)


def test_which_programs_call_kernels(tmp_path):
    code = "import torch; torch.randn(9).to('tpu').sort(); torch.tpu.synchronize()"
    by_kernels, plain = programs_by_kernels(code, tmp_path)
    assert "tt_sort_v1" in by_kernels and "tt_sort_v1" not in plain


@pytest.mark.skipif(WITHOUT, reason="this is the run without kernels")
def test_all_of_this_without_kernels():
    rare = ["which_programs", "float16", "float64", "int32", "int16", "int8", "40000"]
    run = [sys.executable, "-m", "pytest", "-q", "-x", Path(__file__).name, "-k", " and ".join(f"not {r}" for r in rare)]
    done = subprocess.run(
        run, env={**os.environ, "TORCH_TPU_INTERNAL_FFI": "0"}, cwd=Path(__file__).parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:]

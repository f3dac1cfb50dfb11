"""What counts or groups: unique, bincount, histograms, reductions of segments. CPU's results, layouts and errors."""

import itertools

import pytest
import torch
from conftest import assert_same, check, to_device

NAN = float("nan")


pytestmark = pytest.mark.usefixtures("native")


def strides(value):
    return [t.stride() for t in (value if isinstance(value, list | tuple) else [value])]


def fails_alike(function, *args):
    """The CPU refuses it, and the device does with the same kind of error."""
    with pytest.raises(Exception) as expected:
        function(*args)
    with pytest.raises(expected.type) as actual:
        function(*to_device(args))
        torch.tpu.synchronize()
    return str(actual.value), str(expected.value)


# ---- unique -----------------------------------------------------------------------------------------------------------

FLAGS = list(itertools.product([False, True], repeat=2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.int8, torch.uint8, torch.bool])
def test_unique(dtype):
    x = torch.randint(0, 5, (3, 4, 2)).to(dtype)
    for inverse, counts in FLAGS:
        for function in (torch.unique, torch.unique_consecutive):
            check(lambda x: function(x, return_inverse=inverse, return_counts=counts), x)
            for dim in range(-1, 3):
                check(lambda x: function(x, return_inverse=inverse, return_counts=counts, dim=dim), x)


def test_unique_of_special_numbers():
    x = torch.tensor([NAN, 1, NAN, 1, 0.0, -0.0, float("inf"), -float("inf")])
    for function in (torch.unique, torch.unique_consecutive):
        check(lambda x: function(x, return_inverse=True, return_counts=True), x)
    check(lambda x: torch.unique(x, dim=0), torch.tensor([[1.0, 2], [1, 2], [0, 3]]))


@pytest.mark.parametrize("shape", [(0,), (), (1,), (0, 3), (3, 1)])
def test_unique_of_few(shape):
    x = torch.zeros(shape)
    for inverse, counts in FLAGS:
        for function in (torch.unique, torch.unique_consecutive):
            check(lambda x: function(x, return_inverse=inverse, return_counts=counts), x)
    if x.dim():
        check(lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True), x)


def test_unique_results_that_nobody_asked_for_and_layouts():
    x = torch.randint(0, 2, (2, 3, 4))
    ops = torch.ops.aten
    for function in (lambda x: ops._unique2(x), lambda x: ops._unique(x), lambda x: ops.unique_consecutive(x),
                     lambda x: ops.unique_dim(x, 1), lambda x: ops.unique_dim_consecutive(x, 1)):
        assert strides(check(function, x)) == strides(function(x))


def test_unique_refuses_what_the_cpu_refuses():
    for function in (lambda x: torch.unique(x, dim=1), lambda x: torch.unique_consecutive(x, dim=1)):
        actual, expected = fails_alike(function, torch.zeros(0, 3))
        assert actual == expected
    fails_alike(lambda x: torch.unique(x, dim=0), torch.zeros(0, 0))
    fails_alike(lambda x: torch.unique(x, dim=0), torch.tensor(3.0))
    fails_alike(torch.unique, torch.zeros(2, dtype=torch.complex64))


def test_unique_rows_of_many_columns():
    x = torch.randint(0, 2, (40, 9)).float()
    check(lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True), x)
    check(lambda x: torch.unique(x.t(), dim=1, return_inverse=True, return_counts=True), x)


# ---- bincount, tensor_split -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_bincount(dtype):
    x = torch.tensor([1, 4, 1, 0], dtype=dtype)
    check(torch.bincount, x)
    check(lambda x: torch.bincount(x, minlength=9), x)
    check(lambda x: torch.bincount(x, minlength=2), x)
    for weights in (torch.float32, torch.float64, torch.int32, torch.bfloat16):
        check(torch.bincount, x, torch.tensor([1, 2, 3, 4]).to(weights))
    check(lambda x: torch.bincount(x, minlength=3), torch.tensor([], dtype=dtype))


def test_bincount_refuses_what_the_cpu_refuses():
    for args in ([torch.tensor([-1])], [torch.tensor([[1]])], [torch.tensor([1]), torch.tensor([1.0, 2])],
                 [torch.tensor([1]), None, -1]):
        actual, expected = fails_alike(torch.bincount, *args)
        assert actual == expected
    fails_alike(torch.bincount, torch.tensor([1.0]))
    fails_alike(torch.bincount, torch.tensor([True]))


def test_tensor_split_at_places_on_the_device():
    x = torch.arange(14.0).view(7, 2).requires_grad_()
    for places in (torch.tensor([1, 4]), torch.tensor(3), torch.tensor([], dtype=torch.int64)):
        check(lambda x, p: torch.tensor_split(x, p), x, places)
        parts = torch.tensor_split(to_device(x), places.to("tpu"))
        expected = torch.tensor_split(x.detach(), places)
        assert_same([p.shape for p in parts], [p.shape for p in expected])
    device = to_device(x)
    torch.tensor_split(device, torch.tensor([2, 5], device="tpu"))[1].sum().backward()
    torch.tensor_split(x, torch.tensor([2, 5]))[1].sum().backward()
    assert_same(device.grad, x.grad)


# ---- histograms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("density", [False, True])
def test_histogram(dtype, density):
    x, weight = torch.randn(4, 25, dtype=dtype), torch.rand(4, 25, dtype=dtype)
    edges = torch.tensor([-1.0, -0.5, 0, 0.1, 2], dtype=dtype)
    for bins in (1, 7, edges):
        check(lambda x, b: torch.histogram(x, b, density=density), x, bins)
        check(lambda x, w, b: torch.histogram(x, b, weight=w, density=density), x, weight, bins)
    check(lambda x: torch.histogram(x, 5, range=(-0.5, 1), density=density), x)
    check(lambda x: torch.histogram(x, 5, range=(1, 1), density=density), x)


def test_histogram_puts_numbers_on_edges_where_the_cpu_does():
    x = torch.linspace(-1, 1, 41)
    for bins in (4, 10, 40):
        check(lambda x: torch.histogram(x, bins), x)
        check(lambda x: torch.histogram(x, bins, range=(-1, 1)), x)
    x = torch.tensor([1.0, 1, 2, NAN, 3, float("inf"), -5])
    check(lambda x: torch.histogram(x, 2, range=(1, 3)), x)
    check(lambda x, e: torch.histogram(x, e), x, torch.tensor([1.0, 2, 3]))


def test_histogram_of_few():
    check(lambda x: torch.histogram(x, 3), torch.tensor([]))
    check(lambda x: torch.histogram(x, 2), torch.tensor(1.0))
    check(lambda x: torch.histogram(x, 3, density=True), torch.tensor([2.0, 2.0]))


@pytest.mark.parametrize("density", [False, True])
def test_histogramdd(density):
    x, weight = torch.randn(30, 2), torch.rand(30)
    edges = [torch.tensor([-1.0, 0, 1]), torch.tensor([-2.0, -1, 0.5, 3])]
    check(lambda x: list(torch.histogramdd(x, [3, 4], density=density).bin_edges), x)
    check(lambda x: torch.histogramdd(x, [3, 4], density=density).hist, x)
    check(lambda x, w: torch.histogramdd(x, [3, 4], weight=w, range=[-1.0, 1, 0, 2], density=density).hist, x, weight)
    check(lambda x, e, w: torch.histogramdd(x, e, weight=w, density=density).hist, x, edges, weight)
    check(lambda x: torch.histogramdd(x, 3).hist, x.view(5, 3, 2, 2))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.histogram(x, 0),
        lambda x: torch.histogram(x.long(), 3),
        lambda x: torch.histogram(x.half(), 3),
        lambda x: torch.histogram(x, 3, range=(3, 1)),
        lambda x: torch.histogram(x / 0, 3),
        lambda x: torch.histogram(x, 3, weight=torch.ones(3, device=x.device)),
        lambda x: torch.histogram(x, 3, weight=torch.ones(2, device=x.device).double()),
        lambda x: torch.histogram(x, torch.ones(3, device=x.device).double()),
        lambda x: torch.histogram(x, torch.ones(2, 3, device=x.device)),
        lambda x: torch.histogram(x, torch.ones(1, device=x.device)),
        lambda x: torch.histogramdd(x, [2]),
        lambda x: torch.histogramdd(x.view(1, 2), [2]),
    ],
)
def test_histogram_refuses_what_the_cpu_refuses(function):
    fails_alike(function, torch.tensor([1.0, 2.0]))


# ---- hash_tensor ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.int8, torch.uint8, torch.bool])
def test_hash_tensor(dtype):
    x = (torch.randn(3, 4) * 5).to(dtype)
    check(lambda x: torch.hash_tensor(x).view(torch.int64), x)
    check(lambda x: torch.hash_tensor(x, dim=1, keepdim=True).view(torch.int64), x)
    check(lambda x: torch.hash_tensor(x, dim=(0, 1)).view(torch.int64), x)
    check(lambda x: torch.hash_tensor(x).view(torch.int64), x[0, 0])


# ---- segments ---------------------------------------------------------------------------------------------------------

REDUCTIONS = ["sum", "mean", "prod", "max", "min"]


def segments(x, reduce, **options):
    """The reduction and its gradient."""
    x = x.detach().requires_grad_()
    out = torch.segment_reduce(x, reduce, **options)
    return out.detach(), *torch.autograd.grad(out.nan_to_num(0, 0, 0).sum(), x)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("initial", [None, 2.0])
def test_segment_reduce(reduce, initial):
    x = torch.randn(6, 3)
    lengths, offsets = torch.tensor([2, 0, 3, 1]), torch.tensor([0, 2, 2, 5, 6])
    check(lambda x, n: segments(x, reduce, lengths=n, initial=initial), x, lengths)
    check(lambda x, n: segments(x, reduce, offsets=n, initial=initial), x, offsets)
    check(lambda x, n: segments(x, reduce, lengths=n.int(), initial=initial), x[:, 0], lengths)
    batch = torch.randn(2, 5, 2)
    check(lambda x, n: segments(x, reduce, lengths=n, axis=1, initial=initial), batch, torch.tensor([[1, 4], [5, 0]]))


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_segment_reduce_of_special_numbers(reduce):
    x = torch.tensor([0.0, 2, NAN, 3, 3, 0, 0, 5, float("inf"), 1])
    check(lambda x, n: segments(x, reduce, lengths=n), x, torch.tensor([2, 2, 3, 3]))
    check(lambda x, n: segments(-x, reduce, lengths=n), x, torch.tensor([5, 5]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_segment_reduce_of_other_floats(dtype):
    x = torch.randn(7, 2).to(dtype)
    for reduce in REDUCTIONS:
        check(lambda x, n: segments(x, reduce, lengths=n), x, torch.tensor([3, 4]), rtol=2e-2, atol=2e-2)


def test_segment_reduce_refuses_what_the_cpu_refuses():
    x = torch.randn(4)
    fails_alike(lambda x, n: torch.segment_reduce(x, "sum", lengths=n), x, torch.tensor([1, 2]))
    fails_alike(lambda x, n: torch.segment_reduce(x, "sum", lengths=n), x, torch.tensor([5, -1]))
    fails_alike(lambda x, n: torch.segment_reduce(x, "median", lengths=n), x, torch.tensor([4]))
    fails_alike(lambda x: torch.segment_reduce(x, "sum"), x)


# ---- what indexed operators refuse --------------------------------------------------------------------------------------

SORTED, VALUES = torch.arange(9.0), torch.randn(3, 4)


@pytest.mark.parametrize(
    "function",
    [
        lambda s, v: torch.searchsorted(s, v, side="both"),
        lambda s, v: torch.searchsorted(s, v, side="left", right=True),
        lambda s, v: torch.searchsorted(s, v, sorter=torch.arange(9, device=s.device).int()),
        lambda s, v: torch.searchsorted(s, v, sorter=torch.arange(9, device=s.device) + 5),
        lambda s, v: torch.searchsorted(s[0], v),
        lambda s, v: torch.searchsorted(s.view(3, 3), v[0, 0]),
        lambda s, v: torch.searchsorted(s.view(3, 3), 1.0),
        lambda s, v: torch.searchsorted(s.bool(), v.bool()),
        lambda s, v: torch.bucketize(v, s.view(3, 3)),
        lambda s, v: v.index_reduce(0, torch.tensor([0], device=v.device), v[:1], "sum"),
        lambda s, v: v.scatter_reduce(0, torch.tensor([[0]], device=v.device), v, "add"),
        lambda s, v: v.clone().put_(torch.tensor([0], device=v.device).int(), v[0, :1]),
        lambda s, v: v.masked_scatter((v > 0).byte(), v),
    ],
)
def test_indexed_operators_refuse_in_the_cpus_words(function):
    actual, expected = fails_alike(function, SORTED, VALUES)
    assert actual.split(": ", 1)[1].startswith(expected) if actual.startswith("aten::") else expected in actual, (actual, expected)


def test_searching_where_the_cpu_accepts():
    for right in (False, True):
        check(lambda s, v: torch.searchsorted(s, v, right=right), SORTED, VALUES.double())
        check(lambda s, v: torch.searchsorted(s, v, right=right), SORTED, torch.tensor(2))
        check(lambda s: torch.searchsorted(s, 2, right=right), SORTED)
        check(lambda s, v: torch.searchsorted(s, v, right=right), torch.zeros(2, 0), VALUES[:2])
        check(lambda s, v, o: torch.searchsorted(s, v, right=right, sorter=o), SORTED.flip(0), VALUES, torch.arange(9).flip(0))

"""Special values: NaN, infinities, both zeros, subnormal, extreme and almost whole numbers, over all rows of the operator tables.

The answers are the CPU's to the bit where they are exact, and within assert_close's tolerances else. `special_values.py`,
`special_sweep.py` and `docs/special_values.md` tell which other answers are right, and why; nothing else is left out.
TORCH_TPU_TEST_EVERYTHING=1: every row in every dtype, else each in one or two of them."""

import collections
import os

import pytest
import torch
from conftest import DEVICE
from special_sweep import Call, differences, pointwise_calls
from special_values import COMPLEX, DTYPES, FLOATS, INTS
from special_whole import CAST_DTYPES, WHOLE, cast_calls, gradient_calls, promotion_calls, whole_calls
from torch_tpu import _C

EVERYTHING = bool(os.environ.get("TORCH_TPU_TEST_EVERYTHING"))
TABLE = {r["row"]: r for r in _C._op_table() if not r["foreach"]}
POINTWISE = sorted(n for n, r in TABLE.items() if r["pointwise"])
FAMILIES = ("reduce", "scan", "sort", "softmax")  # whose rows take arrays as a whole, and belong here
PARTS = 8
SOME = [torch.int32, torch.complex64, torch.bool, torch.bfloat16, torch.float64, torch.uint8, torch.float16]


def dtypes_of(index):
    return DTYPES if EVERYTHING else [torch.float32, SOME[index % len(SOME)]]


def findings(calls, dtype):
    reasons = collections.Counter()
    return [f"{call.row} {dtype} {finding}" for call in calls for finding in differences(call, dtype, reasons)]


def check_all(groups):
    """Tells everything that differs in (calls, dtype) groups."""
    found = [finding for calls, dtype in groups for finding in findings(calls, dtype)]
    assert not found, f"{len(found)}:\n" + "\n".join(found)


def check(calls, dtype):
    check_all([(calls, dtype)])


def some(calls, index):
    """All calls, or two of them."""
    calls = list(calls)
    return calls if EVERYTHING else {id(c): c for c in (calls[index % len(calls)], calls[(7 * index + 1) % len(calls)])}.values()


def test_every_row_is_swept():
    rows = {n for n, r in TABLE.items() if r["family"] in FAMILIES and not n.startswith("_assert_async")}  # which has no result
    assert not rows - WHOLE.keys()
    assert len(POINTWISE) > 200 and all(next(pointwise_calls(n, torch.float32)).function for n in POINTWISE)


@pytest.mark.parametrize("part", range(PARTS))
def test_pointwise(part):
    rows = list(enumerate(POINTWISE))[part::PARTS]
    check_all((some(pointwise_calls(name, dtype), index), dtype) for index, name in rows for dtype in dtypes_of(index))


@pytest.mark.parametrize("part", range(PARTS))
def test_whole_arrays(part):
    rows = list(enumerate(WHOLE))[part::PARTS]
    check_all((some(whole_calls(name, dtype), index), dtype) for index, name in rows for dtype in dtypes_of(index))


@pytest.mark.parametrize("source", CAST_DTYPES, ids=str)
def test_casts(source):
    groups = [(index, list(cast_calls(source, target))) for index, target in enumerate(CAST_DTYPES)]
    check_all((calls if EVERYTHING else calls[index % len(calls) :][:1], source) for index, calls in groups)


@pytest.mark.parametrize("a", [*FLOATS, *INTS, torch.bool, *COMPLEX], ids=str)
def test_promotion(a):
    others = list(enumerate([*FLOATS, *INTS, torch.bool, *COMPLEX]))
    check_all((promotion_calls(a, b), b) for index, b in others if EVERYTHING or (index + CAST_DTYPES.index(a)) % 4 == 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64], ids=str)
def test_gradients_at_kinks(dtype):
    calls = list(gradient_calls(dtype))
    check(calls if EVERYTHING else calls[DTYPES.index(dtype) :: 3 if dtype == torch.float32 else 12], dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("row", ["amax", "amin", "max", "max.dim", "min", "min.dim", "aminmax", "_aminmax.dim", "argmax", "argmin", "linalg_vector_norm", "renorm",
                                 "_softmax", "_log_softmax", "logsumexp"])
def test_large_arrays_keep_nan(row, dtype):
    """XLA:CPU reduces those with more than 4,096 elements by other means."""
    x = torch.ones(1296, 5)
    x[::2, 0] = x[1::3, -1] = float("nan")
    check((Call(f, [x.to(dtype)], label=f"form {k}", row=row) for k, f in enumerate(WHOLE[row])), dtype)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64], ids=str)
def test_lowest_number_over_minus_one(dtype):
    """Wraps, where the CPU's own division ends the process."""
    lowest = torch.iinfo(dtype).min
    x, y = torch.full((20,), lowest, dtype=dtype, device=DEVICE), torch.full((20,), -1, dtype=dtype, device=DEVICE)
    for mode in ("trunc", "floor"):
        assert torch.div(x, y, rounding_mode=mode).eq(lowest).all() and torch.div(x, -1, rounding_mode=mode).eq(lowest).all()
    for rest in (torch.remainder(x, y), torch.fmod(x, y)):
        assert rest.eq(0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_half_types_and_masks_keep_infinities(dtype):
    """A mask times a constant is a product, not a choice."""
    mask = torch.tensor([True, False] * 10)
    for factor in (float("inf"), float("nan"), -1.0, 0.0):
        expected, actual = mask.to(dtype) * factor, (mask.to(DEVICE).to(dtype) * factor).cpu()
        assert torch.equal(actual.isnan(), expected.isnan()) and torch.equal(actual.signbit()[~actual.isnan()], expected.signbit()[~expected.isnan()])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128], ids=str)
def test_sums_of_exponentials_do_not_overflow(dtype):
    x = (torch.randn(4, 6).to(dtype) * 30 + torch.tensor([-2000.0, 0, 900, 3000])[:, None]).to(dtype)
    for dim in (0, 1):
        torch.testing.assert_close(x.to(DEVICE).logsumexp(dim).cpu(), x.logsumexp(dim))

"""Every operator over lists of tensors in PyTorch's database, out of place and in place, against the CPU."""

import itertools

import pytest
import torch
from database import EVERYTHING, difference, layout, named, outcome, part, twins
from torch.testing._internal import common_methods_invocations as database
from torch.utils._pytree import tree_leaves, tree_map

pytestmark = pytest.mark.usefixtures("native")

OPERATORS = [*database.foreach_unary_op_db, *database.foreach_binary_op_db, *database.foreach_pointwise_op_db,
             *database.foreach_reduce_op_db, *database.foreach_other_op_db]
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128,
          torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
LENGTHS = [1, 3]

# Half types: PyTorch's slow path on the CPU rounds after each step, the device once.
TOLERANCE = {torch.bfloat16: {"rtol": 2e-2, "atol": 1e-2}, torch.float16: {"rtol": 2e-3, "atol": 1e-3}}
# Sums of products in another order, and powers of complex numbers by logarithms, which neither device rounds correctly.
OF_OPERATOR = {"_foreach_mm": {"rtol": 1e-5, "atol": 1e-4}, "_foreach_pow": {"rtol": 1e-5, "atol": 1e-5}}


def tolerance(info, dtype):
    return TOLERANCE.get(dtype) or (OF_OPERATOR.get(info.name, {}) if dtype in (torch.float32, torch.complex64) else {})


def samples(info, dtype, **options):
    """Lists of several lengths, with empty tensors among them, and lists of nothing else."""
    made = info.sample_inputs("cpu:0", dtype, num_input_tensors=LENGTHS, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "NUM_SIZE0_TENSORS", 3)
        empty = list(outcome_or_nothing(info.sample_zero_size_inputs, "cpu", dtype))
    return [((s.input, *s.args), s.kwargs) for s in itertools.chain(made, empty)]


def outcome_or_nothing(function, *args):
    result = outcome(function, *args)
    return [] if isinstance(result, Exception) else result


def run(function, call, in_place):
    args, kwargs = tree_map(lambda t: t.detach().clone() if isinstance(t, torch.Tensor) else t, call)
    result = function(*args, **kwargs)
    return args[0] if in_place else result


def compare(info, calls, dtype):
    wrong, count = [], 0
    for (k, call), in_place in itertools.product(enumerate(calls), (False, True)):
        function = info.inplace_variant if in_place else info.method_variant
        if function is None or (not in_place and not info.supports_out):
            continue
        expected = outcome(run, function, call, in_place)
        actual = outcome(run, function, twins(call), in_place)
        count += 1
        found = difference(actual, expected, **tolerance(info, dtype))
        if not found and not isinstance(expected, Exception) and layout(actual) != layout(expected):
            found = f"layout {layout(actual)}, not {layout(expected)}"
        if found:
            wrong.append(f"call {k}{' in place' if in_place else ''}, {[type(a).__name__ for a in call[0]]}, {call[1]}: {found}")
    assert not wrong, f"{len(wrong)} of {count}\n" + "\n".join(wrong[:20])
    assert count


@pytest.mark.parametrize("info", named(part(OPERATORS, 4)))
@pytest.mark.parametrize("dtype", DTYPES if EVERYTHING else (torch.float32, torch.int64), ids=str)
def test_lists(info, dtype):
    compare(info, samples(info, dtype), dtype)


def alternating(lists):
    """Member k of list k, and around again. Numbers and single tensors: the first."""
    first = lists[0]
    return [lists[i % len(lists)][i] for i in range(len(first))] if isinstance(first, list) else first


@pytest.mark.parametrize("info", named(part(OPERATORS, 4)))
def test_lists_of_several_dtypes(info):
    """Members of one list, and what stands at the same place of two lists, differ in dtype."""
    kinds = [samples(info, dtype) for dtype in (torch.float32, torch.int64, torch.float16, torch.complex64, torch.bool)]
    mixed = []
    for calls in zip(*kinds, strict=False):
        (args, kwargs), others = calls[0], [c[0] for c in calls]
        if len({tuple(len(a) if isinstance(a, list) else type(a) for a in other) for other in others}) > 1:
            continue  # these kinds are given other numbers
        mixed.append((tuple(alternating([other[i] for other in others]) for i in range(len(args))), kwargs))
        mixed += [((args[0], *other[1:]), kwargs) for other in others[1:] if len(args) > 1]
    compare(info, mixed, torch.float16)


@pytest.mark.parametrize("info", named(part([o for o in OPERATORS if o.supports_autograd], 4)))
def test_gradients_of_lists(info):
    wrong = []
    for k, call in enumerate(samples(info, torch.float32, requires_grad=True)):
        def run_backward(args, kwargs):
            results = [t for t in tree_leaves(info.method_variant(*args, **kwargs)) if t.requires_grad]
            inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
            return torch.autograd.grad([t.sum() for t in results], inputs, allow_unused=True) if results else ()
        found = difference(outcome(run_backward, *twins(call)), outcome(run_backward, *call))
        if found:
            wrong.append(f"call {k}: {found}")
    assert not wrong, "\n".join(wrong)

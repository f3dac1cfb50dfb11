"""Every module of torch.nn in PyTorch's module database: forward, gradients and state, against a copy on the CPU."""

import copy
import itertools

import pytest
import torch
from database import EVERYTHING, FLOATS, difference, layout, named, native, outcome, part, twins  # noqa: F401 - native is a fixture
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_leaves, tree_map

# Modules that draw random numbers in training, which no two devices draw alike.
RANDOM = "Dropout", "RReLU", "FractionalMaxPool"

# The CPU computes these in a narrow type throughout; the device computes in float32.
TOLERANCE = {
    torch.bfloat16: {"rtol": 3e-2, "atol": 3e-2},
    torch.float16: {"rtol": 5e-3, "atol": 5e-3},
}


def modules(info, dtype, training, most=None):
    """A module on the CPU and its input, for each case of the database."""
    inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
    for case in itertools.islice(inputs, None if EVERYTHING else most):
        if case.forward_input is None:
            continue
        made = case.constructor_input
        module = info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)
        if info.is_lazy and isinstance(outcome(module, *case.forward_input.args, **case.forward_input.kwargs), Exception):
            continue
        yield module, (case.forward_input.args, case.forward_input.kwargs)


def differentiable(value):
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor) and t.requires_grad]


def gradients(module, given, result):
    """Of all parameters and inputs, for a gradient of the result that is not the same everywhere."""
    outputs, inputs = differentiable(result), [*module.parameters(), *differentiable(given)]
    inputs = [t for t in inputs if t.requires_grad]
    if not outputs or not inputs:
        return []
    weights = [torch.linspace(0.5, 1.5, t.numel(), dtype=torch.float64).reshape(t.shape).to(t.dtype).to(t.device) for t in outputs]
    return torch.autograd.grad(outputs, inputs, weights, allow_unused=True)


def run(module, given):
    """Results, gradients, and what the module holds afterwards."""
    torch.manual_seed(0)
    result = module(*given[0], **given[1])
    return result, gradients(module, given, result), dict(module.state_dict())


def is_random(info, module, training):
    if any(word in info.name for word in RANDOM):
        return training or "Fractional" in info.name
    return training and any(getattr(m, "dropout", 0) or isinstance(m, torch.nn.Dropout) and m.p for m in module.modules())


def compare(info, dtype, training, change=lambda value: value, most=6):
    wrong, count = [], 0
    for k, (module, given) in enumerate(modules(info, dtype, training, most)):
        module, given = change(module), change(given)
        moved = copy.deepcopy(module).to("tpu")
        there = twins(given)
        expected = outcome(run, module, given)
        if isinstance(expected, Exception):
            continue
        count += 1
        actual = outcome(run, moved, there)
        if not isinstance(actual, Exception) and is_random(info, module, training):
            found = [a[:2] for a in layout(actual[:2])] != [e[:2] for e in layout(expected[:2])] and "shapes or dtypes"
        else:
            found = difference(actual, expected, **TOLERANCE.get(dtype, {}))
            found = found or layout(actual[0]) != layout(expected[0]) and f"layout {layout(actual[0])}, not {layout(expected[0])}"
        if found:
            wrong.append(f"case {k}, {module}: {found}")
    assert not wrong, "\n".join(wrong)
    return count


@pytest.mark.parametrize("info", named(part(module_db, 3)))
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_module(info, dtype):
    if dtype not in (torch.float32, *(FLOATS if EVERYTHING else ())):
        pytest.skip("a part of the dtypes will do")
    modes = (True, False) if info.train_and_eval_differ or EVERYTHING else (True,)
    count = sum(compare(info, dtype, training) for training in modes)
    if not count and dtype in (torch.float32, torch.float64):
        pytest.skip("the CPU runs no case of it in this dtype")

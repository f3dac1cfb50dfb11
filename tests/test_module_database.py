"""Every module of torch.nn in PyTorch's module database: forward, gradients and state, against a copy on the CPU."""

import copy
import itertools

import pytest
import torch
from database import EVERYTHING, FLOATS, difference, layout, named, outcome, part, twins
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_leaves, tree_map

pytestmark = pytest.mark.usefixtures("native")

# Modules that draw random numbers in training, which no two devices draw alike.
RANDOM = "Dropout", "RReLU", "FractionalMaxPool"

# Half types: the CPU rounds between the steps of some modules, the device of others.
TOLERANCE = {torch.bfloat16: {"rtol": 3e-2, "atol": 3e-2}, torch.float16: {"rtol": 5e-3, "atol": 5e-3}}
# A relu within, whose gradient jumps at 0: in half types some input is nearer to 0 than rounding. Gradients are not compared then.
KINKED = ("nn.TransformerEncoder",)
# Channels-last if the input or weight is, as on CUDA; the CPU's own convolution, which it takes for small shapes, is not.
OTHER_FORMATS = "nn.Conv3d", "nn.LazyConv3d", "nn.ConvTranspose3d", "nn.LazyConvTranspose3d"


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


def run(module, given, grad, kinked):
    """Results, gradients (not of what has kinks), and what the module holds afterwards."""
    torch.manual_seed(0)
    with torch.set_grad_enabled(grad):
        result = module(*given[0], **given[1])
    return result, [] if kinked else gradients(module, given, result), dict(module.state_dict())


def widened(module, given):
    """The same in float64."""
    wide = tree_map(lambda t: t.detach().double().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) and t.is_floating_point() else t, given)
    return copy.deepcopy(module).double(), wide


def is_random(info, module, training):
    if any(word in info.name for word in RANDOM):
        return training or "Fractional" in info.name
    return training and any(getattr(m, "dropout", 0) or isinstance(m, torch.nn.Dropout) and m.p for m in module.modules())


def channels_last(value):
    """A tensor of 4 or 5 dimensions in that format; a module with its parameters in both."""
    if isinstance(value, torch.nn.Module):
        with torch.no_grad():
            for t in [*value.parameters(), *value.buffers()]:
                t.data = channels_last(t.data)
        return value
    if not isinstance(value, torch.Tensor) or value.dim() not in (4, 5):
        return value
    form = torch.channels_last if value.dim() == 4 else torch.channels_last_3d
    return value.detach().contiguous(memory_format=form).requires_grad_(value.requires_grad)


def compare(info, dtype, training, grad, formatted=(False, False), most=6):
    """`formatted`: whether the module, and whether its inputs, are channels-last."""
    wrong, count, kinked = [], 0, info.name in KINKED and dtype in TOLERANCE
    for k, (module, given) in enumerate(modules(info, dtype, training, most)):
        if any(formatted) and not any(t.dim() in (4, 5) for t in tree_leaves(given) if isinstance(t, torch.Tensor)):
            continue
        module = channels_last(module) if formatted[0] else module
        given = tree_map(channels_last, given) if formatted[1] else given
        moved = copy.deepcopy(module)
        before = [id(p) for p in moved.parameters()]
        moved = moved.to("tpu")
        assert [id(p) for p in moved.parameters()] == before
        there, wide = twins(given), widened(module, given)
        expected = outcome(run, module, given, grad, kinked)
        if isinstance(expected, Exception):
            continue
        count += 1
        actual = outcome(run, moved, there, grad, kinked)
        if not isinstance(actual, Exception) and is_random(info, module, training):
            found = [a[:2] for a in layout(actual[:2])] != [e[:2] for e in layout(expected[:2])] and "shapes or dtypes"
        else:
            found = difference(actual, expected, lambda wide=wide: outcome(run, *wide, grad, kinked), **TOLERANCE.get(dtype, {}))
            if not found and info.name not in OTHER_FORMATS and layout(actual[0]) != layout(expected[0]):
                found = f"layout {layout(actual[0])}, not {layout(expected[0])}"
        if found:
            wrong.append(f"case {k}, {module}: {found}")
    assert not wrong, "\n".join(wrong)
    return count


@pytest.mark.parametrize("info", named(part(module_db, 3)))
@pytest.mark.parametrize("dtype", FLOATS if EVERYTHING else FLOATS[:1], ids=str)
def test_module(info, dtype):
    modes = [(True, True), (False, False), (False, True)]  # training, with gradients; without them some modules call other operators
    count = sum(compare(info, dtype, training, grad) for training, grad in modes[: 3 if EVERYTHING else 2])
    if not count and dtype in (torch.float32, torch.float64):
        pytest.skip("the CPU runs no case of it in this dtype")


@pytest.mark.parametrize("info", named(part(module_db, 5)))
@pytest.mark.parametrize("formatted", [(True, True), (False, True), (True, False)], ids=("both", "input", "module"))
def test_channels_last(info, formatted):
    compare(info, torch.float32, True, True, formatted, most=None)


@pytest.mark.parametrize("info", named(part(module_db, 10)))
def test_there_and_back(info):
    for module, _ in modules(info, torch.float32, True, 2):
        back = copy.deepcopy(module).to("tpu").to("cpu")
        assert not difference(dict(back.state_dict()), dict(module.state_dict()), rtol=0, atol=0)
        assert layout(dict(back.state_dict())) == layout(dict(module.state_dict()))

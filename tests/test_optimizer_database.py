"""Every optimizer in PyTorch's optimizer database with every configuration of it: several steps, against the CPU."""

import contextlib
import copy
import inspect
import sys

import pytest
import torch
from database import EVERYTHING, difference, outcome
from torch.testing._internal.common_optimizers import optim_db

pytestmark = pytest.mark.usefixtures("native")

STEPS = 4
SHAPES = ((4, 3), (5,), (), (2, 3, 2), (0,))
DTYPES = (torch.float32, torch.float64, torch.bfloat16) if EVERYTHING else (torch.float32,)
TOLERANCE = {torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2}}
# A search along a line doubles what rounding makes of its first step.
CLOSURE_TOLERANCE = {torch.float32: {"rtol": 1e-3, "atol": 1e-3}, torch.float64: {"rtol": 1e-6, "atol": 1e-6},
                     torch.bfloat16: {"rtol": 5e-2, "atol": 5e-2}}


def configurations():
    """For each of the database's, with what CUDA may have beside it, every way to run a step that the optimizer knows."""
    cases = []
    for info in optim_db:
        inputs = info.optim_inputs_func("cuda")
        ways = [{}, *({flag: True} for flag in ("foreach", "fused") if flag in info.supported_impls)]
        ways += [{"foreach": False}] if "foreach" in info.supported_impls else []
        for i, given in enumerate(inputs):
            for way in ways:
                name = "-".join([info.optim_cls.__name__, given.desc.replace(" ", "_") or "default", *way])
                if EVERYTHING or i % 3 == 0 or way == {}:
                    cases.append(pytest.param(info, given.kwargs | way, id=f"{name}{'' if all(way.values()) else '-off'}"))
    return cases


def shapes_for(info):
    return ((4, 3), (3, 5)) if info.optim_cls is torch.optim.Muon else SHAPES


def made(info, dtype, device):
    generator = torch.Generator().manual_seed(1)
    shapes = shapes_for(info)
    params = [torch.randn(s, generator=generator).to(dtype).to(device).requires_grad_() for s in shapes]
    grads = [[torch.randn(s, generator=generator).to(dtype).to(device) for s in shapes] for _ in range(2 * STEPS)]
    return params, grads


@contextlib.contextmanager
def capturable_anywhere():
    """The CPU may take steps in the form for captures too: it keeps counts in float32, which float64 can tell."""
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for module in {sys.modules[info.optim_cls.__module__] for info in optim_db}:
            if hasattr(module, "_get_capturable_supported_devices"):
                patch.setattr(module, "_get_capturable_supported_devices", lambda supports_xla=True: ["cpu", "tpu"])
        yield


def step(info, optimizer, params, grads, goal):
    """`goal`: what an optimizer that asks for the loss comes closer to."""
    if info.only_supports_sparse_grads:
        grads = [g.to_sparse() if g.dim() else g.reshape(()).to_sparse() for g in grads]
    for p, g in zip(params, grads, strict=True):
        p.grad = g.clone()
    if not info.step_requires_closure:
        return optimizer.step()

    def closure():
        optimizer.zero_grad()
        loss = sum(((p - g) ** 2).sum() for p, g in zip(params, goal, strict=True))
        loss.backward()
        return loss

    return optimizer.step(closure)


def state_of(optimizer):
    """The state without what says where a number is kept: a step may be a number, on the CPU or on the device."""
    return [{k: v for k, v in sorted(state.items())} for state in optimizer.state_dict()["state"].values()]


def train(info, kwargs, dtype, device):
    """Steps, then steps of another optimizer that goes on from the first one's state dict."""
    params, grads = made(info, dtype, device)
    optimizer = info.optim_cls(params, **copy.deepcopy(kwargs))
    for g in grads[:STEPS]:
        step(info, optimizer, params, g, grads[0])
    again = info.optim_cls(params, **copy.deepcopy(kwargs))
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for g in grads[STEPS:]:
        step(info, again, params, g, grads[0])
    return params, state_of(again)


def plainest(kwargs):
    """One tensor after another."""
    return {k: v for k, v in kwargs.items() if k not in ("fused", "foreach")}


@pytest.mark.parametrize(("info", "kwargs"), configurations())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_optimizer(info, kwargs, dtype):
    with capturable_anywhere():
        expected = outcome(train, info, plainest(kwargs), dtype, "cpu")
    # sums of two sparse tensors are the CPU's
    with torch.tpu.set_cpu_fallback("silent") if info.only_supports_sparse_grads else contextlib.nullcontext():
        actual = outcome(train, info, kwargs, dtype, "tpu")
    if isinstance(expected, Exception):
        pytest.skip(f"the CPU refuses: {expected}")
    assert not isinstance(actual, Exception), actual
    if info.step_requires_closure:  # what it remembers of earlier steps are differences of numbers close to each other
        expected, actual = (expected[0], []), (actual[0], [])
    tolerance = CLOSURE_TOLERANCE[dtype] if info.step_requires_closure else TOLERANCE.get(dtype, {})
    found = difference(actual[0], expected[0], **tolerance)
    assert not found, found
    for a, e in zip(actual[1], expected[1], strict=True):
        found = difference([a[k] for k in e], list(e.values()), check_dtype=False, **TOLERANCE.get(dtype, {}))
        assert not found, found


@pytest.mark.parametrize("info", [pytest.param(i, id=i.optim_cls.__name__) for i in optim_db if i.supports_complex])
def test_complex_parameters(info):
    expected = outcome(train, info, {}, torch.complex64, "cpu")
    actual = outcome(train, info, {}, torch.complex64, "tpu")
    found = difference(actual, expected)
    assert not found, found


@pytest.mark.parametrize("info", [pytest.param(i, id=i.optim_cls.__name__) for i in optim_db if "differentiable" in i.supported_impls])
def test_gradients_through_a_step(info):
    def through(device):
        params, grads = made(info, torch.float64, device)
        leaves = [p for p in params if p.numel()]
        tracked = [p.clone() for p in leaves]
        given = [g.clone().requires_grad_() for g, p in zip(grads[0], params, strict=True) if p.numel()]
        optimizer = info.optim_cls(tracked, differentiable=True)
        for p, g in zip(tracked, given, strict=True):
            p.grad = g * 1
        optimizer.step()
        optimizer.step()
        return torch.autograd.grad([p.sin().sum() for p in tracked], [*leaves, *given], allow_unused=True)

    found = difference(outcome(through, "tpu"), outcome(through, "cpu"))
    assert not found, found


@pytest.mark.parametrize("info", [pytest.param(i, id=i.optim_cls.__name__) for i in optim_db])
def test_errors_are_the_cpus(info):
    for case in info.optim_error_inputs_func("cpu", torch.float32):
        given = case.optimizer_error_input

        def make(device):
            def moved(p):
                return p.detach().to(device).requires_grad_(p.requires_grad) if isinstance(p, torch.Tensor) else p
            params = given.params
            if isinstance(params, list) and params and all(isinstance(p, torch.Tensor) for p in params):
                params = [moved(p) for p in params]
            return info.optim_cls(params, **given.kwargs)

        expected, actual = outcome(make, "cpu"), outcome(make, "tpu")
        assert type(actual) is type(expected), (given.desc, actual, expected)
        if isinstance(expected, Exception):
            assert str(actual) == str(expected)


def test_the_database_is_all_of_torch_optim():
    known = {info.optim_cls for info in optim_db}
    there = {c for _, c in inspect.getmembers(torch.optim, inspect.isclass) if issubclass(c, torch.optim.Optimizer)}
    assert there - {torch.optim.Optimizer} == known

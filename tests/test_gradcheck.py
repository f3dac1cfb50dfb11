"""Derivatives of every operator of PyTorch's database: first and second ones in float64 against numerical ones where these hold on
the CPU; of complex numbers, and in forward mode, against the CPU's."""

import contextlib
import itertools
import re

import pytest
import torch
from database import difference, named, outcome, part, twins
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

SAMPLES = 3
# Each call draws anew, or attends with dropout.
RANDOM = re.compile(
    r"rand|dropout|bernoulli|multinomial|normal$|normal_|cauchy|exponential|geometric|uniform|empty|rrelu|_lowrank|fractional"
    r"|scaled_dot|multi_head"
)
# Sparse results, whose gradients need operators that run on the CPU; casts, whose numerical derivatives are chance.
LEFT_OUT = re.compile(r"^(sparse_mm_reduce|to_sparse|float|cfloat)$")
ROWS = [
    op
    for op in op_db
    if op.supports_autograd and op.supports_dtype(torch.float64, "cpu")
    if not RANDOM.search(op.formatted_name) and not LEFT_OUT.match(op.formatted_name)
]


def differentiable(value):
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor) and t.requires_grad]


def check(op, sample, device, which):
    """Raises what gradcheck raises. False: nothing depends on anything."""
    args, kwargs = twins(((sample.input, *sample.args), sample.kwargs), device)
    leaves = differentiable((args, kwargs))
    if not leaves:
        return False

    def function(*given):
        place = dict(zip(map(id, leaves), given, strict=True))
        a, k = tree_map(lambda v: place.get(id(v), v) if isinstance(v, torch.Tensor) else v, (args, kwargs))
        result = op(*a, **k)
        if sample.output_process_fn_grad:
            result = sample.output_process_fn_grad(result)
        return tuple(t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex()))

    return which(function, tuple(leaves), fast_mode=True, check_batched_grad=False, atol=1e-4, rtol=1e-3, nondet_tol=1e-9)


@pytest.mark.parametrize("op", named(part(ROWS, 29)))
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("native")
def test_derivatives(op):
    for sample in itertools.islice(op.sample_inputs("cpu", torch.float64, requires_grad=True), SAMPLES):
        for which in [gradcheck, *([gradgradcheck] if op.supports_gradgrad else [])]:
            try:
                holds = check(op, sample, "cpu", which)
            except Exception:  # noqa: BLE001 - where the CPU's derivatives don't hold there is nothing to compare with
                continue
            assert not holds or check(op, sample, "tpu", which)


def numbers(t):
    """The same random numbers on both devices."""
    return torch.randn(t.shape, dtype=t.dtype, generator=torch.Generator().manual_seed(t.numel())).to(t.device)


def results(op, sample, args, kwargs):
    result = op(*args, **kwargs)
    return sample.output_process_fn_grad(result) if sample.output_process_fn_grad else result


def forward(op, sample, device):
    """Results and their tangents."""
    def dual(t):
        return forward_ad.make_dual(t.detach(), numbers(t)) if isinstance(t, torch.Tensor) and t.requires_grad else t

    args, kwargs = tree_map(dual, twins(((sample.input, *sample.args), sample.kwargs), device))
    with torch.no_grad():
        found = [forward_ad.unpack_dual(t) for t in tree_leaves(results(op, sample, args, kwargs)) if isinstance(t, torch.Tensor)]
    return [t.cpu() if t is not None else t for pair in found for t in pair]


def backward(op, sample, device):
    args, kwargs = twins(((sample.input, *sample.args), sample.kwargs), device)
    leaves = differentiable((args, kwargs))
    ends = differentiable(results(op, sample, args, kwargs))
    if not leaves or not ends:
        return []
    return torch.autograd.grad(sum((t * numbers(t)).abs().square().sum() for t in ends), leaves, allow_unused=True)


def cases():
    for way, dtype, op in itertools.product([forward, backward], [torch.float64, torch.complex128], op_db):
        can = op.supports_forward_ad if way is forward else op.supports_autograd
        if can and op.supports_dtype(dtype, "cpu") and not RANDOM.search(op.formatted_name) and op.name != "chalf":
            yield pytest.param(op, way, dtype, id=f"{op.formatted_name}-{way.__name__}-{str(dtype)[6:]}")


@pytest.mark.parametrize("op,way,dtype", part(cases(), 17))
@pytest.mark.filterwarnings("ignore")
def test_as_on_the_cpu(op, way, dtype):
    with forward_ad.dual_level() if way is forward else contextlib.nullcontext():
        for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=True), SAMPLES):
            expected = outcome(way, op, sample, "cpu")
            if not isinstance(expected, Exception):
                assert not (wrong := difference(outcome(way, op, sample, "tpu"), expected, rtol=1e-5, atol=1e-6)), wrong

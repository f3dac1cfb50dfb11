"""Numerical first and second derivatives in float64, of every operator of PyTorch's database for which they hold on the CPU."""

import itertools
import re

import pytest
import torch
from database import named, part, twins
from torch.autograd import gradcheck, gradgradcheck
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

"""Strides and offsets of results are the CPU's, over PyTorch's operator database and for what users do with formats.

Deferred, since then a call's layouts are known without a program: only where values are compared, something is compiled."""

import itertools
import warnings

import pytest
import torch
from database import EVERYTHING, difference, layout, named, native, outcome, part, twins  # noqa: F401 - native is a fixture
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
MOST = 1000 if EVERYTHING else 12  # samples of an operator

# Operators whose layouts differ, with the reason.
KNOWN: dict[str, str] = {}


def formatted(t):
    return t.detach().contiguous(memory_format=FORMATS.get(t.dim(), torch.contiguous_format)).requires_grad_(t.requires_grad)


def is_formatted(t):
    return isinstance(t, torch.Tensor) and t.layout == torch.strided and t.dim() in FORMATS


def swapped(t):
    """The last two dimensions change places in memory."""
    if t.layout != torch.strided or t.dim() < 2:
        return t
    return t.detach().transpose(-1, -2).contiguous().transpose(-1, -2).requires_grad_(t.requires_grad)


def changed(sample, kind):
    """The sample with other strides. None: it has no tensor that this is about."""
    if kind == "noncontiguous":
        return outcome(sample.noncontiguous)
    if kind == "swapped":
        return sample.transform(lambda t: swapped(t) if isinstance(t, torch.Tensor) else t)
    count = itertools.count()
    chosen = {"all": lambda i: True, "first": lambda i: i == 0, "others": lambda i: i > 0}[kind]
    result = sample.transform(lambda t: formatted(t) if is_formatted(t) and chosen(next(count)) else t)
    seen = next(count)
    return result if seen > (0 if kind == "all" else 1) else None


def run(op, args, kwargs, backward):
    result = op(*args, **kwargs)
    outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not backward or not outputs or not inputs:
        return result, ()
    return result, torch.autograd.grad(outputs, inputs, [torch.ones_like(t) for t in outputs], allow_unused=True)


def sweep(op, kind, values=False):
    """What differs, a line for each call."""
    dtype = torch.float32 if torch.float32 in op.dtypes else min(op.dtypes, key=str, default=None)
    backward = op.supports_autograd and dtype == torch.float32
    samples = outcome(lambda: list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=backward), MOST)))
    for i, sample in enumerate([] if dtype is None or isinstance(samples, Exception) else samples):
        given = sample if kind == "plain" else changed(sample, kind)
        if given is None or isinstance(given, Exception):
            continue
        call = (given.input, *given.args), given.kwargs
        there = twins(call)
        expected = outcome(run, op, *call, backward)
        if isinstance(expected, Exception):
            continue
        actual = outcome(run, op, *there, backward)
        where = f"sample {i}, {[(tuple(t.shape), t.stride()) for t in tree_leaves(call) if isinstance(t, torch.Tensor)][:4]}"
        if isinstance(actual, Exception):
            yield f"{where}: {type(actual).__name__} {str(actual).splitlines()[0][:200]}"
            continue
        for what, a, e in zip(("result", "gradient"), map(layout, actual), map(layout, expected), strict=True):
            for x, y in zip(a, e, strict=False):
                if x != y:
                    yield f"{where}: {what} {x}, on the CPU {y}"
            if len(a) != len(e):
                yield f"{where}: {len(a)} {what}s, on the CPU {len(e)}"
        if values:
            found = difference(actual, expected, rtol=1e-3, atol=1e-3)
            if found:
                yield f"{where}: {found}"


KINDS = "plain", "noncontiguous", "swapped", "all", "first", "others"


@pytest.mark.parametrize("op", named(part(op_db, 8)))
@pytest.mark.filterwarnings("ignore")
def test_layouts(op):
    with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):
        found = [f"{kind}: {line}" for kind in KINDS for line in sweep(op, kind)]
    assert not found or op.formatted_name in KNOWN, "\n".join(found)


if __name__ == "__main__":
    import sys
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.tpu.set_cpu_fallback("error")
    kinds, only = sys.argv[1].split(","), sys.argv[2:]
    MOST = 40
    with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):
        for op in op_db:
            if only and op.formatted_name not in only:
                continue
            torch.manual_seed(0)
            for kind in kinds:
                for line in itertools.islice(sweep(op, kind), 1000 if only else 4):
                    print(op.formatted_name, kind, line[:400], flush=True)
    print("DONE")

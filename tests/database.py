"""What the tests over PyTorch's databases share: the same arguments on both devices, and how results differ."""

import os

import pytest
import torch
from operator_database import is_as_near
from torch.utils._pytree import tree_leaves, tree_map

EVERYTHING = bool(os.environ.get("TORCH_TPU_TEST_EVERYTHING"))
FLOATS = torch.float32, torch.float64, torch.bfloat16, torch.float16


def part(items, share):
    """All of them, or every `share`-th for a run that has to be short."""
    items = list(items)
    return items if EVERYTHING else items[::share]


def named(infos):
    """Rows of a database as parameters of a test."""
    return [pytest.param(info, id=getattr(info, "formatted_name", info.name)) for info in infos]


def twin(t, device="tpu"):
    """The tensor on another device, laid out in its storage exactly as it is."""
    if not isinstance(t, torch.Tensor) or t.layout != torch.strided or isinstance(t, torch.nn.Parameter):
        return t.detach().to(device).requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t
    plain = t.detach()
    plain = plain.conj() if plain.is_conj() else plain
    flat = torch.empty(0, dtype=t.dtype).set_(plain.untyped_storage()).to(device)
    moved = flat.as_strided(t.shape, t.stride(), t.storage_offset())
    return (moved.conj() if t.is_conj() else moved).requires_grad_(t.requires_grad)


def twins(value, device="tpu"):
    """The value with every tensor in it moved, one that is there twice once, and every mention of the CPU."""
    known = {}

    def moved(leaf):
        if isinstance(leaf, torch.Tensor):
            if id(leaf) not in known:
                known[id(leaf)] = twin(leaf, device)
            return known[id(leaf)]
        if isinstance(leaf, torch.device):
            return torch.device(device)
        return device if isinstance(leaf, str) and leaf == "cpu" else leaf

    return tree_map(moved, value)


def outcome(function, *args, **kwargs):
    """What it returns, or the exception that it raises."""
    try:
        return function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - both devices must refuse
        return error


def layout(value):
    """Shape, dtype, strides and offset of every tensor in it."""
    return [(tuple(t.shape), t.dtype, t.stride(), t.storage_offset()) if t.layout == torch.strided else t.layout
            for t in tree_leaves(value) if isinstance(t, torch.Tensor)]


def telling(layouts):
    """Layouts without what addresses nothing: strides and offsets of empty tensors, strides of dimensions of size 1."""
    def kept(shape, dtype, strides, offset):
        return (shape, dtype) if 0 in shape else (shape, dtype, [s for s, n in zip(strides, shape, strict=True) if n != 1], offset)

    return [kept(*one) if isinstance(one, tuple) else one for one in layouts]


CHAIN = 4  # a module is a chain of operators: its errors may differ by more from the CPU's than those of one


def difference(actual, expected, exact=None, **tolerance):
    """What is wrong with the values. None: nothing. ``exact()`` is the same in higher precision."""
    if isinstance(actual, Exception) and isinstance(expected, Exception):
        alike = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
        return None if alike else f"{actual!r}, on the CPU {expected!r}"
    if isinstance(actual, Exception):
        return f"{actual!r}, which the CPU does"
    if isinstance(expected, Exception):
        return f"done, where the CPU raises {expected!r}"
    a, e = tree_leaves(actual), tree_leaves(expected)
    if len(a) != len(e):
        return f"{len(a)} results, not {len(e)}"
    for k, (x, y) in enumerate(zip(a, e, strict=True)):
        if not isinstance(y, torch.Tensor):
            if x != y and not (x != x and y != y):
                return f"{x} is not {y}"
            continue
        if y.layout != torch.strided:
            continue
        try:
            torch.testing.assert_close(x.detach().cpu(), y.detach(), equal_nan=True, **tolerance)
        except AssertionError as error:
            wide = tree_leaves(exact()) if exact else []
            if len(wide) == len(e) and is_as_near(x, y, wide[k], CHAIN):
                continue
            return " ".join(str(error).split())[:300]
    return None

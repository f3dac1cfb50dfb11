"""Graphs whose sizes vary: one program for every size up to a bound.

A graph's symbolic sizes (``s0``) get numbers that stand for them, large primes. The graph is captured with placeholders of
those sizes, so that PyTorch's own arithmetic on sizes keeps them recognisable: ``4 * s0`` is four times the prime. The core
knows them again in every call, and makes programs that take the sizes at run time. That works for sums and products; a
graph that divides sizes, or compares them, gets a program for each size instead.
"""

import operator
from typing import Any

import sympy
import torch
from torch import fx
from torch.utils._sympy.numbers import int_oo

from torch_tpu import _C

_aten = torch.ops.aten
_log = torch._logging.getArtifactLogger("torch.tpu.compile", "graph_breaks")
ASSERTIONS = {_aten._assert_scalar.default, _aten._assert_async.msg, _aten._assert_tensor_metadata.default,
              _aten.sym_constrain_range.default, _aten.sym_constrain_range_for_size.default}
_ARITHMETIC = {operator.add, operator.sub, operator.mul, operator.neg, operator.getitem, _aten.sym_size.int,
               _aten.sym_numel.default, _aten.sym_stride.int, _aten.sym_storage_offset.default}
_MOST_BOUND = 1 << 24
_LEAST_SYMBOL, _MOST_SYMBOL, _MOST_DIFFERENCE = 1 << 25, 1 << 62, 4096  # see csrc/hlo/symbol.c


def _expression(number: Any) -> sympy.Expr:
    return number.node.expr if isinstance(number, torch.SymInt) else sympy.Integer(number)


def _is_plain(number: Any) -> bool:
    """A sum of products of sizes."""
    e = _expression(number)
    return e.is_polynomial() and all(c.is_Integer for c in sympy.Poly(e).coeffs()) if e.free_symbols else True


def _tensors(value: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def _layout(t: torch.Tensor) -> tuple[Any, ...]:
    return *t.shape, *t.stride(), t.storage_offset()


def _is_symbolic(value: Any) -> bool:
    return any(isinstance(n, torch.SymInt) for t in _tensors(value) for n in _layout(t))


def _is_known(node: fx.Node) -> bool:
    """Can the node be captured with symbols for sizes? A number that is known must not look like one of them."""
    value = node.meta.get("val")
    numbers = [*torch.utils._pytree.tree_leaves((node.args, node.kwargs)), *(n for t in _tensors(value) for n in _layout(t))]
    if any(type(n) is int and abs(n) < 1 << 63 and _C._Capture.is_symbolic(n) for n in numbers):
        return False
    if isinstance(value, torch.SymInt | int) and node.op == "call_function":
        return node.target in _ARITHMETIC and _is_plain(value)
    if isinstance(value, torch.SymBool | torch.SymFloat | bool | float) and node.op == "call_function":
        return all(u.target in ASSERTIONS for u in node.users)
    for t in _tensors(value):
        if _is_symbolic(t) and t.device.type != "tpu":
            return False
        if not all(_is_plain(n) for n in t.shape):
            return False
    return True


def slice_with_symbols(x: torch.Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> torch.Tensor:
    """``aten.slice`` where sizes may be symbols. PyTorch cuts ``end`` to the size, which it can't do for a symbol."""

    def is_symbol(number: int | None) -> bool:
        return number is not None and _LEAST_SYMBOL < abs(number) < _MOST_SYMBOL

    size = x.shape[dim]
    if not (is_symbol(start) or is_symbol(end)):
        return _aten.slice.Tensor(x, dim, start, end, step)
    if not is_symbol(size):  # the guards know that there are as many
        return x.index_select(dim, torch.arange(start or 0, size if end is None else end, step, device=x.device))
    if any(is_symbol(n) and abs(n - size) > _MOST_DIFFERENCE for n in (start, end)):
        raise NotImplementedError(f"a slice from {start} to {end} of {size} elements: the sizes have nothing in common")
    return _aten.slice.Tensor(x, dim, start, end, step)


class Sizes:
    """The symbolic sizes of a graph's arguments.

    Which of them vary: those that were marked with a bound; all, if they are one or two; else (``dynamic=True`` makes a symbol
    of every size) those that have changed from one call without a program to another.
    """

    def __init__(self, arguments: list[Any], symbols: list[sympy.Symbol], shape_env: Any):
        self.arguments = arguments  # fake tensors, SymInts, anything else
        self.shape_env = shape_env
        self.last: dict[sympy.Symbol, int] = {}
        self.symbols = symbols
        bounded = {s for s in symbols if self._upper(s)}
        self.varying = bounded or (set(symbols) if len(symbols) <= 2 else set())

    @classmethod
    def of(cls, module: fx.GraphModule) -> "Sizes | None":
        """None if the graph has no such sizes, or uses them in a way that has no form."""
        arguments = [n.meta.get("val") for n in module.graph.find_nodes(op="placeholder")]
        found: dict[sympy.Symbol, None] = {}
        shape_env = None
        for a in arguments:
            for n in [a] if isinstance(a, torch.SymInt) else [n for t in _tensors(a) for n in t.shape]:
                if isinstance(n, torch.SymInt):
                    shape_env = n.node.shape_env
                    found.update(dict.fromkeys(sorted(_expression(n).free_symbols, key=str)))
        layouts = {symbol for a in arguments for t in _tensors(a) for n in _layout(t) for symbol in _expression(n).free_symbols}
        if not found or not layouts <= set(found):  # a view that begins where data says
            return None
        for n in module.graph.nodes:
            if not _is_known(n):
                _log.debug("sizes that vary get programs of their own: %s = %s, used by %s", n.format_node(), n.meta.get("val"), list(n.users))
                return None
        return cls(arguments, list(found), shape_env)

    def _upper(self, symbol: sympy.Symbol) -> int | None:
        upper = self.shape_env.var_to_range[symbol].upper if symbol in self.shape_env.var_to_range else int_oo
        return int(upper) if upper is not int_oo and upper.is_Integer and int(upper) <= _MOST_BOUND else None

    def _sizes(self, args: list[Any]) -> dict[sympy.Symbol, int]:
        """What the symbols are in this call, as far as an argument tells."""
        found: dict[sympy.Symbol, int] = {}
        for fake, given in zip(self.arguments, args, strict=True):
            pairs = [(fake, given)] if isinstance(fake, torch.SymInt) else []
            if isinstance(fake, torch.Tensor):
                pairs = list(zip(fake.shape, given.shape, strict=True))
            for size, number in pairs:
                if isinstance(size, torch.SymInt) and (e := _expression(size)).is_Symbol:
                    found.setdefault(e, int(number))
        return found

    def _bound(self, symbol: sympy.Symbol, size: int, bucket_size: int) -> int:
        bound = self._upper(symbol) or bucket_size
        while bound < size:
            bound *= 2
        return bound

    def symbolic(self, args: list[Any], bucket_size: int) -> tuple[list[Any], list[int]] | None:
        """For ``_C._Capture``: what each argument's sizes are in symbols, and the bounds. None: nothing varies so far."""
        sizes = self._sizes(args)
        self.varying |= {s for s, n in sizes.items() if self.last.get(s, n) != n}
        self.last = sizes
        varying = [s for s in self.symbols if s in self.varying and 0 < sizes.get(s, 0) <= _MOST_BOUND][: _C._Capture.most_symbols]
        if not varying or len(sizes) < len(self.symbols):
            return None
        numbers = sizes | {s: _C._Capture.symbol(i) for i, s in enumerate(varying)}

        def value(size: Any) -> int:
            return int(_expression(size).subs(numbers))

        def shape(argument: Any) -> Any:
            if isinstance(argument, torch.SymInt):
                return value(argument)
            if isinstance(argument, torch.Tensor) and _is_symbolic(argument):
                return [value(n) for n in argument.shape], [value(n) for n in argument.stride()], value(argument.storage_offset())
            return None

        return [shape(a) for a in self.arguments], [self._bound(s, sizes[s], bucket_size) for s in varying]

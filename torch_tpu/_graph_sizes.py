"""Graphs whose sizes vary: one program for every size up to a bound.

A graph's symbolic sizes (``s0``) get numbers that stand for them, large primes. The graph is captured with placeholders of
those sizes, and every size that it computes is given in the same numbers: ``4 * s0`` is four times the prime. The core knows
them again in every call, and makes programs that take the sizes at run time. That works for the forms that ``_has_form``
names; a graph with another one gets a program for each size instead.
"""

import functools
from typing import Any

import sympy
import torch
from torch import fx
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from torch_tpu import _C
from torch_tpu._nodes import tensors

_aten = torch.ops.aten
_log = torch._logging.getArtifactLogger("torch.tpu.compile", "graph_breaks")
ASSERTIONS = {_aten._assert_scalar.default, _aten._assert_async.msg, _aten._assert_tensor_metadata.default,
              _aten.sym_constrain_range.default, _aten.sym_constrain_range_for_size.default}
_MOST_BOUND = 1 << 24
_LEAST_SYMBOL, _MOST_SYMBOL, _MOST_DIFFERENCE = 1 << 25, 1 << 62, 4096  # see csrc/hlo/symbol.c
_MOST_TIMES = 10000


def _expression(number: Any) -> sympy.Expr:
    return number.node.expr if isinstance(number, torch.SymInt) else sympy.Integer(number)


def _is_sum_of_two(e: sympy.Expr) -> bool:
    return e.is_Add and len(e.args) == 2 and all(a.is_Symbol or (-a).is_Symbol for a in e.args)


@functools.lru_cache(maxsize=4096)
def _has_form(e: sympy.Expr) -> bool:
    """Does the core know the number again? ``times * (s ± t) * u + plus``, or less than that."""
    if not e.free_symbols:
        return bool(e.is_Integer)
    if not e.is_polynomial() or not all(c.is_Integer for c in sympy.Poly(e).coeffs()):
        return False
    plus = e.subs(dict.fromkeys(e.free_symbols, 0))
    times, factors = sympy.factor_list(e - plus)
    units = [f for f, power in factors for _ in range(power)]
    sums = [u for u in units if not u.is_Symbol]
    is_small = plus == 0 or abs(times) <= _MOST_TIMES and abs(plus) <= _MOST_DIFFERENCE
    return len(units) <= 2 and len(sums) <= 1 and all(map(_is_sum_of_two, sums)) and is_small and abs(times) < _LEAST_SYMBOL


def _layout(t: torch.Tensor) -> tuple[Any, ...]:
    return *t.shape, *t.stride(), t.storage_offset()


def _is_symbolic(value: Any) -> bool:
    return any(isinstance(n, torch.SymInt) for t in tensors(value) for n in _layout(t))


def _is_known(node: fx.Node) -> bool:
    """Can the node be captured with symbols for sizes? A number that is known must not look like one of them."""
    value = node.meta.get("val")
    numbers = [*torch.utils._pytree.tree_leaves((node.args, node.kwargs)), *(n for t in tensors(value) for n in _layout(t))]
    if any(type(n) is int and abs(n) < 1 << 63 and _C._Capture.is_symbolic(n) for n in numbers):
        return False
    if isinstance(value, torch.SymBool | torch.SymFloat | bool | float) and node.op == "call_function":
        return all(u.target in ASSERTIONS for u in node.users)
    return all(not _is_symbolic(t) or t.device.type == "tpu" for t in tensors(value))


def slice_with_symbols(length: int, from_end: bool, x: torch.Tensor, dim: int = 0, start: int | None = None, end: int | None = None,
                       step: int = 1) -> torch.Tensor:
    """``aten.slice`` where sizes may be symbols. PyTorch cuts ``start`` and ``end`` to the size, which it can't do for a symbol.

    length: of the result. from_end: start is a symbol, and stands for a negative number.
    """

    def is_symbol(number: int | None) -> bool:
        return number is not None and _LEAST_SYMBOL < abs(number) < _MOST_SYMBOL

    size = x.shape[dim]
    if length == size:
        return _aten.slice.Tensor(x, dim)
    start = start + size if from_end else start
    has_symbol = [n for n in (start, end) if is_symbol(n)]
    if not has_symbol or is_symbol(size) and all(abs(n - size) <= _MOST_DIFFERENCE for n in has_symbol):
        return _aten.slice.Tensor(x, dim, start, end, step)
    start = start or 0
    if start < 0 and not is_symbol(start):
        start += size
    return x.index_select(dim, torch.arange(start, start + length * step, step, device=x.device))


class Numbers:
    """What stands for sizes in one capture."""

    def __init__(self, sizes: dict[sympy.Symbol, int], symbols: dict[sympy.Symbol, int], ranges: dict[sympy.Symbol, ValueRanges]):
        self._sizes = {s: sympy.Integer(n) for s, n in sizes.items() if s not in symbols}
        self._symbols = symbols
        self._ranges = ranges
        self._known: dict[sympy.Expr, int] = {}

    def _decided(self, choice: sympy.Expr) -> sympy.Expr:
        """The argument of a maximum or minimum that it is for all sizes up to the bounds."""
        sign = 1 if type(choice).__name__ == "Max" else -1
        best = choice.args[0]
        for a in choice.args[1:]:
            more = bound_sympy(sign * (a - best), self._ranges)
            if more.lower < 0 < more.upper:
                raise NotImplementedError(f"{choice}: which one it is depends on the sizes")
            best = a if more.lower >= 0 else best
        return best

    def simplified(self, number: Any) -> sympy.Expr:
        e = number if isinstance(number, sympy.Expr) else _expression(number)
        if not e.free_symbols:
            return e
        e = e.xreplace(self._sizes).replace(lambda x: type(x).__name__ in ("Max", "Min"), self._decided)
        return sympy.expand(e)

    def value(self, number: Any) -> int:
        """In the numbers that the core knows again. Raises NotImplementedError for what has no such form."""
        if type(number) is int:
            return number
        if (e := _expression(number) if isinstance(number, torch.SymInt) else number) in self._known:
            return self._known[e]
        self._known[e] = self._value(e)
        return self._known[e]

    def _value(self, number: sympy.Expr) -> int:
        e = self.simplified(number)
        value = int(e.xreplace({s: sympy.Integer(n) for s, n in self._symbols.items()})) if _has_form(e) else _MOST_SYMBOL
        if e.free_symbols and abs(value) >= _MOST_SYMBOL:
            raise NotImplementedError(f"a size of {e}: the core knows times * (s ± t) * u + plus")
        return value

    def check(self, node: fx.Node, result: Any) -> None:
        """PyTorch's own arithmetic with what stands for sizes must have come to the sizes that it came to when tracing."""
        for made, expected in zip(tensors(result), tensors(node.meta.get("val"))):
            if list(made.shape) != [self.value(n) for n in expected.shape]:
                raise NotImplementedError(f"{node.target}: sizes of {tuple(expected.shape)} are not computed as sums and products")

    def is_negative(self, number: Any) -> bool:
        e = self.simplified(number)
        return bool(e.free_symbols) and bound_sympy(e, self._ranges).upper < 0


class Sizes:
    """The symbolic sizes of a graph's arguments.

    Which of them vary: those that were marked with a bound; all, if they are one or two; else (``dynamic=True`` makes a symbol
    of every size) those that have changed from one call without a program to another.
    """

    def __init__(self, arguments: list[Any], symbols: list[sympy.Symbol], expressions: list[sympy.Expr], shape_env: Any):
        self.arguments = arguments  # fake tensors, SymInts, anything else
        self.expressions = expressions  # all sizes of the graph
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
            for n in [a] if isinstance(a, torch.SymInt) else [n for t in tensors(a) for n in t.shape]:
                if isinstance(n, torch.SymInt):
                    shape_env = n.node.shape_env
                    found.update(dict.fromkeys(sorted(_expression(n).free_symbols, key=str)))
        layouts = {symbol for a in arguments for t in tensors(a) for n in _layout(t) for symbol in _expression(n).free_symbols}
        if not found or not layouts <= set(found):  # a view that begins where data says
            return None
        expressions: dict[sympy.Expr, None] = {}
        for n in module.graph.nodes:
            value = n.meta.get("val")
            made = [value] if isinstance(value, torch.SymInt) else [size for t in tensors(value) for size in _layout(t)]
            expressions.update(dict.fromkeys(_expression(size) for size in made if isinstance(size, torch.SymInt)))
            if not _is_known(n) or any(e.free_symbols - found.keys() for e in expressions):
                _log.debug("sizes that vary get programs of their own: %s = %s, used by %s", n.format_node(), value, list(n.users))
                return None
        return cls(arguments, list(found), list(expressions), shape_env)

    def _upper(self, symbol: sympy.Symbol) -> int | None:
        upper = self.shape_env.var_to_range[symbol].upper if symbol in self.shape_env.var_to_range else int_oo
        return int(upper) if upper is not int_oo and upper.is_Integer and int(upper) <= _MOST_BOUND else None

    def _lower(self, symbol: sympy.Symbol) -> int:
        """Guards have seen to it that no size is smaller."""
        lower = self.shape_env.var_to_range[symbol].lower if symbol in self.shape_env.var_to_range else sympy.S.One
        return int(lower) if lower.is_Integer else 1

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

    def symbolic(self, args: list[Any], bucket_size: int) -> tuple[list[Any], list[int], Numbers] | None:
        """For ``_C._Capture``: what each argument's sizes are in symbols, and the bounds; and for all other sizes. None: nothing
        varies so far. Raises NotImplementedError if a size has no form."""
        sizes = self._sizes(args)
        self.varying |= {s for s, n in sizes.items() if self.last.get(s, n) != n}
        self.last = sizes
        varying = [s for s in self.symbols if s in self.varying and 0 < sizes.get(s, 0) <= _MOST_BOUND][: _C._Capture.most_symbols]
        if not varying or len(sizes) < len(self.symbols):
            return None
        bounds = [self._bound(s, sizes[s], bucket_size) for s in varying]
        ranges = {s: ValueRanges(max(1, self._lower(s)), bound) for s, bound in zip(varying, bounds, strict=True)}
        numbers = Numbers(sizes, {s: _C._Capture.symbol(i) for i, s in enumerate(varying)}, ranges)
        for e in self.expressions:
            numbers.value(e)

        def shape(argument: Any) -> Any:
            if isinstance(argument, torch.SymInt):
                return numbers.value(argument)
            if isinstance(argument, torch.Tensor) and _is_symbolic(argument):
                return [numbers.value(n) for n in argument.shape], [numbers.value(n) for n in argument.stride()], numbers.value(argument.storage_offset())
            return None

        return [shape(a) for a in self.arguments], bounds, numbers

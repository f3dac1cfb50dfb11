"""``torch.cond``, ``while_loop`` and ``scan`` while a graph is captured: their branches and bodies become parts of its program.

A body runs once, over placeholders for what it is given, between marks in the capture (``tt_capture_if`` and its neighbours in
csrc/eager/graph.h). Nothing is read by the host. What has no such form raises NotImplementedError; the graph is then split there.
"""

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from torch_tpu import _C
from torch_tpu._graph_sizes import ASSERTIONS
from torch_tpu._nodes import is_random, written_by

_aten = torch.ops.aten
_hop = torch.ops.higher_order
_WHOLE = 1 << 62  # an end of a slice that means the tensor's own
_MOST_KNOWN_STEPS = 10000  # of a loop that is followed on the host to learn its length


# ---- bodies -----------------------------------------------------------------------------------------------------------------


def _place(index: Any, size: int) -> torch.Tensor:
    return torch.where(index < 0, index + size, index).reshape(1)


def _select(x: torch.Tensor, dim: int, index: Any) -> torch.Tensor:
    if isinstance(index, int):
        return x.select(dim, index)
    return x.index_select(dim, _place(index, x.shape[dim])).squeeze(dim)


def _select_scatter(x: torch.Tensor, source: torch.Tensor, dim: int, index: Any) -> torch.Tensor:
    if isinstance(index, int):
        return x.select_scatter(source, dim, index)
    return x.index_copy(dim, _place(index, x.shape[dim]), source.unsqueeze(dim))


def _slice(x: torch.Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> torch.Tensor:
    """Of a size that varies only what is counted from its two ends: anything else PyTorch would have to compare with the size."""
    is_symbolic = _C._Capture.is_symbolic
    is_cut = end is not None and 0 <= end < _WHOLE and is_symbolic(x.shape[dim])
    if is_cut or any(n is not None and is_symbolic(n) for n in (start, end)):
        raise NotImplementedError("a part of a size that varies is taken in a branch or loop")
    return _aten.slice.Tensor(x, dim, start, end, step)


def _both(function: Callable) -> Callable:
    return lambda a, b: function(_array(a), _array(b))


_WITH_NUMBERS = {  # what may be given a number that only the device knows, a 0-dim tensor, in place of a Python number
    _aten._local_scalar_dense.default: lambda x: x,
    _aten.select.int: _select,
    _aten.select_copy.int: _select,
    _aten.select_scatter.default: _select_scatter,
    _aten.slice.Tensor: _slice,
    torch.sym_not: lambda x: torch.logical_not(_array(x)),
    torch.sym_float: lambda x: _array(x).double(),
    torch.sym_max: _both(torch.maximum),
    torch.sym_min: _both(torch.minimum),
    operator.floordiv: _both(torch.floor_divide),
}


def _has_number(op: torch._ops.OpOverload, args: tuple) -> bool:
    """Is there one of those where the operator takes a Python number?"""
    return any(isinstance(given, torch.Tensor) and isinstance(a.type, torch.NumberType)
               for a, given in zip(op._schema.arguments, args, strict=False))


class _Body(fx.Interpreter):
    """A body's graph, in which numbers that are computed on the device stand for Python numbers."""

    def __init__(self, module: fx.GraphModule):
        super().__init__(module)
        self.extra_traceback = False

    def run_node(self, n: fx.Node) -> Any:
        self.node = n
        return super().run_node(n)

    def call_function(self, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if target in LOWERED:
            return call(self.node, args, kwargs)
        if target in ASSERTIONS:
            return None
        if target in _WITH_NUMBERS:
            return _WITH_NUMBERS[target](*args, **kwargs)
        if isinstance(target, torch._ops.OpOverload) and target._overloadname == "Scalar" and _has_number(target, args):
            target = target.overloadpacket.Tensor
        if "device" in kwargs:
            kwargs = kwargs | {"device": "tpu"}  # a counter may have been on the CPU
        return super().call_function(target, args, kwargs)


def _listed(out: Any) -> list[Any]:
    return list(out) if isinstance(out, tuple | list) else [out]


def _outputs(body: fx.GraphModule) -> list[Any]:
    return _listed(body.graph.find_nodes(op="output")[0].args[0])


def _run(body: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    return _listed(_Body(body).run(*args) if isinstance(body, fx.GraphModule) else body(*args))


class _Ahead:
    """What a body computes from its last arguments alone: once, before a loop that runs at least once. Compilers find little
    of this, and PyTorch's gradients keep such values for every step."""

    def __init__(self, body: Callable[..., Any], additional: Sequence[Any]):
        self.body, self.env, self.outputs = body, {}, []
        if not isinstance(body, fx.GraphModule) or _written(body):
            return
        places = body.graph.find_nodes(op="placeholder")
        interpreter = _Body(body)
        env = interpreter.env = dict(zip(places[len(places) - len(additional) :], additional, strict=True))
        for n in body.graph.nodes:
            inputs = n.all_input_nodes
            is_call = isinstance(n.target, torch._ops.OpOverload) and inputs and not is_random(n)
            if n.op == "get_attr" or is_call and all(i in env for i in inputs):
                env[n] = self.env[n] = interpreter.run_node(n)
        self.outputs = _outputs(body)

    def run(self, args: Sequence[Any]) -> list[Any]:
        if not self.env:
            return _run(self.body, args)
        return _listed(_Body(self.body).run(*args, initial_env=dict(self.env)))

    def knows(self, i: int) -> bool:
        """Is result i the same in each step?"""
        return bool(self.env) and self.outputs[i] in self.env


def _written(body: Any) -> set[int]:
    """Which of its arguments a body writes to, itself or through views."""
    if not isinstance(body, fx.GraphModule):
        return set()
    places = {n: i for i, n in enumerate(body.graph.find_nodes(op="placeholder"))}
    found = set()
    for given in (given for n in body.graph.nodes if n.op == "call_function" for given in written_by(n)):
        while given.op == "call_function" and given.all_input_nodes:
            given = given.all_input_nodes[0]
        if given in places:
            found.add(places[given])
    return found


# ---- values -----------------------------------------------------------------------------------------------------------------


def _array(value: Any) -> torch.Tensor:
    """On the device, whatever it was: a number, a tensor on the CPU without dimensions."""
    if isinstance(value, bool | int | float):
        dtype = {bool: torch.bool, int: torch.int64, float: torch.float64}[type(value)]
        return torch.full((), value, dtype=dtype, device="tpu")
    if isinstance(value, torch.Tensor) and value.device.type == "tpu":
        return value
    if isinstance(value, torch.Tensor) and not value.dim():
        return torch.ones((), dtype=value.dtype, device="tpu") * value  # a number that each run may give anew
    raise NotImplementedError(f"a branch or loop takes and gives tensors on the device and numbers, got {value!r}")


def _flag(value: Any) -> torch.Tensor:
    flag = _array(value).reshape(())
    return flag if flag.dtype == torch.bool else flag != 0


class _Order:
    """A dense tensor's dimensions as they lie in memory: it travels as an array in that order and comes back as it was."""

    def __init__(self, t: torch.Tensor):
        self.order = sorted(range(t.dim()), key=lambda d: -t.stride(d))
        if not t.permute(self.order).is_contiguous():
            self.order = list(range(t.dim()))
        self.back = sorted(range(t.dim()), key=self.order.__getitem__)

    def pack(self, t: torch.Tensor) -> torch.Tensor:
        return t.permute(self.order)

    def unpack(self, t: torch.Tensor) -> torch.Tensor:
        return t.permute(self.back)


class _Orders:
    """Those of several; fixed by the first tensors that are packed."""

    def __init__(self, values: Sequence[Any]):
        self.orders = [_Order(t) for t in map(_array, values)]

    def pack(self, values: Sequence[Any]) -> list[torch.Tensor]:
        return [o.pack(t) for o, t in zip(self.orders, map(_array, values), strict=True)]

    def unpack(self, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [o.unpack(t) for o, t in zip(self.orders, arrays, strict=True)]


@contextlib.contextmanager
def _block() -> Iterator[None]:
    depth = _C._block_depth()
    try:
        yield
    except BaseException:
        while _C._block_depth() > depth:
            _C._block_drop()
        raise


# ---- a loop whose length is known ---------------------------------------------------------------------------------------------


def _constant(value: Any, placeholders: Sequence[Any]) -> Any:
    """What it is in every run: a number, or a 0-dim tensor on the CPU. None: runs differ, or it isn't known."""
    if isinstance(value, bool | int | float):
        return value
    if not isinstance(value, torch.Tensor) or value.dim() or any(value is p for p in placeholders):
        return None
    try:
        return torch.tensor(value.item(), dtype=value.dtype)
    except RuntimeError:  # it has no contents while a graph is captured
        return None


_UNKNOWN = (KeyError, ValueError, RuntimeError)


class _Closed:
    """The part of a loop that computes from numbers alone, and decides when it ends: a counter, mostly."""

    def __init__(self, condition: fx.GraphModule, body: fx.GraphModule, values: list[Any]):
        self.graphs = [(m, m.graph.find_nodes(op="placeholder"), _outputs(m)) for m in (condition, body)]
        self.values = values  # None: not known

    def _evaluate(self, which: int, wanted: Any, env: dict[fx.Node, Any]) -> Any:
        """A node's value; KeyError if it depends on what is not known."""
        if not isinstance(wanted, fx.Node):
            return wanted
        if wanted in env:
            return env[wanted]
        module, places, _ = self.graphs[which]
        if wanted.op == "get_attr":
            value = getattr(module, wanted.target)
        elif wanted.op != "call_function" or isinstance(wanted.target, torch._ops.HigherOrderOperator):
            raise KeyError(wanted)
        elif wanted.target in (_aten.sym_size.int, _aten.sym_numel.default):
            value = wanted.target(self.given[places.index(wanted.args[0])], *wanted.args[1:])
        else:
            args, kwargs = fx.node.map_arg((wanted.args, wanted.kwargs), lambda n: self._evaluate(which, n, env))
            value = wanted.target(*args, **({**kwargs, "device": "cpu"} if "device" in kwargs else kwargs))
        if isinstance(value, torch.Tensor) and (value.dim() or value.device.type != "cpu"):
            raise KeyError(wanted)
        env[wanted] = value
        return value

    def _step(self, which: int, values: Sequence[Any], wanted: Sequence[int]) -> list[Any]:
        _, places, output = self.graphs[which]
        env = {p: v for p, v in zip(places, values, strict=True) if v is not None}
        return [self._evaluate(which, output[i], env) for i in wanted]

    def _knows(self, i: int) -> bool:
        """Does what is carried at place i follow from what is known?"""
        try:
            self._step(1, self.values, [i])
        except _UNKNOWN:
            return False
        return True

    def follow(self, given: Sequence[Any]) -> tuple[int, list[Any]] | None:
        """How often the body runs, and what is carried in the end as far as that is known. given: the loop's arguments."""
        self.given = given
        carried = len(self.graphs[1][2])
        known = [i for i in range(carried) if self.values[i] is not None]
        while others := [i for i in known if not self._knows(i)]:
            for i in others:
                known.remove(i)
                self.values[i] = None
        values = list(self.values)
        try:
            for steps in range(_MOST_KNOWN_STEPS):
                if not self._step(0, values, [0])[0]:
                    return steps, values[:carried]
                for i, v in zip(known, self._step(1, values, known), strict=True):
                    values[i] = v
        except _UNKNOWN:
            pass
        return None


def _known_end(condition: Any, body: Any, given: Sequence[Any], placeholders: Sequence[Any]) -> tuple[int, list[Any]] | None:
    if not (isinstance(condition, fx.GraphModule) and isinstance(body, fx.GraphModule)):
        return None
    return _Closed(condition, body, [_constant(v, placeholders) for v in given]).follow(given)


# ---- the operators ------------------------------------------------------------------------------------------------------------


def _number_of_tensors(place: int) -> NotImplementedError:
    return NotImplementedError(f"result {place} of a branch or loop is a Python number that depends on tensors")


def cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: Sequence[Any] = (), *,
         used: set[int] | None = None) -> tuple[Any, ...]:
    """``torch.ops.higher_order.cond``. An operand that a branch writes to is one of the branch's results too.

    used: which results must be Python numbers if they are in the branches; all of them by default. The others come back as
    0-dim tensors.
    """
    if isinstance(pred, bool):
        return tuple(_run(true_fn if pred else false_fn, operands))
    flag = _flag(pred)
    written = sorted(_written(true_fn) | _written(false_fn))

    def branch(body: Callable) -> list[Any]:
        given = [x.clone() if i in written else x for i, x in enumerate(operands)]
        return [*_run(body, given), *(given[i] for i in written)]

    with _block():
        _C._block_if(flag)
        results = branch(true_fn)
        made = [i for i, r in enumerate(results) if r is not None]
        orders = _Orders([results[i] for i in made])
        _C._block_else(orders.pack([results[i] for i in made]))
        others = branch(false_fn)
        if [i for i, r in enumerate(others) if r is not None] != made:
            raise NotImplementedError("the branches of cond() give tensors at different places")
        arrays = orders.unpack(_C._block_close(orders.pack([others[i] for i in made])))
    for i, t in zip(made, arrays, strict=True):
        is_number = not isinstance(results[i], torch.Tensor) and (used is None or i in used)
        if is_number and results[i] != others[i]:
            raise _number_of_tensors(i)
        results[i] = results[i] if is_number else t
    for i, t in zip(written, results[len(results) - len(written) :], strict=True):
        operands[i].copy_(t)
    return tuple(results[: len(results) - len(written)])


def while_loop(condition: Callable, body: Callable, carried: Sequence[Any], additional: Sequence[Any] = (), *,
               mutated_arg_indices: str = "", used: set[int] | None = None, placeholders: Sequence[Any] = ()) -> tuple[Any, ...]:
    """``torch.ops.higher_order.while_loop``. What is written to is carried too.

    used: which results that are Python numbers must come back as such, and so must be known now; all of them by default. The
    others come back as 0-dim tensors. placeholders: what differs from run to run.
    """
    count = len(carried)
    written = sorted(i - count for i in {int(i) for i in mutated_arg_indices.split(",") if i} | _written(body))
    if _written(condition) or any(i < 0 for i in written):
        raise NotImplementedError("a loop writes to what it carries, or in its condition")
    values = [*carried, *(additional[i] for i in written)]
    orders = _Orders(values)

    def part(function: Callable, seen: Sequence[torch.Tensor]) -> tuple[list[Any], list[Any]]:
        given = list(additional)
        for k, i in enumerate(written):
            given[i] = seen[count + k].clone()
        return _run(function, [*seen[:count], *given]), [given[i] for i in written]

    with _block():
        seen = orders.unpack(_C._block_while(orders.pack(values)))
        (goes_on,), _ = part(condition, seen)
        _C._block_do(_flag(goes_on))
        results, rewritten = part(body, seen)
        arrays = orders.unpack(_C._block_close(orders.pack([*results, *rewritten])))
    for k, i in enumerate(written):
        additional[i].copy_(arrays[count + k])
    numbers = [i for i in range(count) if not isinstance(carried[i], torch.Tensor) and (used is None or i in used)]
    if numbers:
        end = _known_end(condition, body, [*carried, *additional], placeholders)
        for i in numbers:
            if end is None or end[1][i] is None:
                raise _number_of_tensors(i)
            arrays[i] = end[1][i]
    return tuple(arrays[:count])


def scan(combine: Callable, init: Sequence[torch.Tensor], xs: Sequence[torch.Tensor], additional: Sequence[Any] = ()) -> tuple[Any, ...]:
    """``torch.ops.higher_order.scan``: what is carried in the end, then what each step gives, along dimension 0."""
    return tuple(_for(xs[0].shape[0], combine, init, xs, additional, len(init)))


def _for(steps: int, body: Callable, carried: Sequence[Any], xs: Sequence[torch.Tensor], additional: Sequence[Any],
         first: int) -> list[Any]:
    """A loop of so many steps: what is carried in the end, then from result ``first`` on what each step gives."""
    count = len(carried)
    orders = _Orders(carried)
    ahead = _Ahead(body, additional)
    with _block():
        seen = _C._block_for(steps, count, [*orders.pack(carried), *xs])
        results = ahead.run([*orders.unpack(seen[:count]), *seen[count:], *additional])
        parts = [_array(results[i]) for i in range(first, len(results)) if not ahead.knows(i)]
        arrays = _C._block_close([*orders.pack(results[:count]), *parts], steps, count)
    out, parts = orders.unpack(arrays[:count]), arrays[count:]
    for i in range(first, len(results)):
        same = _array(results[i]) if ahead.knows(i) else None
        out.append(parts.pop(0) if same is None else same.expand(steps, *same.shape).contiguous())
    return out


def stacked_while_loop(condition: Callable, body: Callable, carried: Sequence[Any], additional: Sequence[Any] = (), *,
                       placeholders: Sequence[Any] = ()) -> tuple[Any, ...]:
    """``while_loop_stack_output``, of which gradients are made: what is carried after each iteration, along dimension 0."""
    end = _known_end(condition, body, [*carried, *additional], placeholders)
    if end is None or not end[0]:
        raise NotImplementedError("the gradient of a loop whose number of iterations depends on tensors, or is none")
    return tuple(_for(end[0], body, carried, [], additional, 0)[len(carried) :])


LOWERED: dict[Any, Callable[..., Any]] = {_hop.cond: cond, _hop.while_loop: while_loop, _hop.scan: scan,
                                          _hop.while_loop_stack_output: stacked_while_loop}


def draws_unknown(node: fx.Node, counted: bool = True) -> bool:
    """Are random numbers drawn in a branch, or in a loop whose length isn't known, in this one or inside of it?"""
    counted = counted and node.target in (_hop.scan, _hop.while_loop_stack_output)
    bodies = [getattr(node.graph.owning_module, n.target) for n in node.all_input_nodes if n.op == "get_attr"]
    inside = [n for body in bodies if isinstance(body, fx.GraphModule) for n in body.graph.nodes if n.op == "call_function"]
    return any(draws_unknown(n, counted) if n.target in LOWERED else is_random(n) and not counted for n in inside)


def is_lowered(node: fx.Node) -> bool:
    """Is it a branch or loop, or one that writes to what it is given, made functional?"""
    op = node.args[0] if node.target is _hop.auto_functionalized_v2 else node.target
    return op in LOWERED


def _used(node: fx.Node) -> set[int]:
    """Which of its results somebody takes."""
    return {u.args[1] for u in node.users if u.target is operator.getitem and u.users}


def call(node: fx.Node, args: tuple, kwargs: dict[str, Any], placeholders: Sequence[Any] | None = None) -> tuple[Any, ...]:
    """Calls the operator of the node. In a body, where there are no ``placeholders``, its numbers stay on the device."""
    if node.target in (_hop.cond, _hop.while_loop):
        kwargs = kwargs | {"used": set() if placeholders is None else _used(node)}
    if node.target in (_hop.while_loop, _hop.while_loop_stack_output):
        kwargs = kwargs | {"placeholders": placeholders or ()}
    return LOWERED[node.target](*args, **kwargs)


def _register(op: Any, lowered: Callable) -> None:
    """Calls that come from elsewhere than a graph's nodes."""
    eager = op.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd]

    @op.py_impl(torch._C.DispatchKey.PrivateUse1)
    def _(*args: Any, **kwargs: Any) -> Any:
        return (eager if _C._block_depth() < 0 else lowered)(*args, **kwargs)


for _op, _lowered in LOWERED.items():
    _register(_op, _lowered)

"""Runs FX graphs of ATen operators as programs: what ``torch.compile(backend="tpu")`` hands over after autograd.

A graph is run once on placeholders, while the core captures what is dispatched; from then on it is one program for those
sizes. What needs data on the host (``item``, a shape that depends on data, an operator without a lowering) can't be part of
a program: the graph is split there, and that part runs operator by operator.
"""

import logging
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._prims import rng_prims
from torch._dynamo.utils import counters
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._python_dispatch import _disable_current_modes

from torch_tpu import _C, _control
from torch_tpu._graph_host import with_vectors
from torch_tpu._graph_sizes import ASSERTIONS, Numbers, Sizes, slice_with_symbols
from torch_tpu._nodes import is_random, storages, tensors, written_by

# Below torch, where TORCH_LOGS finds them: TORCH_LOGS=graph_breaks tells where graphs are split, output_code what is compiled.
log = logging.getLogger("torch.tpu.compile")
_split_log = torch._logging.getArtifactLogger("torch.tpu.compile", "graph_breaks")
_code_log = torch._logging.getArtifactLogger("torch.tpu.compile", "output_code")

_MOST_SPLITS = 64  # parts of a graph that were found only by trying; then all of it runs operator by operator


def rng_position() -> Any:
    """In a graph: where its random draws are. What ``rng_seek`` takes."""
    return torch.tpu.get_rng_state()


def rng_seek(position: Any) -> None:
    """In a graph: the next random draws are those that came after the position."""
    torch.tpu.set_rng_state(position)


_POSITIONS = (rng_position, rng_seek)


class CaptureError(Exception):
    """An operator can't be part of a program; the cause says why."""

    def __init__(self, node: fx.Node):
        super().__init__(f"{node.target} at {node.name}")
        self.node = node


class _Interpreter(fx.Interpreter):
    """Remembers which node it was at, and knows what a checkpoint does with random numbers."""

    node: fx.Node

    def __init__(self, module: fx.GraphModule, capture: Any = None, numbers: Numbers | None = None):
        super().__init__(module)
        self.extra_traceback = False
        self.capture = capture
        self.numbers = numbers

    def run_node(self, n: fx.Node) -> Any:
        self.node = n
        if self.numbers and n.op == "call_function" and type(n.meta.get("val")) in (int, torch.SymInt):
            return self.numbers.value(n.meta["val"])
        result = super().run_node(n)
        if self.numbers and n.op == "call_function":
            self.numbers.check(n, result)
        return result

    def call_function(self, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if self.numbers and target in ASSERTIONS:
            return None  # of numbers that are symbols: guards have seen the sizes
        if self.numbers and target is torch.ops.aten.slice.Tensor:
            return self._slice(args, kwargs)
        if self.capture and target in _POSITIONS:
            return self._position(*args)
        if self.capture and target in _control.LOWERED:
            return _control.call(self.node, args, kwargs, self.capture.placeholders)
        if target is rng_prims.run_and_save_rng_state:
            state = self.capture.save_state() if self.capture else torch.tpu.get_rng_state()
            return state, args[0](*args[1:], **kwargs)
        if target is rng_prims.run_with_rng_state:
            return self._run_with_state(args[0], args[1], args[2:], kwargs)
        return super().call_function(target, args, kwargs)

    def _position(self, position: Any = None) -> Any:
        if position is None:
            return self.capture, self.capture.next_draw
        if not isinstance(position, tuple) or position[0] is not self.capture:
            raise NotImplementedError("random draws are repeated in another part of the graph than they were made in")
        self.capture.next_draw = position[1]
        return None

    def _slice(self, args: tuple, kwargs: dict[str, Any]) -> torch.Tensor:
        dim = args[1] if len(args) > 1 else 0
        start = self.node.args[2] if len(args) > 2 else None
        is_negative = isinstance(start, fx.Node) and self.numbers.is_negative(start.meta["val"])
        return slice_with_symbols(self.numbers.value(self.node.meta["val"].shape[dim]), is_negative, *args, **kwargs)

    def _run_with_state(self, state: torch.Tensor, op: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if self.capture:
            self.capture.use_state(state)
            result = op(*args, **kwargs)
            self.capture.use_state(None)
            return result
        before = torch.tpu.get_rng_state()
        torch.tpu.set_rng_state(state)
        try:
            return op(*args, **kwargs)
        finally:
            torch.tpu.set_rng_state(before)


def _interpret(module: fx.GraphModule, args: Sequence[Any]) -> list[Any]:
    """Operator by operator, on real tensors."""
    with torch.no_grad(), torch._C._DisableAutocast():
        return list(_Interpreter(module).run(*args))


def _call(module: fx.GraphModule, args: Sequence[Any]) -> list[Any]:
    """The same by the module's generated code, which is faster and tells less about failures."""
    with torch.no_grad(), torch._C._DisableAutocast():
        return module.forward(*args)


def _capture(module: fx.GraphModule, args: list[Any], name: str, symbolic: Sequence[Any] = (),
             bounds: Sequence[int] = (), numbers: Numbers | None = None) -> Any:
    """Runs the graph on placeholders for ``args`` and returns what was captured. With bounds, see ``_graph_sizes``."""
    capture = _C._Capture(args, symbolic=list(symbolic), bounds=list(bounds))
    interpreter = _Interpreter(module, capture, numbers)
    try:
        with torch.no_grad(), torch._C._DisableAutocast(), _disable_current_modes():
            results = interpreter.run(*capture.placeholders)
        return capture.end(list(results), name)
    except Exception as error:
        node = getattr(interpreter, "node", None)
        if node is None:
            raise
        raise CaptureError(node) from error
    finally:
        capture.abort()


class Program:
    """One FX graph as programs, one for each combination of sizes, layouts and numbers that it is called with.

    ``function`` is what to call: it takes a list of arguments, which it empties, and returns a list of results.
    """

    def __init__(self, module: fx.GraphModule, name: str, is_async: bool = False,
                 on_compiled: Callable[[Any], None] | None = None, on_failure: Callable[[CaptureError], None] | None = None,
                 bucket_size: int = 128):
        self.module = module
        self.bucket_size = bucket_size
        self.name = name
        self.is_async = is_async
        self.on_compiled = on_compiled
        self.on_failure = on_failure
        self.function = _C._GraphFunction(self._miss)
        self.function._boxed_call = True
        self.pending: list[Any] = []  # being compiled in the background
        self.sizes = Sizes.of(module)  # None: each size gets a program of its own
        self.instead: Callable[[list[Any]], list[Any]] | None = None  # the graph can't be a program: what runs it

    def _captured(self, args: list[Any]) -> Any:
        if self.sizes:
            try:
                if call := self.sizes.symbolic(args, self.bucket_size):
                    graph = _capture(self.module, args, self.name, *call)
                    if not self.is_async:
                        graph.require()
                    counters["tpu"]["bounded"] += 1
                    return graph
            except (CaptureError, RuntimeError) as error:
                _split_log.debug("%s: sizes that vary get programs of their own: %s", self.name, error.__cause__ or error)
                self.sizes = None
        return _capture(self.module, args, self.name)

    def _compile(self, args: list[Any]) -> Any:
        graph = self._captured(args)
        info = graph.info()
        counters["tpu"]["programs"] += 1
        counters["tpu"]["calls"] += info["calls"]
        _code_log.debug("%s: a program of %d calls with %d inputs, %d results; writes %d inputs, in place %d",
                 self.name, info["calls"], info["inputs"], info["results"], info["written"], info["donated"])
        if _code_log.isEnabledFor(logging.DEBUG):
            _code_log.debug("StableHLO of %s:\n%s", self.name, graph.text())
        torch._logging.trace_structured(
            "artifact", metadata_fn=lambda: {"name": f"{self.name}_stablehlo", "encoding": "string"}, payload_fn=graph.text)
        return graph

    def _miss(self, args: list[Any]) -> list[Any]:
        """No program fits. With ``is_async`` the call runs operator by operator while one is made."""
        if self.instead:
            return self.instead(args)
        for graph in [g for g in self.pending if g.is_ready()]:
            self.pending.remove(graph)
            self._add(graph)
            if graph.fits(args):
                return self.function(args)
        if any(g.fits(args) for g in self.pending):
            return self._interpret(args)
        try:
            graph = self._compile(args)
        except CaptureError as error:
            if self.on_failure is None:
                raise
            self.on_failure(error)
            return self._interpret(args)
        if self.is_async:
            graph.begin()
            self.pending.append(graph)
            return self._interpret(args)
        graph.require()
        self._add(graph)
        return self.function(args)

    def _add(self, graph: Any) -> None:
        self.function.add(graph)
        if self.on_compiled:
            self.on_compiled(graph)

    def _interpret(self, args: list[Any]) -> list[Any]:
        counters["tpu"]["interpreted"] += 1
        given = list(args)
        args.clear()
        return _interpret(self.module, given)


# ---- which operators can be part of a program --------------------------------------------------------------------------


def _has_kernel(op: torch._ops.OpOverload) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(has(op.name(), key) for key in ("PrivateUse1", "CompositeExplicitAutograd", "CompositeImplicitAutograd",
                                               "CompositeExplicitAutogradNonFunctional"))


_WITH_STATE = (rng_prims.run_and_save_rng_state, rng_prims.run_with_rng_state)


def _device_of_draw(node: fx.Node) -> str:
    """Where a checkpoint's random operator draws; such nodes do not say what they make."""
    read = [t for n in node.all_input_nodes if "rng_state" not in n.name for t in tensors(n.meta.get("val"))]
    device = node.kwargs.get("device") or (read[0].device if read else "tpu")
    return torch.device(device).type


def _is_random(node: fx.Node) -> bool:
    return node.target in _WITH_STATE or node.target in _POSITIONS or is_random(node)


def _is_state(node: fx.Node) -> bool:
    return node.target is operator.getitem and node.args[0].target in _WITH_STATE and node.args[1] == 0


class _Kinds:
    """What each node of a graph is: ``device`` (part of a program), ``host`` (runs by itself) or ``free`` (either: numbers,
    sizes, constants)."""

    def __init__(self, graph: fx.Graph, failed: set[str]):
        self.of: dict[fx.Node, str] = {}
        self.why: dict[fx.Node, str] = {}
        given = {s for n in graph.find_nodes(op="placeholder") for s in free_unbacked_symbols(n.meta.get("val"))}
        read = {i for n in graph.nodes if _control.is_lowered(n) for i in n.all_input_nodes}
        looped = {s for n in read for s in free_unbacked_symbols(n.meta.get("val"))}
        self.known = given & looped  # sizes that depend on data, and are known when a program is made: of loops in forward
        for node in graph.nodes:
            if node.op in ("call_function", "get_attr"):
                self.of[node] = self._kind(node, failed)

    def _is_constant(self, node: fx.Node) -> bool:
        return node.op == "get_attr" or self.of.get(node) == "free"

    def _kind(self, node: fx.Node, failed: set[str]) -> str:
        if node.op == "get_attr":
            return "free"
        value = node.meta.get("val")
        made = tensors(value) or tensors([n.meta.get("val") for n in written_by(node)])
        if node.name in failed:
            return "host"
        if node.target in _POSITIONS:
            return "device"
        if node.target in _WITH_STATE:
            return "device" if _device_of_draw(node) != "cpu" else "host"
        if _control.is_lowered(node) and any(t.device.type == "tpu" for t in made):
            return self._control(node)
        if str(node.target) == "associative_scan" and made and all(t.device.type == "tpu" for t in made):
            return "device"  # a few calls, whatever its length
        if not isinstance(node.target, torch._ops.OpOverload):
            if made and node.target is not operator.getitem:
                return self._host(node, "it is a higher order operator")
            if node.target is operator.getitem:
                return self.of.get(node.args[0], "free")
            return "free"
        if free_unbacked_symbols(value) - self.known:
            return self._host(node, "the shape or value of its result depends on data")
        read = [n for n in node.all_input_nodes if tensors(n.meta.get("val"))]
        if not made:
            return "free" if all(self._is_constant(n) for n in read) or "sym_" in node.target.name() else "host"
        if all(t.device.type == "cpu" for t in made):
            if not read and not _is_random(node) or read and all(self._is_constant(n) for n in read):
                return "free" if all(u.op != "output" for u in node.users) else "host"
            return "host"
        if not _has_kernel(node.target):
            return self._host(node, "it has no lowering and runs on the CPU")
        for n in read:
            on_cpu = [t for t in tensors(n.meta["val"]) if t.device.type == "cpu"]
            if any(t.dim() for t in on_cpu) and not self._is_constant(n):
                return self._host(node, "it reads a tensor on the CPU")
        return "device"

    def _control(self, node: fx.Node) -> str:
        """A branch or loop. What else may be wrong with it is found by trying."""
        if _control.draws_unknown(node):
            return self._host(node, "it depends on tensors how many random numbers it draws")
        read = [t for n in node.all_input_nodes if n.op != "get_attr" for t in tensors(n.meta.get("val"))]
        if any(t.device.type == "cpu" and t.dim() for t in read):
            return self._host(node, "it reads a tensor on the CPU")
        for user in node.users:
            if user.users and any(t.device.type == "cpu" for t in tensors(user.meta.get("val"))):
                return self._host(node, "it gives a tensor on the CPU")
        self.known |= free_unbacked_symbols(node.meta.get("val"))
        return "device"

    def _host(self, node: fx.Node, why: str) -> str:
        self.why[node] = why
        return "host"


# ---- splitting ------------------------------------------------------------------------------------------------------------


class _Part:
    """Nodes that run together, and the values that they take from and give to others."""

    def __init__(self, is_host: bool):
        self.is_host = is_host
        self.nodes: list[fx.Node] = []
        self.inputs: list[fx.Node] = []
        self.outputs: list[fx.Node] = []
        self.run: Callable[[list[Any]], list[Any]]
        self.take: list[int] = []  # the inputs' places among the values of a run

    def build(self, root: torch.nn.Module) -> fx.GraphModule:
        graph = fx.Graph()
        env: dict[fx.Node, fx.Node] = {}
        for n in self.inputs:
            env[n] = graph.placeholder(n.name)
            env[n].meta = n.meta
        for n in self.nodes:
            env[n] = graph.node_copy(n, env.__getitem__)
        graph.output([env[n] for n in self.outputs])
        return fx.GraphModule(root, graph)


def _levels(graph: fx.Graph, kinds: _Kinds) -> dict[fx.Node, int]:
    """Host parts have even levels, programs odd ones; a node's level is as low as what it reads allows. Who writes comes after those that
    read, and before those that will read; random draws keep their order."""
    level: dict[fx.Node, int] = {}
    last_write: dict[int, int] = {}
    last_use: dict[int, int] = {}
    last_draw = 0
    for node in graph.nodes:
        kind = kinds.of.get(node)
        if kind is None or node.op == "get_attr":
            continue
        used, written = storages(node.all_input_nodes), written_by(node)
        at = max([0, *(level.get(n, 0) for n in node.all_input_nodes), *(last_write.get(s, 0) for s in used)])
        readers = [level[u] for n in written for u in n.users if u in level]
        at = max([at, *readers, *(last_use.get(s, 0) for s in storages(written))])
        if _is_random(node):
            at = max(at, last_draw)
        if kind == "host" and at % 2 or kind == "device" and at % 2 == 0:
            at += 1
        if _is_random(node):
            last_draw = at
        level[node] = at
        last_use.update((s, max(at, last_use.get(s, 0))) for s in used)
        last_write.update((s, at) for s in storages(written))
    return level


def _remade(graph: fx.Graph, kinds: _Kinds) -> set[fx.Node]:
    """Constants, and numbers computed from sizes: each part makes its own. As arguments of a part, constants could not be in a
    program, and sizes not be told from what is computed from them. What is written to is one for all parts."""
    written = {s for node in graph.nodes for s in storages(written_by(node))}
    return {n for n, kind in kinds.of.items() if kind == "free" and (n.op == "get_attr" or not storages([n]) & written)}


def _add_remade(node: fx.Node, remade: set[fx.Node], found: dict[fx.Node, None]) -> None:
    """What the node reads of such, after what that is made from."""
    for n in node.all_input_nodes:
        if n not in found and n in remade:
            _add_remade(n, remade, found)
            found[n] = None


def _split(module: fx.GraphModule, kinds: _Kinds) -> list[_Part]:
    level = _levels(module.graph, kinds)
    remade = _remade(module.graph, kinds)
    parts: dict[int, _Part] = {}
    for node in module.graph.nodes:
        if node in level and (node not in remade or any(u.op == "output" for u in node.users)):
            parts.setdefault(level[node], _Part(level[node] % 2 == 0)).nodes.append(node)
    ordered = [parts[k] for k in sorted(parts)]
    home = {n: part for part in ordered for n in part.nodes}
    for part in ordered:
        nodes: dict[fx.Node, None] = {}
        for node in part.nodes:
            _add_remade(node, remade, nodes)
            nodes[node] = None
        part.outputs = [n for n in part.nodes if any(u.op == "output" or home.get(u) is not part for u in n.users)]
        part.nodes = [*nodes]
        part.inputs = [n for n in dict.fromkeys(n for node in nodes for n in node.all_input_nodes) if n not in nodes]
    return ordered


class Compiled:
    """An FX graph as a function of a list of arguments: one program where that is possible, else parts in turn.

    module: a graph of ATen operators without autograd. Its arguments and results are tensors, numbers or None.
    name: what its programs are called.
    is_async: calls run operator by operator until a program is compiled, in the background.
    on_compiled: called with each captured program when it can run.
    bucket_size: the bound of a size that varies and has none: this, or as often twice that as is needed.
    """

    def __init__(self, module: fx.GraphModule, name: str, is_async: bool = False,
                 on_compiled: Callable[[Any], None] | None = None, bucket_size: int = 128):
        self.module = module
        self.program = Program(module, name, is_async, on_compiled, self._on_failure, bucket_size)
        self.failed: set[str] = set()
        self.parts: list[_Part] = []
        kinds = _Kinds(module.graph, self.failed)
        if "host" in kinds.of.values() or not self._results_are_ours():
            self._split(kinds)

    @property
    def function(self) -> Callable[[list[Any]], list[Any]]:
        """What to call. It empties the list."""
        return self.program.function

    def _results_are_ours(self) -> bool:
        """A program returns no tensor of the CPU."""
        results = self.module.graph.find_nodes(op="output")[0].all_input_nodes
        return not any(t.device.type == "cpu" for n in results if n.op != "placeholder" and not _is_state(n)
                       for t in tensors(n.meta.get("val")))

    def _split(self, kinds: _Kinds) -> None:
        whole = self.program
        for node, why in kinds.why.items():
            _split_log.debug("%s: the graph is split at %s: %s", whole.name, node.target, why)
        self.parts = _split(self.module, kinds)
        for i, part in enumerate(self.parts):
            built = part.build(self.module)
            if part.is_host:
                host = with_vectors(built)
                run = _interpret if any(n.target in _WITH_STATE for n in host.graph.nodes) else _call
                part.run = lambda args, host=host, run=run: run(host, args)
            else:
                part.run = Program(built, f"{whole.name}_part{i}", whole.is_async, whole.on_compiled, self._on_failure,
                                   whole.bucket_size).function
        self._number()
        counters["tpu"]["splits"] += 1
        whole.function.clear()
        whole.instead = self._run_parts

    def _on_failure(self, error: CaptureError) -> None:
        """Found by trying. This call runs operator by operator; the next ones in parts."""
        _split_log.debug("%s: the graph is split at %s: %s", self.program.name, error.node.target, error.__cause__)
        self.failed.add(error.node.name)
        if len(self.failed) > _MOST_SPLITS:
            log.warning("%s: too many operators can't be compiled; the graph runs operator by operator", self.program.name)
            self.failed.update(n.name for n in self.module.graph.nodes)
        self._split(_Kinds(self.module.graph, self.failed))

    def _number(self) -> None:
        """A run keeps its values in a list: the arguments, then what the parts make, one after another."""
        nodes = self.module.graph.nodes
        values = [n for n in nodes if n.op == "placeholder"] + [n for part in self.parts for n in part.outputs]
        place = {n: i for i, n in enumerate(values)}
        for part in self.parts:
            part.take = [place[n] for n in part.inputs]
        results = next(iter(reversed(nodes))).args[0]
        self.results = [place.get(n) if isinstance(n, fx.Node) else None for n in results]
        self.constants = [getattr(self.module, n.target) if isinstance(n, fx.Node) and n.op == "get_attr" else n for n in results]

    def _run_parts(self, args: list[Any]) -> list[Any]:
        values = list(args)
        args.clear()
        parts, results, constants = self.parts, self.results, self.constants  # a part that fails leads to other parts for the next call
        for part in parts:
            values += part.run([values[i] for i in part.take])
        return [constant if i is None else values[i] for i, constant in zip(results, constants, strict=True)]

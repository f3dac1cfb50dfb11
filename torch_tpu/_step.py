"""``torch.tpu.compile_step``: forward, backward and optimizer of a training step as one program.

The step is traced once, on fake tensors, with PyTorch's own autograd and optimizers. Nothing runs meanwhile, and whatever
the trace leaves in modules, gradients and optimizers is put back. The tensors that the step found there are inputs of its
program, looked up anew for each call; what it changed is written to the same places after each.
"""

import contextlib
import gc
import logging
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental import proxy_tensor
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torch_tpu import _graph
from torch_tpu._graph_host import functional_numbers
from torch_tpu._nodes import is_random
from torch_tpu.compile_backend import _decompositions

log = logging.getLogger("torch.tpu.compile")

_MOST_TRACES = 16  # of one step. Then something changes from call to call that ought not to
_MOST_EAGER = 3


class StepError(RuntimeError):
    """A step can't be one program. The message says why, and what to do."""


# ---- places: where tensors are kept between steps -------------------------------------------------------------------------


class _Item:
    """An entry of a dict: a module's parameter or buffer, or an optimizer's state."""

    def __init__(self, store: dict, key: Any):
        self.store, self.key = store, key

    def get(self) -> Any:
        return self.store.get(self.key)

    def set(self, value: Any) -> None:
        self.store[self.key] = value


class _Gradient:
    """The gradient of the tensor at another place."""

    def __init__(self, of: Any):
        self.of = of

    def get(self) -> Any:
        return self.of.get().grad

    def set(self, value: Any) -> None:
        self.of.get().grad = value


class _Fixed:
    """A tensor of the program around the step: always the same one."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor

    def get(self) -> torch.Tensor:
        return self.tensor


class _Rate:
    """An optimizer's learning rate: a number that schedulers change, and a 0-dim CPU tensor to the program."""

    def __init__(self, group: dict[str, Any]):
        self.group, self.value = group, group["lr"]
        self.tensor = torch.tensor(self.value, dtype=torch.float64)

    def get(self) -> torch.Tensor:
        if self.group["lr"] != self.value:
            self.value = self.group["lr"]
            self.tensor.fill_(self.value)
        return self.tensor


class _Leaves(TorchDispatchMode):
    """Sees which tensors that want a gradient a step uses."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, torch.Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        for t in pytree.tree_leaves((args, kwargs)):
            if isinstance(t, torch.Tensor) and t.requires_grad and t.is_leaf:
                self.found[id(t)] = t
        return func(*args, **(kwargs or {}))


class _State:
    """The modules and optimizers that a step uses, found by PyTorch's global hooks while it runs, and other tensors with gradients."""

    def __init__(self) -> None:
        self.others = _Leaves()
        self.modules: dict[int, torch.nn.Module] = {}
        self.optimizers: dict[int, torch.optim.Optimizer] = {}
        self.rates: dict[int, set[Any]] = {}  # the learning rates that a group had

    @contextlib.contextmanager
    def watching(self, before: "_Before | None" = None) -> Iterator[None]:
        """``before`` hears of what is found, before it is used."""

        def see_module(module: torch.nn.Module, _: Any) -> None:
            for m in module.modules() if id(module) not in self.modules else ():
                if id(m) not in self.modules:
                    self.modules[id(m)] = m
                    if before:
                        before.add_module(m)

        def see_optimizer(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            if id(optimizer) not in self.optimizers:
                self.optimizers[id(optimizer)] = optimizer
                if before:
                    before.add_optimizer(optimizer)

        handles = [register_module_forward_pre_hook(see_module),
                   register_optimizer_step_pre_hook(see_optimizer)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def size(self) -> int:
        return len(self.modules) + len(self.optimizers)

    def groups(self) -> list[dict[str, Any]]:
        return [g for o in self.optimizers.values() for g in o.param_groups]

    def see_rates(self) -> None:
        for g in self.groups():
            if type(g.get("lr")) is float:
                self.rates.setdefault(id(g), set()).add(g["lr"])

    def varying_rates(self) -> list[_Rate]:
        """Of groups whose learning rate has changed."""
        self.see_rates()
        return [_Rate(g) for g in self.groups() if type(g.get("lr")) is float and len(self.rates[id(g)]) > 1]


# ---- a trace leaves nothing behind ------------------------------------------------------------------------------------------


class _Before:
    """What there was before a trace."""

    def __init__(self, state: _State):
        self.stores: list[tuple[dict, dict]] = []  # dicts that hold tensors, and copies of them
        self.attributes: list[tuple[dict, dict]] = []
        self.states: list[tuple[torch.optim.Optimizer, set[int]]] = []
        self.gradients: dict[int, tuple[Any, Any]] = {}  # places of leaves, by the leaf's id
        for module in state.modules.values():
            self.add_module(module)
        for optimizer in state.optimizers.values():
            self.add_optimizer(optimizer)
        for leaf in state.others.found.values():
            self.add_leaf(_Fixed(leaf))

    def add_module(self, module: torch.nn.Module) -> None:
        self.stores += [(s, dict(s)) for s in (module._parameters, module._buffers)]
        self.attributes.append((module.__dict__, dict(module.__dict__)))
        for key, p in module._parameters.items():
            if p is not None:
                self.add_leaf(_Item(module._parameters, key))

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self.stores += [(s, dict(s)) for s in (*optimizer.state.values(), *optimizer.param_groups)]
        self.states.append((optimizer, set(map(id, optimizer.state))))
        for p in (p for g in optimizer.param_groups for p in g["params"]):
            self.add_leaf(_Fixed(p))

    def add_leaf(self, place: Any) -> None:
        self.gradients.setdefault(id(place.get()), (place, place.get().grad))

    def places(self) -> dict[int, Any]:
        """Of all tensors that were somewhere, by their ids."""
        found: dict[int, Any] = {key: place for key, (place, _) in self.gradients.items()}
        for store, before in self.stores:
            for key, value in before.items():
                if isinstance(value, torch.Tensor):
                    found.setdefault(id(value), _Item(store, key))
        for place, gradient in self.gradients.values():
            if gradient is not None:
                found[id(gradient)] = _Gradient(place)
        return found

    def changed(self) -> list[Any]:
        """The places that hold something else now."""
        items = [_Item(store, key) for store, before in self.stores for key, value in before.items()
                 if isinstance(value, torch.Tensor) and store.get(key) is not value]
        return items + [_Gradient(place) for place, gradient in self.gradients.values() if place.get().grad is not gradient]

    def has_more_state(self) -> bool:
        """Optimizers make their state in their first step."""
        return (any(set(map(id, o.state)) != keys for o, keys in self.states)
                or any(now.keys() != before.keys() for now, before in self.stores))

    def check_numbers(self) -> None:
        """Raises StepError for what Python computed and a program would not repeat."""
        for now, before in [*self.stores, *self.attributes]:
            for key, value in before.items():
                if isinstance(value, int | float | str) and now.get(key) is not value and now.get(key) != value:
                    raise StepError(f"the step changes {key!r} of a module or an optimizer from {value!r} to {now.get(key)!r}, which its "
                                    "program could not repeat. Do this outside of the step, or keep a tensor there")

    def put_back(self) -> None:
        for now, before in [*self.stores, *self.attributes]:
            now.clear()
            now.update(before)
        for optimizer, keys in self.states:
            for p in [p for p in optimizer.state if id(p) not in keys]:
                del optimizer.state[p]
        for place, gradient in self.gradients.values():
            place.get().grad = gradient


class _Outside(TorchDispatchMode):
    """Tensors from outside of the step are parameters of its graph. Nothing real goes on from here, since fake tensors compute with
    what is real and has one element.

    Who asks for a tensor's value gets an error: it would become a constant of the program.
    """

    supports_higher_order_operators = True
    _reads = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)

    def __init__(self, fake: FakeTensorMode, before: _Before):
        super().__init__()
        self.fake, self.before = fake, before
        self.tensors: list[torch.Tensor] = []
        self.inside: dict[int, torch.Tensor] = {}

    def _parameter(self, t: torch.Tensor) -> torch.Tensor:
        if isinstance(t, FakeTensor):
            return t
        if id(t) not in self.inside:
            tracer = proxy_tensor.get_proxy_mode().tracer
            proxy = tracer.create_proxy("placeholder", f"outside{len(self.tensors)}", (), {})
            self.inside[id(t)] = self.fake.from_tensor(t)
            proxy_tensor.track_tensor_tree(self.inside[id(t)], proxy, constant=None, tracer=tracer)
            self.tensors.append(t)
            if t.requires_grad and t.is_leaf:
                self.before.add_leaf(_Fixed(t))
        return self.inside[id(t)]

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func in self._reads:
            raise StepError("the step reads a tensor's value (by item(), float(), bool(), an if ...), for which its program would have "
                            "to end. Return the tensor, and read it outside of the step")
        if func is not torch.ops.aten.lift_fresh.default:  # a constant
            args, kwargs = pytree.tree_map_only(torch.Tensor, self._parameter, (args, kwargs or {}))
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _compiling() -> Iterator[None]:
    """Optimizers and models do without the values of tensors when PyTorch says that it compiles. The generator's state, which
    checkpoints save and put back, is a place in the graph."""
    flag = torch.compiler._is_compiling_flag
    functions = torch.tpu.get_rng_state, torch.tpu.set_rng_state
    positions: dict[int, Any] = {}

    def create(*args: Any) -> fx.Proxy:
        target = _graph.rng_seek if args else _graph.rng_position
        return proxy_tensor.get_proxy_mode().tracer.create_proxy("call_function", target, args, {})

    def get_rng_state(device: Any = "tpu") -> torch.Tensor:
        state = functions[0](device)
        positions[id(state)] = state, create()
        return state

    def set_rng_state(new_state: torch.Tensor, device: Any = "tpu") -> None:
        if id(new_state) not in positions:
            raise StepError("the step sets the state of the random generator, which its program could not do. Do this outside of the step")
        create(positions[id(new_state)][1])

    torch.compiler._is_compiling_flag = True
    torch.tpu.get_rng_state, torch.tpu.set_rng_state = get_rng_state, set_rng_state
    try:
        with torch._dynamo.config.patch(error_on_nested_fx_trace=False), torch.autograd.set_multithreading_enabled(False):
            yield
    finally:
        torch.compiler._is_compiling_flag = flag
        torch.tpu.get_rng_state, torch.tpu.set_rng_state = functions


@contextlib.contextmanager
def _captured(state: _State, rates: list[_Rate]) -> Iterator[None]:
    """PyTorch's optimizers compute on tensors, learning rates included, when they are told that they are captured."""
    before = [(g, dict(g)) for g in state.groups()]
    for group in state.groups():
        if group.get("capturable") is False:
            group["capturable"] = True
    for rate in rates:
        rate.group["lr"] = rate.tensor
    try:
        yield
    finally:
        for group, values in before:
            group.update(values)


# ---- a trace ----------------------------------------------------------------------------------------------------------------


def _gradient_of(t: torch.Tensor) -> Any:
    """Changes with a leaf's gradient."""
    return (id(t.grad), t.grad._version) if t.is_leaf and t.grad is not None else None


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _describe(value: Any) -> Any:
    """What a trace depends on in an argument."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.stride(), value.device, value.requires_grad
    return type(value), value


class _Guards:
    """What a trace depends on beside the contents of tensors."""

    def __init__(self, state: _State, flat: list[Any], spec: Any, rates: list[_Rate]):
        self.spec, self.flat = spec, [_describe(v) for v in flat]
        self.global_state = torch._C._dynamo.guards.GlobalStateGuard()
        self.modules = [(m, m.training) for m in state.modules.values()]
        variable = {id(r.group): ("params", "lr") for r in rates}
        self.groups = [(g, {k: v for k, v in g.items() if k not in variable.get(id(g), ("params",)) and not isinstance(v, torch.Tensor)},
                        len(g["params"])) for g in state.groups()]
        self.states = [(o, o.state, len(o.state)) for o in state.optimizers.values()]
        self.gradients: list[tuple[Any, bool]] = []  # places, and whether there is a gradient

    def hold(self, flat: list[Any], spec: Any) -> bool:
        return (spec == self.spec and [_describe(v) for v in flat] == self.flat and self.global_state.check()
                and all(m.training is training for m, training in self.modules)
                and all(len(g["params"]) == length and all(g[k] == v for k, v in values.items()) for g, values, length in self.groups)
                and all(o.state is state and len(state) == length for o, state, length in self.states)
                and all((place.get() is not None) is there for place, there in self.gradients))


class _Trace:
    """A step as a graph, for arguments as given. ``is_steady`` is false if it makes state that there was none of before."""

    def __init__(self, function: Callable, name: str, state: _State, flat: list[Any], spec: Any, is_captured: bool):
        rates = state.varying_rates() if is_captured else []
        self.guards = _Guards(state, flat, spec, rates)
        self.is_tensor = [isinstance(v, torch.Tensor) for v in flat]
        with _captured(state, rates) if is_captured else contextlib.nullcontext():
            before = _Before(state)
            try:
                with state.watching(before):
                    module, outside = self._trace(function, flat, spec, before)
            finally:
                before.put_back()
            places = before.places()
        if self._keeps_tensors():
            warnings.warn(f"{name}: the step keeps a tensor that it makes where its program can't replace it (in a list, a closure ...). "
                          "There it has no contents. Return it from the step instead", stacklevel=4)
        if not self.is_steady:
            return
        places.update((id(r.tensor), r) for r in rates)
        self.places = [places.get(id(t)) or _Fixed(t) for t in outside]
        read = set(map(id, outside))
        self.guards.gradients = [(_Gradient(place), g is not None) for place, g in before.gradients.values() if g is None or id(g) in read]
        self.function = _graph.Compiled(module, name).function

    def _trace(self, function: Callable, flat: list[Any], spec: Any, before: _Before) -> tuple[fx.GraphModule, list[torch.Tensor]]:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        outside = _Outside(mode, before)

        def step(*tensors: torch.Tensor) -> list[torch.Tensor]:
            given = iter(tensors)
            gradients = [_gradient_of(t) for t in tensors]
            leaves = [next(given) if t else v for t, v in zip(self.is_tensor, flat, strict=True)]
            args, kwargs = pytree.tree_unflatten(leaves, spec) if spec else (leaves, {})
            with outside:
                result = function(*args, **kwargs)
                values, self.result_spec = pytree.tree_flatten(result)
                self.is_single = result is values[0] if values else False
                self.made = [weakref.ref(t) for t in proxy_tensor.get_proxy_mode().tracer.tensor_tracker]
                self.is_steady = not before.has_more_state()
                before.check_numbers()
                if [_gradient_of(t) for t in tensors] != gradients:
                    raise StepError("the step leaves a gradient at one of its arguments, which its program could not do. Take "
                                    "x.detach().requires_grad_() in the step, and return its gradient")
                changed = before.changed()
                self.cleared = [place for place in changed if place.get() is None]
                known = {id(t): i for i, t in enumerate([*tensors, *outside.tensors])}
                held = [*values, *(place.get() for place in changed)]
                made = {id(t): t for t in held if isinstance(t, torch.Tensor) and id(t) not in known}
                known.update(zip(made, range(len(known), len(known) + len(made)), strict=True))
                self.results = [known.get(id(v)) if isinstance(v, torch.Tensor) else None for v in values]
                self.constants = [None if isinstance(v, torch.Tensor) else v for v in values]
                self.changes = [(place, known[id(place.get())]) for place in changed if place.get() is not None]
                return [t.detach() for t in made.values()]

        with _compiling(), mode:
            fakes = [mode.from_tensor(v) for v in flat if isinstance(v, torch.Tensor)]
            module = proxy_tensor.make_fx(step, decomposition_table=_decompositions())(*fakes)
        _arrange(module)
        return module, outside.tensors

    def _keeps_tensors(self) -> bool:
        """Does somebody still hold a tensor of the trace?"""
        made = self.__dict__.pop("made")
        if any(t() is not None for t in made):
            gc.collect()
        return any(t() is not None for t in made)

    def run(self, flat: list[Any]) -> Any:
        values = [v for v, t in zip(flat, self.is_tensor) if t] + [place.get() for place in self.places]
        values += self.function(list(values))
        for place, i in self.changes:
            place.set(values[i])
        for place in self.cleared:
            place.set(None)
        results = [constant if i is None else values[i] for i, constant in zip(self.results, self.constants)]
        return results[0] if self.is_single else pytree.tree_unflatten(results, self.result_spec)


def _arrange(module: fx.GraphModule) -> None:
    """Parameters come first, and writing to numbers last; what only profilers see is left out."""
    graph = module.graph
    first = next((n for n in graph.nodes if n.op != "placeholder"))
    for node in graph.find_nodes(op="placeholder"):
        first.prepend(node)
    draws = any(map(is_random, graph.nodes))
    for node in reversed(graph.nodes):
        if getattr(node.target, "namespace", "") == "profiler" or not draws and node.target in (_graph.rng_position, _graph.rng_seek):
            graph.erase_node(node)
    functional_numbers(graph)
    module.recompile()


# ---- for users ----------------------------------------------------------------------------------------------------------------


class CompiledStep:
    """What ``torch.tpu.compile_step`` returns: call it like the step."""

    def __init__(self, function: Callable, name: str):
        self.function, self.name = function, name
        self.state = _State()
        self.traces: list[_Trace] = []
        self.eager_calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs or not all(map(_is_tensor, args)):
            flat, spec = pytree.tree_flatten((args, kwargs))
        else:
            flat, spec = args, None
        for trace in self.traces:
            if trace.guards.hold(flat, spec):
                return trace.run(flat)
        trace = self._trace(flat, spec) if self.eager_calls else None
        if not trace:  # the first call shows what the step uses, and lets optimizers make their state
            if self.eager_calls == _MOST_EAGER:
                raise StepError(f"{self.name} makes new state in each of its first {_MOST_EAGER} calls. State has to be there after the first")
            self.eager_calls += 1
            with self.state.watching(), self.state.others:
                result = self.function(*args, **kwargs)
            self.state.see_rates()
            return result
        self.traces.insert(0, trace)
        return trace.run(flat)

    def _traced(self, flat: list[Any], spec: Any, is_captured: bool) -> _Trace:
        """A trace that found no module or optimizer that was not known when it began: its guards would not have it."""
        while True:
            known = self.state.size()
            try:
                trace = _Trace(self.function, self.name, self.state, flat, spec, is_captured)
            except Exception:
                if self.state.size() == known:
                    raise
                continue
            if self.state.size() == known:
                return trace

    def _trace(self, flat: list[Any], spec: Any) -> _Trace | None:
        if len(self.traces) == _MOST_TRACES:
            log.warning("%s was traced %d times; the oldest trace is dropped. Something that it depends on changes again and again: "
                        "shapes, numbers among the arguments, or settings of an optimizer other than lr", self.name, _MOST_TRACES)
            self.traces.pop()
        try:
            trace = self._traced(flat, spec, is_captured=True)
        except StepError:
            raise
        except Exception as error:  # an optimizer that wants a number
            try:
                trace = self._traced(flat, spec, is_captured=False)
            except Exception:
                raise error from None
            log.debug("%s: its optimizers are traced as they are, with constant learning rates: %s", self.name, error)
        return trace if trace.is_steady else None

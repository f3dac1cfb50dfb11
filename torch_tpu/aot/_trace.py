"""From a model to a program's text: its calls on an abstract device, where tensors have shapes and no contents."""

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_tpu.aot import _sharding
from torch_tpu.aot._sharding import REPLICATED

Optimizer = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


@dataclasses.dataclass
class Input:
    """A parameter of the program: what it is to the model, and how it is split.

    ``role``: parameter, optimizer, buffer, batch, other (an argument that is not split), constant, number.
    """

    name: str
    role: str
    shape: tuple[int, ...]
    dtype: str
    sharding: str


@dataclasses.dataclass
class Traced:
    """A program's text with its shardings, and what its parameters and results are. ``batch``: its size over all devices (0: there
    is none); ``recompute``: whether repeated layers keep only their inputs for backward."""

    name: str
    text: str
    inputs: list[Input]
    calls: int
    batch: int = 0
    recompute: bool = False


def default_optimizer(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4)


def _core():
    import torch_tpu._C as _C

    return _C


# ---- putting tensors into a module ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _installed(module: torch.nn.Module, replacement: dict[int, torch.Tensor]) -> Iterator[None]:
    """Parameters and buffers, by their id, are replaced; tied ones stay tied."""
    replaced = []
    for m in module.modules():
        for store in (m._parameters, m._buffers):
            for name, tensor in store.items():
                if tensor is not None and id(tensor) in replacement:
                    replaced.append((store, name, tensor))
                    store[name] = replacement[id(tensor)]
    try:
        yield
    finally:
        for store, name, tensor in replaced:
            store[name] = tensor


@contextlib.contextmanager
def _exporting() -> Iterator[None]:
    """Models that look at contents to save work, such as "is the mask all true", ask first whether there are any."""
    flags = torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag
    torch.compiler._is_compiling_flag = torch.compiler._is_exporting_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag = flags


# ---- one capture ----------------------------------------------------------------------------------------------------


class _Capture:
    """Placeholders and what they stand for."""

    def __init__(self, mode: str, devices: int):
        self.mode, self.devices = mode, devices
        self.inputs: list[Input] = []

    def __enter__(self) -> "_Capture":
        import torch_tpu._control  # noqa: F401: cond, while_loop and scan in captures

        self._threads = torch.autograd.set_multithreading_enabled(False)  # a capture is one thread's
        self._threads.__enter__()
        _core()._aot_begin()
        return self

    def __exit__(self, *exception: object) -> None:
        _core()._aot_abort()  # does nothing after the end
        self._threads.__exit__(None, None, None)

    def add(self, like: torch.Tensor, name: str, role: str, sharding: str | None = None) -> torch.Tensor:
        kind = {"parameter": "state", "optimizer": "state", "batch": "batch"}.get(role, "other")
        sharding = sharding or _sharding.choose(kind, like.shape, self.mode, self.devices, name)
        placeholder = _core()._aot_input(like.detach())
        self.inputs.append(Input(name, role, tuple(like.shape), str(like.dtype).removeprefix("torch."), sharding))
        return placeholder

    def shard(self, tensor: torch.Tensor, sharding: str, after: torch.Tensor | None = None) -> torch.Tensor:
        return tensor if self.devices == 1 else _core()._aot_shard(tensor, sharding, after)

    def end(self, name: str, results: list[torch.Tensor], result_shardings: list[str]) -> Traced:
        text, sources, places, calls = _core()._aot_end(name, results)
        if not text:
            raise ValueError(f"{name} has nothing to compile: none of its results depends on an operator")
        by_place = dict(zip(places, result_shardings, strict=True))
        inputs: list[Input] = []
        for k, array in enumerate(_sharding.signature(text).parameters):
            if k < len(sources) and sources[k] >= 0:
                inputs.append(self.inputs[sources[k]])
            else:
                role = "constant" if k < len(sources) else "number"
                inputs.append(Input(f"{role} {k}", role, array.shape, array.element, REPLICATED))
        if self.devices > 1:
            text = _sharding.annotate(text, lambda k, _: inputs[k].sharding, lambda r, _: by_place.get(r, REPLICATED))
        return Traced(name, text, inputs, calls)


def _bind(capture: _Capture, function: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any], int]:
    """Arguments with placeholders for tensors; and the batch's size (0: there is none)."""
    signature = inspect.signature(function.forward if isinstance(function, torch.nn.Module) else function)
    try:
        names = list(signature.bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise TypeError(f"these arguments do not fit {type(function).__name__}{signature}: {error}") from None
    flat, spec = pytree.tree_flatten((args, kwargs))
    tensors = [v for v in flat if isinstance(v, torch.Tensor)]
    batch = next((v.shape[0] for v in tensors if v.dim()), 0)
    labels = names if len(names) == len(tensors) else [f"argument {i}" for i in range(len(tensors))]
    replaced, next_label = [], iter(labels)
    for v in flat:
        if isinstance(v, torch.Tensor):
            role = "batch" if v.dim() and v.shape[0] == batch else "other"
            v = capture.add(v, next(next_label), role)
        replaced.append(v)
    new_args, new_kwargs = pytree.tree_unflatten(replaced, spec)
    return new_args, new_kwargs, batch


def _output_sharding(capture: _Capture, t: torch.Tensor, batch: int) -> str:
    is_batch = t.dim() and t.shape[0] == batch and batch % capture.devices == 0 and capture.mode != "replicated"
    return _sharding.split(t.dim(), 0, capture.devices) if is_batch else REPLICATED


class _Weights:
    """The model's tensors as placeholders, and as the model sees them: whole, though each device keeps a part of them."""

    def __init__(self, capture: _Capture, model: torch.nn.Module | None):
        self.capture = capture
        self.placeholders: dict[int, torch.nn.Parameter] = {}
        self.shardings: dict[int, str] = {}
        self.whole: dict[int, torch.Tensor] = {}
        self.gradients: dict[int, torch.Tensor] = {}
        self.names: dict[int, str] = {}
        for name, p in model.named_parameters() if model else ():
            self._add(p, name, "parameter")
            self.placeholders[id(p)] = torch.nn.Parameter(self.placeholders[id(p)], p.requires_grad)
        self.buffers = {id(b): capture.add(b, name, "buffer") for name, b in (model.named_buffers() if model else ())}

    def _add(self, p: torch.Tensor, name: str, role: str) -> None:
        self.placeholders[id(p)] = self.capture.add(p, name, role)
        self.shardings[id(p)] = self.capture.inputs[-1].sharding
        self.names[id(p)] = name

    def gather(self, key: int, after: torch.Tensor | None = None) -> torch.Tensor:
        """The whole of a parameter as a leaf of its own; not before ``after`` is there."""
        p = self.placeholders[key]
        split = self.shardings[key] != REPLICATED
        with torch.no_grad():
            whole = self.capture.shard(p.detach(), REPLICATED, after) if split else p.detach()
        return whole.requires_grad_(p.requires_grad)

    def gather_for(self, module: torch.nn.Module, after: torch.Tensor | None) -> dict[int, torch.Tensor]:
        """The same for all parameters that a module has now, by their keys."""
        used = {id(t): key for key, t in self.whole.items()}
        return {used[id(p)]: self.gather(used[id(p)], after) for p in module.parameters() if id(p) in used}

    def installed(self, module: torch.nn.Module, tensors: dict[int, torch.Tensor]):
        return _installed(module, {id(self.whole[key]): t for key, t in tensors.items()})

    def install(self) -> dict[int, torch.Tensor]:
        self.whole = {key: self.gather(key) for key in self.placeholders}
        return {**self.whole, **self.buffers}

    def take_gradient(self, key: int, tensor: torch.Tensor) -> None:
        """Adds what backward left at the tensor to the parameter's gradient, which is split as the parameter is."""
        if tensor.grad is None:
            return
        with torch.no_grad():
            gradient = self.capture.shard(tensor.grad, self.shardings[key])
            self.gradients[key] = self.gradients[key] + gradient if key in self.gradients else gradient
        tensor.grad = None

    def saved_hooks(self):
        """Backward gathers a split parameter anew instead of keeping the whole of it from forward on."""
        keys = {t.untyped_storage().data_ptr(): k for k, t in self.whole.items() if self.shardings[k] != REPLICATED}

        def pack(t: torch.Tensor):
            is_ours = t.device.type == "tpu" and type(t) in (torch.Tensor, torch.nn.Parameter)  # not one of a graph that is traced
            key = keys.get(t.untyped_storage().data_ptr()) if is_ours else None
            return t if key is None else (key, t.shape, t.stride(), t.storage_offset())

        def unpack(packed):
            if isinstance(packed, torch.Tensor):
                return packed
            key, *view = packed
            with torch.no_grad():
                return self.gather(key, after=self.placeholders[key].detach()).detach().as_strided(*view)

        return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


# ---- names for what the compiler shows -------------------------------------------------------------------------------


@contextlib.contextmanager
def _labelled(phase: str, model: torch.nn.Module | None = None) -> Iterator[None]:
    """Calls from here on belong to this phase, and to the module of the model that makes them."""
    stack = [phase]
    label = _core()._aot_label
    label(phase)
    handles = []
    for name, module in model.named_modules() if model else ():
        if not name:
            continue

        def enter(*_, text=f"{phase} {name}") -> None:
            if torch.compiler.is_dynamo_compiling():  # in a branch or loop, which belongs to the module around it
                return
            stack.append(text)
            label(text)

        def leave(*_) -> None:
            if torch.compiler.is_dynamo_compiling():
                return
            stack.pop()
            label(stack[-1])

        handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave, always_call=True)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


# ---- recomputing ----------------------------------------------------------------------------------------------------


class _Recomputed(torch.autograd.Function):
    """A module's forward, which keeps its inputs alone and is run again in backward."""

    @staticmethod
    def forward(ctx, run, weights, module, marker, spec, *flat):
        ctx.run, ctx.weights, ctx.module, ctx.spec, ctx.flat = run, weights, module, spec, flat
        first = next((v for v in flat if isinstance(v, torch.Tensor)), None)
        with torch.no_grad(), weights.installed(module, weights.gather_for(module, first)):
            args, kwargs = pytree.tree_unflatten(list(flat), spec)
            return run(*args, **kwargs)

    @staticmethod
    def backward(ctx, *gradients):
        w = ctx.weights
        # Not before backward has come here: else the compiler finds that it has computed all this before, and keeps it.
        arrived = next(g for g in gradients if g is not None)
        flat = []
        for v in ctx.flat:
            if isinstance(v, torch.Tensor):
                again = _core()._aot_shard(v.detach(), _output_sharding(w.capture, v, w.batch), arrived)
                v = again.requires_grad_(v.requires_grad)
            flat.append(v)
        fresh = w.gather_for(ctx.module, arrived)
        with w.installed(ctx.module, fresh), torch.enable_grad():
            args, kwargs = pytree.tree_unflatten(flat, ctx.spec)
            outputs = ctx.run(*args, **kwargs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [(o, g) for o, g in zip(outputs, gradients, strict=True) if g is not None and o.requires_grad]
        torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        for key, t in fresh.items():
            w.take_gradient(key, t)
        return (None, None, None, None, None, *(v.grad if isinstance(v, torch.Tensor) else None for v in flat))


@contextlib.contextmanager
def _recomputing(weights: _Weights, modules: list[torch.nn.Module]) -> Iterator[None]:
    """The modules keep nothing for backward but their inputs."""
    marker = torch.ones((), device="tpu", requires_grad=True)  # so that backward comes by, whatever the inputs are
    for module in modules:
        run = module.forward

        def forward(*args, _run=run, _module=module, **kwargs):
            flat, spec = pytree.tree_flatten((args, kwargs))
            return _Recomputed.apply(_run, weights, _module, marker, spec, *flat)

        module.forward = forward
    try:
        yield
    finally:
        for module in modules:
            del module.forward


def repeated_modules(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The members of the model's outermost lists of modules: the layers of a transformer."""
    found: list[torch.nn.Module] = []

    def visit(m: torch.nn.Module) -> None:
        for child in m.children():
            if isinstance(child, torch.nn.ModuleList) and len(child) > 1:
                found.extend(child)
            else:
                visit(child)

    visit(model)
    return found


# ---- forward and training step --------------------------------------------------------------------------------------


def _tensors(value: Any) -> list[torch.Tensor]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor) and t.device.type == "tpu"]


def trace_forward(function: Callable, args: tuple, kwargs: dict[str, Any], sharding: str, devices: int) -> Traced:
    """A program of the function's tensors. A module's parameters and buffers are inputs, also those that it writes."""
    _core()._aot_open()
    model = function if isinstance(function, torch.nn.Module) else None
    with _Capture(sharding, devices) as capture:
        weights = _Weights(capture, model)
        args, kwargs, batch = _bind(capture, function, args, kwargs)
        with (
            _installed(model, weights.install()) if model else contextlib.nullcontext(),
            torch.no_grad(),
            _exporting(),
            _labelled("forward", model),
        ):
            results = _tensors(function(*args, **kwargs))
        name = type(function).__name__ if model else getattr(function, "__name__", "function")
        traced = capture.end(name, results, [_output_sharding(capture, t, batch) for t in results])
        return dataclasses.replace(traced, batch=batch)


def _loss_of(output: Any, loss: Callable[[Any], torch.Tensor] | None) -> torch.Tensor:
    value = loss(output) if loss else getattr(output, "loss", output)
    if not isinstance(value, torch.Tensor) or value.dim():
        what = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise ValueError(
            f"a training step needs a loss, which is one number, but the model gives {what}. Pass loss=, a function of "
            "the model's output, or labels to a model that computes its loss."
        )
    return value


def _state_of(optimizer: Optimizer, model: torch.nn.Module, devices: int) -> dict[int, dict[str, Any]]:
    """What the optimizer keeps of each parameter: one step of it, captured and thrown away."""
    with _Capture("replicated", devices) as capture:
        weights = _Weights(capture, model)
        trained = {k: p for k, p in weights.placeholders.items() if p.requires_grad}
        for p in trained.values():
            p.grad = torch.zeros_like(p)
        made = optimizer(list(trained.values()))
        made.step()
        return {k: dict(made.state[p]) for k, p in trained.items()}


def trace_train_step(
    model: torch.nn.Module,
    args: tuple,
    kwargs: dict[str, Any],
    sharding: str,
    devices: int,
    optimizer: Optimizer | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    recompute: bool | list[torch.nn.Module] = False,
) -> Traced:
    """A program of forward, backward and optimizer. Parameters and the optimizer's state are inputs whose memory the
    results take; the loss is the one new result."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"a training step needs a torch.nn.Module, got {type(model).__name__}")
    _core()._aot_open()
    optimizer = optimizer or default_optimizer
    kept = _state_of(optimizer, model, devices)
    with _Capture(sharding, devices) as capture:
        weights = _Weights(capture, model)
        state: dict[int, dict[str, Any]] = {}
        for key, values in kept.items():
            like = weights.placeholders[key]
            state[key] = {
                name: capture.add(v, f"{name} of {weights.names[key]}", "optimizer" if v.shape == like.shape else "other")
                if isinstance(v, torch.Tensor) and v.device.type == "tpu"
                else v
                for name, v in values.items()
            }
        args, kwargs, weights.batch = _bind(capture, model, args, kwargs)
        modules = repeated_modules(model) if recompute is True else list(recompute or ())
        with _installed(model, weights.install()), _recomputing(weights, modules), _exporting():
            with weights.saved_hooks(), _labelled("forward", model):
                result = _loss_of(model(*args, **kwargs), loss)
            with _labelled("backward", model):
                result.backward()
        for key, whole in weights.whole.items():
            weights.take_gradient(key, whole)
        _core()._aot_label("optimizer")
        trained = [k for k, p in weights.placeholders.items() if k in weights.gradients]
        for key in trained:
            weights.placeholders[key].grad = weights.gradients[key]
        made = optimizer([weights.placeholders[k] for k in trained])
        made.state.update({weights.placeholders[k]: state[k] for k in trained})
        made.step()
        traced = capture.end(f"{type(model).__name__} train_step", [result.detach()], [REPLICATED])
        return dataclasses.replace(traced, batch=weights.batch, recompute=bool(modules))

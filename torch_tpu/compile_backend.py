"""``torch.compile(model, backend="tpu")``: Dynamo's graphs as StableHLO programs."""

import contextlib
import functools
import gc
import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters
from torch._functorch.aot_autograd import SerializableAOTDispatchCompiler

from torch_tpu import _aot_cache
from torch_tpu._partition import partition

_numbers = itertools.count()


@dataclass
class TpuCompileDebug:
    """What became of one graph; ``options={"debug_callback": f}`` calls ``f`` with it each time a program of the graph is compiled.

    Texts are empty until there is something: the backward ones until the first backward.
    """

    pre_autograd_fx_code: str = ""
    pre_autograd_fx_readable: str = ""
    post_autograd_fx_forward_code: str = ""
    post_autograd_fx_forward_readable: str = ""
    post_autograd_fx_backward_code: str = ""
    post_autograd_fx_backward_readable: str = ""
    stablehlo_forward_text: str = ""
    stablehlo_backward_text: str = ""
    compiled_executables: list[Any] = field(default_factory=list)


@dataclass
class Options:
    """What ``torch.compile(..., options={...})`` takes.

    async_compile: compile in the background; calls run operator by operator until the program is there.
    bucket_size: one program serves all sizes up to a bound: the max of ``torch._dynamo.mark_dynamic``, else the bucket size,
        or as often twice that as is needed.
    num_dynamic_buckets: has no effect, with a warning: there is a bucket for every doubling.
    serializable: graphs are kept in AOTAutograd's cache where PyTorch's settings allow it; another process takes them from there.
    debug_callback: see ``TpuCompileDebug``.
    custom_module_name, name: what the programs are called.
    """

    async_compile: bool = False
    num_dynamic_buckets: int = 1
    bucket_size: int = 128
    serializable: bool = True
    debug_callback: Callable[[TpuCompileDebug], None] | None = None
    custom_module_name: str = ""
    name: str = ""

    @classmethod
    def parse(cls, options: dict[str, Any] | None) -> "Options":
        """Raises RuntimeError for a name that isn't one, or a value that can't be."""
        known = list(cls.__dataclass_fields__)
        for key, value in (options or {}).items():
            if key not in known:
                raise RuntimeError(f"Unexpected option {key!r} of torch.compile(backend='tpu'), known options are {known}")
            if key == "debug_callback":
                if value is not None and not callable(value):
                    raise RuntimeError(f"option 'debug_callback' takes a function, got {value!r}")
            elif type(value) is not type(getattr(cls, key)):
                raise RuntimeError(f"option {key!r} takes a value of type {type(getattr(cls, key)).__name__}, got {value!r}")
        parsed = cls(**(options or {}))
        if not 1 <= parsed.num_dynamic_buckets <= 8:
            raise RuntimeError(f"option 'num_dynamic_buckets' is between 1 and 8, got {parsed.num_dynamic_buckets}")
        if parsed.bucket_size < 1:
            raise RuntimeError(f"option 'bucket_size' is at least 1, got {parsed.bucket_size}")
        if parsed.num_dynamic_buckets != cls.num_dynamic_buckets:
            warnings.warn("torch.compile(backend='tpu'): num_dynamic_buckets has no effect: there is a bucket for every doubling "
                          "of bucket_size", stacklevel=2)
        return parsed


_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@functools.cache
def _decompositions(before_autograd: bool = False) -> dict[Any, Any]:
    """PyTorch's decompositions of what has no lowering of its own: the rest stays whole. Composite operators are gone after
    autograd, and take time to list."""
    from torch._decomp import _core_aten_decompositions_post_autograd, core_aten_decompositions

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    table = core_aten_decompositions() if before_autograd else _core_aten_decompositions_post_autograd()
    return {op: f for op, f in table.items()
            if not (isinstance(op, torch._ops.OpOverload) and has(op.name(), "PrivateUse1"))} | _foreach_with_tensor()


def _foreach_with_tensor() -> dict[Any, Any]:
    """Lists with one factor for each member, from a tensor on the CPU: what optimizers compute from their steps."""
    aten = torch.ops.aten

    def addcdiv(self, tensor1, tensor2, scalars):
        scaled = aten._foreach_mul.List(aten._foreach_div.List(tensor1, tensor2), list(scalars.unbind()))
        return aten._foreach_add.List(self, scaled)

    def addcmul(self, tensor1, tensor2, scalars):
        scaled = aten._foreach_mul.List(aten._foreach_mul.List(tensor1, tensor2), list(scalars.unbind()))
        return aten._foreach_add.List(self, scaled)

    return {aten._foreach_addcdiv.Tensor: addcdiv, aten._foreach_addcmul.Tensor: addcmul}


class _Compilers:
    """AOTAutograd's compilers of one Dynamo graph."""

    def __init__(self, module: fx.GraphModule, options: Options):
        self.options = options
        self.name = options.custom_module_name or options.name or f"graph{next(_numbers)}"
        self.debug = TpuCompileDebug()
        if options.debug_callback:
            self.debug.pre_autograd_fx_code = module.code
            self.debug.pre_autograd_fx_readable = module.print_readable(print_output=False)

    def compile(self, kind: str, module: fx.GraphModule, example_inputs: list[Any]) -> Callable[[list[Any]], Any]:
        counters["tpu"]["graphs"] += 1
        on_compiled = None
        if self.options.debug_callback:
            side = "backward" if kind == "backward" else "forward"
            setattr(self.debug, f"post_autograd_fx_{side}_code", module.code)
            setattr(self.debug, f"post_autograd_fx_{side}_readable", module.print_readable(print_output=False))

            def on_compiled(graph: Any) -> None:
                setattr(self.debug, f"stablehlo_{side}_text", graph.text())
                self.debug.compiled_executables.append(graph)
                self.options.debug_callback(self.debug)

        suffix = "" if kind == "inference" else f"_{kind}"
        settings = {"is_async": self.options.async_compile, "bucket_size": self.options.bucket_size}
        return _aot_cache.Code(module, self.name + suffix, settings).compile(on_compiled)

    def is_kept(self) -> bool:
        """In AOTAutograd's cache. Whoever wants to see each step of a compilation gets it done."""
        return self.options.serializable and not self.options.debug_callback and _aot_cache.is_on()

    def compilers(self) -> dict[str, Any]:
        """For aot_autograd."""
        kinds = {"fw_compiler": "forward", "bw_compiler": "backward", "inference_compiler": "inference"}
        compilers = {name: functools.partial(self.compile, kind) for name, kind in kinds.items()}
        if not self.is_kept():
            return compilers
        return {name: SerializableAOTDispatchCompiler(_aot_cache.Code, compile) for name, compile in compilers.items()}

    def cache(self) -> contextlib.AbstractContextManager[None]:
        if not self.is_kept():
            return contextlib.nullcontext()
        return _aot_cache.kept(self.options.async_compile, self.options.bucket_size, self.options.custom_module_name, self.options.name)


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """What a compilation makes lives on, and the collector walks over all of PyTorch each time to find that out."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def tpu(module: fx.GraphModule, example_inputs: list[Any], *, mode: str | None = None,
        options: dict[str, Any] | None = None) -> Callable[..., Any]:
    """The backend. ``mode`` is one of PyTorch's names, none of which changes anything here; ``options``: see ``Options``.

    Raises RuntimeError for options that do not exist.
    """
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    compilers = _Compilers(module, Options.parse(options))
    compile_graph = aot_autograd(**compilers.compilers(), decompositions=_decompositions(), partition_fn=partition,
                                 keep_inference_input_mutations=True)
    with _collector_paused(), compilers.cache():
        return compile_graph(module, example_inputs)

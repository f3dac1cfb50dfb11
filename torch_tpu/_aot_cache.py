"""AOTAutograd's cache for this backend: forward and backward graphs that an earlier process traced, cut and decomposed.

PyTorch keeps what a ``SerializableAOTDispatchCompiler`` gives it, which must be an ``OutputCode``. Here that is the FX graph. Its
programs aren't in it: they are captured anew, which takes milliseconds, and found in the compile cache by their text.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import fx
from torch._dynamo.utils import counters
from torch._functorch import config
from torch._functorch._aot_autograd import autograd_cache
from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCacheDetails, BypassAOTAutogradCache
from torch._higher_order_ops.effects import with_effects
from torch._inductor.codecache import BypassFxGraphCache, FxGraphCache
from torch._inductor.output_code import OutputCode
from torch._library.opaque_object import is_opaque_reference_type
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx._graph_pickler import GraphPickler, Options
from torch.utils._python_dispatch import _disable_current_modes

import torch_tpu
from torch_tpu import _C, _graph

_LOWERING = ("TORCH_TPU_EMULATE_MXU", "TORCH_TPU_INTERNAL_FFI", "TORCH_TPU_INTERNAL_XLA_OPTIONS", "TORCH_TPU_INTERNAL_BOUNDED_SIZES")


def is_on() -> bool:
    """What the user wants: ``torch._functorch.config.enable_autograd_cache``, ``torch.compiler.config.force_disable_caches``."""
    return autograd_cache.should_use_local_autograd_cache() or autograd_cache.should_use_remote_autograd_cache()


class Details(AOTAutogradCacheDetails):
    """What a key is made of: PyTorch's own list, but for what only inductor reads. To gather that, inductor's code generators
    are imported, which takes longer than all that the cache saves for a model of some layers."""

    def __init__(self, *args: Any, options: tuple[Any, ...]):
        self.options = options
        super().__init__(*args)

    def _init_fx_graph_hash_details(self, gm: fx.GraphModule, example_inputs: Any, fx_config: Any) -> None:
        try:
            FxGraphCache._check_can_cache(gm, example_inputs, fx_config)
        except BypassFxGraphCache as error:
            raise BypassAOTAutogradCache(str(error)) from error
        if any(is_opaque_reference_type(type(a)) for a in example_inputs):
            raise BypassAOTAutogradCache("an argument is an object that can't be told from others of its type")
        self.gm = gm
        self.example_inputs = list(example_inputs)
        self.sharing = _sharing(example_inputs)
        self.cache_key_tag = torch.compiler.config.cache_key_tag
        self.torch_version = torch.__version__, torch.version.git_version
        self.default_dtype = torch.get_default_dtype()
        self.default_device = str(torch.get_default_device())
        self.tpu = torch_tpu.__version__, *_C._cache_identify(), *(os.environ.get(name) for name in _LOWERING)


def _sharing(example_inputs: Any) -> list[int]:
    """For each argument the first one with the same storage: arguments that share memory are traced otherwise. PyTorch's own list
    leaves this out, and a graph for arguments apart from each other would be used for views of one tensor."""
    first: dict[int, int] = {}
    return [first.setdefault(a.untyped_storage()._cdata if type(a) in (torch.Tensor, FakeTensor, torch.nn.Parameter)
                             and a.layout is torch.strided else -i, i) for i, a in enumerate(example_inputs)]


@contextlib.contextmanager
def kept(*options: Any) -> Iterator[None]:
    """While this lasts AOTAutograd looks in its cache for what it compiles, and keeps it there. Both need forward and backward at
    once: the backward's graph is handed over with the forward's, to be captured at its first call as ever."""
    details = functools.partial(Details, options=options)
    with config.patch(bundled_autograd_cache=True, force_non_lazy_backward_lowering=True), \
            mock.patch.object(autograd_cache, "AOTAutogradCacheDetails", details):
        yield


class Code(OutputCode):
    """A graph as PyTorch keeps it. What is called is its ``function``; this object is what can be written."""

    def __init__(self, module: fx.GraphModule, name: str, options: dict[str, Any]):
        self.module = module
        self.name = name
        self.options = options  # of _graph.Compiled
        self.graph = b""

    def compile(self, on_compiled: Callable[[Any], None] | None = None) -> Callable[[list[Any]], Any]:
        function = _graph.Compiled(self.module, self.name, on_compiled=on_compiled, **self.options).function
        function.__wrapped__ = self  # where AOTAutograd looks for it
        function.post_compile = _nothing
        return function

    def prepare_for_serialization(self) -> None:
        if any(n.target is with_effects for n in self.module.graph.nodes):  # takes tokens, which nobody gives to a loaded graph
            raise BypassAOTAutogradCache(f"{self.name} has operators with effects, whose order is kept by tokens")
        try:
            _share_descriptions(self.module)
            with _disable_current_modes():
                self.graph = GraphPickler.dumps(self.module, Options(ops_filter=None, node_metadata_key_filter=lambda key: key == "val"))
        except Exception as error:
            raise BypassAOTAutogradCache(f"the graph of {self.name} can't be written: {error}") from error

    def __copy__(self) -> "Code":
        return self

    def __reduce__(self) -> Any:
        return _load, (self.graph, self.name, self.options)


def _share_descriptions(module: fx.GraphModule) -> None:
    """Nodes whose results look the same are described by one fake tensor: of hundreds of nodes some dozens are left to write."""
    seen: dict[Any, torch.Tensor] = {}

    def shared(t: Any) -> Any:
        if type(t) is not FakeTensor or t.layout is not torch.strided or t._has_symbolic_sizes_strides:
            return t
        return seen.setdefault((t.shape, t.stride(), t.storage_offset(), t.dtype, t.device), t)

    for node in module.graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = torch.utils._pytree.tree_map(shared, node.meta["val"])


def _nothing(example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
    """PyTorch's hook for what is to be done after loading."""


def _load(graph: bytes, name: str, options: dict[str, Any]) -> Callable[[list[Any]], Any]:
    mode = torch._guards.detect_fake_mode() or torch._subclasses.FakeTensorMode(
        shape_env=fx.experimental.symbolic_shapes.ShapeEnv())
    with _disable_current_modes():
        module = GraphPickler.loads(graph, mode)
    module.recompile()
    counters["tpu"]["loaded"] += 1
    return Code(module, name, options).compile()

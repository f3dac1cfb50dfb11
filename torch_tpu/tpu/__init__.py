"""torch.tpu: the device module. Every function may be called from anywhere.

Functions that only ask (``is_available``, ``device_count``, ``manual_seed``, memory statistics ...) neither load the
PJRT plugin nor start a thread, so they are safe in programs that use the CPU only and before a fork.
"""

import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch_tpu import _C

from . import compile_cache, memory, modes, random, streams
from ._utils import _device_index
from .compile_cache import CacheTier, CompileCacheStats, CompiledProgram, _get_cache_stats, compile_cache_stats
from .memory import (
    LiveArray,
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_summary,
    reset_peak_memory_stats,
)
from .modes import (
    EagerMode,
    FusionStats,
    Precision,
    fusion_stats,
    get_cpu_fallback,
    precision,
    set_cpu_fallback,
    set_eager_mode,
)
from .random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import Event, Stream, current_stream, default_stream, set_stream, stream

if TYPE_CHECKING:
    from torch_tpu._step import CompiledStep

__all__ = [
    "CacheTier", "CompileCacheStats", "CompiledProgram", "EagerMode", "Event", "FusionStats", "LiveArray", "OpCount", "Precision", "Stream", "TpuDeviceProperties",
    "allow_excess_precision", "compile_cache", "compile_cache_stats", "compile_step", "current_device", "current_stream",
    "default_generators", "default_stream", "device", "device_count", "device_of", "eager_mode", "empty_cache", "fusion_stats",
    "get_amp_supported_dtype", "get_cpu_fallback", "get_device_name", "get_device_properties", "get_rng_state",
    "get_rng_state_all", "init", "initial_seed", "is_available", "is_bf16_supported", "is_initialized", "manual_seed",
    "manual_seed_all", "max_memory_allocated", "max_memory_reserved", "mem_get_info", "memory", "memory_allocated",
    "memory_reserved", "memory_snapshot", "memory_stats", "memory_summary", "modes", "op_coverage", "precision", "random", "reset_op_coverage",
    "reset_peak_memory_stats", "seed", "seed_all", "set_cpu_fallback", "set_device", "set_eager_mode", "set_rng_state",
    "set_rng_state_all", "set_stream", "stream", "streams", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """True if there is a device to use. Does not load the plugin and never raises."""
    return _C._device_count() > 0


def device_count() -> int:
    """The number of devices of this process: 0 or 1. Does not load the plugin and never raises."""
    return _C._device_count()


def current_device() -> int:
    """The index of the current device."""
    return _C._current_device()


def set_device(device: Any) -> None:
    """Checks that ``device`` is this process's device: a process has only one."""
    torch._C._accelerator_setDeviceIndex(_device_index(device))


def synchronize(device: Any = None) -> None:
    """Waits until all work on the device is done. Raises the first failure that nobody has seen yet."""
    _C._synchronize(_device_index(device))


def compile_step(step: Callable, *, name: str = "step") -> "CompiledStep":
    """Forward, backward and optimizer as one program, which keeps parameters and optimizer state in place.

    step: a function of tensors (and of Python values, each of which gets a program of its own) that does what a training step
        does, ``zero_grad()``, ``backward()`` and ``optimizer.step()`` included. Its results have no ``grad_fn``.
    name: what its programs are called.

    The first call runs operator by operator. At the second one the step is traced, and from then on its Python is not run again, so
    what it does beside computing on tensors happens once. The step is traced anew for other shapes, another training mode of a
    module, or other settings of an optimizer; a learning rate may change at any time. Raises RuntimeError if the step
    reads a tensor's value, or changes a number that its program could not change.
    """
    from torch_tpu._step import CompiledStep  # imports torch.compile's parts

    return CompiledStep(step, name)


def is_initialized() -> bool:
    """True if the plugin is loaded and usable in this process."""
    return _C._is_initialized() and not _C._in_bad_fork()


def init() -> None:
    """Loads the plugin now instead of at the first tensor."""
    _C._init()


def _lazy_init() -> None:
    init()


def _is_in_bad_fork() -> bool:
    """True in a process that was forked from one in which the device was in use."""
    return _C._in_bad_fork()


class device:
    """Context manager: the current device. A negative index, or None, does nothing."""

    def __init__(self, device: Any):
        self.index = -1 if device is None else _device_index(device)
        self.previous = -1

    def __enter__(self):
        self.previous = torch._C._accelerator_exchangeDevice(self.index) if self.index >= 0 else -1
        return self

    def __exit__(self, *exception):
        torch._C._accelerator_maybeExchangeDevice(self.previous)


class device_of(device):
    """Context manager: the device of a tensor or storage; does nothing if that is not on ``tpu``."""

    def __init__(self, obj: Any):
        super().__init__(obj.device if obj.device.type == "tpu" else None)


class TpuDeviceProperties(NamedTuple):
    name: str
    total_memory: int
    multi_processor_count: int
    platform: str
    plugin_path: str


def get_device_properties(device: Any = None) -> TpuDeviceProperties:
    """What the plugin says of the device. Loads the plugin."""
    index = _device_index(device)
    if not 0 <= index < device_count():
        raise AssertionError(f"Invalid device id: {index}, there are {device_count()} tpu devices")
    info = _C._plugin_info()
    return TpuDeviceProperties(info["device_kind"], mem_get_info()[1], 1, info["platform"], info["path"])


def get_device_name(device: Any = None) -> str:
    """The device's kind, such as "TPU v5e" or "cpu". Loads the plugin."""
    return get_device_properties(device).name


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that torch.autocast("tpu") may use."""
    return [torch.bfloat16, torch.float16, torch.float32]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


class OpCount(NamedTuple):
    native: int
    """Calls that ran on the device."""
    fallback: int
    """Calls that went to the CPU and back, because the operator has no lowering."""


def op_coverage() -> dict[str, OpCount]:
    """How often each operator ran since the start or ``reset_op_coverage()``: CPU fallbacks first, then by number of calls."""
    counts = {name: OpCount(*count) for name, count in _C._op_counts().items()}
    return dict(sorted(counts.items(), key=lambda item: (-item[1].fallback, -item[1].native, item[0])))


def reset_op_coverage() -> None:
    _C._reset_op_counts()


_NOT_YET = {
    "compiler": "compiler options for a region",
    "distributed": "collectives and process groups",
    "ops": "operators beyond PyTorch's own",
    "optimizers": "functional optimizers",
    "pallas": "Pallas kernels",
    "topology_aware_mesh": "collectives and process groups",
}


class _TpuModule(types.ModuleType):
    """The module's settings that read as attributes."""

    @property
    def eager_mode(self) -> EagerMode:
        """How operators run; see ``EagerMode``."""
        return modes._get_eager_mode()

    @eager_mode.setter
    def eager_mode(self, mode: EagerMode) -> None:
        modes._apply_eager_mode(mode)

    @property
    def allow_excess_precision(self) -> bool:
        """Whether compiled programs may keep results between operations in more bits than their dtypes have: False at
        first. A change compiles anew whatever runs next, for the whole process."""
        return _C._excess_precision()

    @allow_excess_precision.setter
    def allow_excess_precision(self, on: bool) -> None:
        if not isinstance(on, bool):
            raise TypeError(f"allow_excess_precision: expected a bool, got {on!r}")
        _C._set_excess_precision(on)

    @property
    def default_generators(self) -> tuple[torch.Generator, ...]:
        return tuple(_C._default_generator(i) for i in range(_C._device_count()))

    @property
    def _initialized(self) -> bool:  # asked by torch.utils.checkpoint
        return is_initialized()

    def __getattr__(self, name: str) -> Any:
        if name in _NOT_YET:  # an AttributeError, so that hasattr() says no
            raise AttributeError(f"torch.tpu.{name} ({_NOT_YET[name]}) does not exist in this version of torch_tpu")
        raise AttributeError(f"module 'torch.tpu' has no attribute '{name}'")


sys.modules[__name__].__class__ = _TpuModule

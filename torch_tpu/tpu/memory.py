"""Device memory, as counted by this package (PJRT's CPU plugins count none)."""

import os
from collections import OrderedDict
from typing import Any

import torch
from torch_tpu import _C

from ._utils import _device_index

__all__ = [
    "empty_cache", "max_memory_allocated", "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_reserved",
    "memory_stats", "reset_peak_memory_stats",
]  # fmt: skip


def memory_stats(device: Any = None) -> "OrderedDict[str, int]":
    """Statistics under PyTorch's names where it has one, such as "allocated_bytes.all.current"."""
    _device_index(device)
    return OrderedDict(sorted(_C._memory_stats().items()))


def _stat(device: Any, name: str) -> int:
    return memory_stats(device).get(name, 0)


def memory_allocated(device: Any = None) -> int:
    """Bytes of arrays that are alive on the device now."""
    return _stat(device, "allocated_bytes.all.current")


def max_memory_allocated(device: Any = None) -> int:
    """The most that memory_allocated() has been since the start or reset_peak_memory_stats()."""
    return _stat(device, "allocated_bytes.all.peak")


def memory_reserved(device: Any = None) -> int:
    """The same as memory_allocated(): nothing is kept in a cache here."""
    return memory_allocated(device)


def max_memory_reserved(device: Any = None) -> int:
    """The same as max_memory_allocated()."""
    return max_memory_allocated(device)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of the device's memory. TORCH_TPU_HBM_LIMIT sets the total; a CPU plugin's is the host's.

    Loads the plugin.
    """
    if not memory_stats(device)["bytes_limit"] and _C._plugin_info()["platform"] == "cpu":
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page
    return torch.accelerator.get_memory_info(_device_index(device))


def empty_cache() -> None:
    """Gives freed host memory that a CPU plugin's arrays had back to the system (see TORCH_TPU_KEEP_HOST_MEMORY).

    Arrays themselves go back to the plugin as soon as the last tensor over them dies.
    """
    torch._C._accelerator_emptyCache()


def reset_peak_memory_stats(device: Any = None) -> None:
    """Lets the peak start again from what is allocated now."""
    _device_index(device)
    _C._reset_peak_memory()

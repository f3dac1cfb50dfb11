"""Device memory, as counted by this package (PJRT's CPU plugins count none)."""

import os
from collections import OrderedDict
from typing import Any, NamedTuple

import torch
from torch_tpu import _C

from ._utils import _device_index

__all__ = [
    "LiveArray", "empty_cache", "max_memory_allocated", "max_memory_reserved", "mem_get_info", "memory_allocated",
    "memory_reserved", "memory_snapshot", "memory_stats", "memory_summary", "reset_peak_memory_stats",
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


class LiveArray(NamedTuple):
    """Arrays of one kind that are alive on the device. An array is what tensors are views over."""

    count: int
    bytes: int
    """Of each of them."""
    dtype: torch.dtype
    shape: tuple[int, ...]


def memory_snapshot(device: Any = None) -> list[LiveArray]:
    """The arrays that are alive now, the most bytes (``count * bytes``) first. Arrays below 16 KiB are left out. Does not load the
    plugin, waits for nothing."""
    _device_index(device)
    return [LiveArray(*entry) for entry in _C._live_arrays()]


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The statistics and a table of the largest live arrays, to print: the 20 kinds with the most bytes, abbreviated the first 8.

    ``torch.OutOfMemoryError`` ends with the abbreviated table.
    """
    stats = memory_stats(device)
    mib = 1 << 20
    lines = [
        f"{stats['allocated_bytes.all.current'] / mib:12.2f} MiB in use now, in {stats['allocation.all.current']} arrays",
        f"{stats['allocated_bytes.all.peak'] / mib:12.2f} MiB in use at most",
    ]
    if stats["bytes_limit"]:
        lines.append(f"{stats['bytes_limit'] / mib:12.2f} MiB may be used (TORCH_TPU_HBM_LIMIT)")
    return "\n".join([*lines, "", _C._memory_table(8 if abbreviated else 20)])


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of the device's memory. TORCH_TPU_HBM_LIMIT sets the total; a CPU plugin's is the host's.

    Loads the plugin.
    """
    if not memory_stats(device)["bytes_limit"] and _C._plugin_info()["platform"] == "cpu":
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page
    return torch.accelerator.get_memory_info(_device_index(device))


def empty_cache() -> None:
    """Lets go of the gradients that a ``backward()`` which failed has left behind, and gives freed host memory that a CPU
    plugin's arrays had back to the system (see TORCH_TPU_KEEP_HOST_MEMORY).

    Arrays themselves go back to the plugin as soon as the last tensor over them dies. After an out of memory error in
    ``backward()`` call this from the same thread.
    """
    with torch.enable_grad():  # PyTorch drops what a failed backward has queued in this thread when the next one begins
        torch.zeros((), device="cpu", requires_grad=True).backward()
    torch._C._accelerator_emptyCache()


def reset_peak_memory_stats(device: Any = None) -> None:
    """Lets the peak start again from what is allocated now."""
    _device_index(device)
    _C._reset_peak_memory()

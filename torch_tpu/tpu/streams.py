"""Streams and events: PyTorch's own classes, bound to the device ``tpu``.

A device has one queue that runs everything in order, so a stream never has to wait for another.
"""

from typing import Any

import torch

from ._utils import _device_index

__all__ = ["Event", "Stream", "current_stream", "default_stream", "set_stream", "stream"]


class Stream(torch.Stream):
    """``torch.tpu.Stream(device=None, priority=0, *, pinned=None)``.

    ``pinned`` names the core that a stream's work runs on; "tensor" is the only one in this version.
    """

    def __new__(cls, device: Any = None, priority: int = 0, *, pinned: str | None = None, **ids: Any):
        if pinned not in (None, "tensor"):
            if pinned == "sparse":
                raise NotImplementedError('Stream(pinned="sparse"): SparseCore streams are not implemented in this version')
            raise ValueError(f'Stream(): expected pinned to be "tensor", "sparse" or None, got {pinned!r}')
        if ids:  # stream_id, device_index and device_type: an existing stream under this class
            return super().__new__(cls, **ids)
        return super().__new__(cls, torch.device("tpu", _device_index(device)), priority=priority)

    @property
    def is_sparse(self) -> bool:
        return False

    @property
    def is_dense(self) -> bool:
        return True


class _EventType(type(torch.Event)):
    def __instancecheck__(cls, event: Any) -> bool:
        return isinstance(event, torch.Event) and event.device.type == "tpu"


class Event(torch.Event, metaclass=_EventType):
    """``torch.tpu.Event(enable_timing=False, blocking=False, interprocess=False, device=None)``.

    Makes a plain torch.Event, since PyTorch takes no subclass where it compares two events.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, device: Any = None):
        if interprocess:
            raise NotImplementedError("Event(interprocess=True): events can't be shared between processes")
        return torch.Event(torch.device("tpu", _device_index(device)), enable_timing=enable_timing, blocking=blocking)


def _as_stream(found: torch.Stream) -> Stream:
    return Stream(stream_id=found.stream_id, device_index=found.device_index, device_type=found.device_type)


def current_stream(device: Any = None) -> Stream:
    """The stream that operators go to."""
    return _as_stream(torch._C._accelerator_getStream(_device_index(device)))


def default_stream(device: Any = None) -> Stream:
    """Stream 0."""
    found = torch._C._accelerator_getStream(_device_index(device))
    return Stream(stream_id=0, device_index=found.device_index, device_type=found.device_type)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes ``stream`` the current one; None does nothing."""
    if stream is not None:
        torch._C._accelerator_setStream(stream)


class stream:
    """Context manager: operators inside go to ``stream``; None does nothing."""

    def __init__(self, stream: torch.Stream | None):
        self.stream = stream
        self.previous: torch.Stream | None = None

    def __enter__(self):
        if self.stream is not None:
            self.previous = current_stream(self.stream.device)
            set_stream(self.stream)
        return self.stream

    def __exit__(self, *exception):
        set_stream(self.previous)

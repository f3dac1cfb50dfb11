"""Device arguments."""

from typing import Any

import torch
from torch_tpu import _C


def _device_index(device: Any = None, optional: bool = True) -> int:
    """The index meant by None, an int, a string or a torch.device."""
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if device is None:
        index = None
    elif isinstance(device, torch.device):
        if device.type != "tpu":
            raise ValueError(f"Expected a tpu device, but got: {device}")
        index = device.index
    else:
        raise TypeError(f"Expected a device, a string or an int, but got: {type(device).__name__}")
    if index is None:
        if not optional:
            raise ValueError(f"Expected a torch.device with a specified index or an integer, but got: {device}")
        return _C._current_device()
    return index


_get_device_index = _device_index  # the name that torch.serialization asks for

"""Random numbers: seeds and states of the device's default generator. They live on the host; nothing here loads the plugin."""

from typing import Any

import torch
from torch_tpu import _C

from ._utils import _device_index

__all__ = [
    "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all",
    "set_rng_state", "set_rng_state_all",
]  # fmt: skip


def _generator(device: Any = "tpu") -> torch.Generator:
    return _C._default_generator(_device_index(device))


def _generators() -> list[torch.Generator]:
    return [_C._default_generator(i) for i in range(_C._device_count())]


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator. Does nothing where there is no device."""
    if _C._device_count():
        _generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices. Does nothing where there is no device."""
    for generator in _generators():
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seeds the current device's generator with a random number."""
    if _C._device_count():
        _generator().seed()


def seed_all() -> None:
    """Seeds the generators of all devices with one random number."""
    generators = _generators()
    if generators:
        manual_seed_all(generators[0].seed())


def initial_seed() -> int:
    """The seed that the current device's generator was given last."""
    return _generator().initial_seed()


def get_rng_state(device: Any = "tpu") -> torch.Tensor:
    """The state of a device's generator, as a CPU tensor of bytes."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    return [generator.get_state() for generator in _generators()]


def set_rng_state(new_state: torch.Tensor, device: Any = "tpu") -> None:
    """Puts a state back that get_rng_state() gave."""
    _generator(device).set_state(new_state)


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    for generator, state in zip(_generators(), new_states, strict=True):
        generator.set_state(state)

"""How operators run: eager mode, precision of matrix products, and what happens to operators without a lowering."""

import enum
from typing import Any, NamedTuple

from torch_tpu import _C

__all__ = [
    "EagerMode", "FusionStats", "Precision", "fusion_stats", "get_cpu_fallback", "precision", "set_cpu_fallback",
    "set_eager_mode",
]  # fmt: skip


class EagerMode(enum.Enum):
    DEFER_AND_FUSE = 0
    """Operators are collected and compiled together when a result is needed."""
    DEFER_NEVER = 1
    """Strict, the default: each operator is dispatched at once and runs asynchronously."""
    DEFER_NEVER_AND_LAUNCH_BLOCKING = 2
    """Each operator is waited for, so that errors appear where they are made."""


def _get_eager_mode() -> EagerMode:
    if _C._get_defer():
        return EagerMode.DEFER_AND_FUSE
    return EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING if _C._get_launch_blocking() else EagerMode.DEFER_NEVER


def _apply_eager_mode(mode: EagerMode) -> None:
    if not isinstance(mode, EagerMode):
        raise TypeError(f"eager_mode: expected a torch.tpu.EagerMode, got {mode!r}")
    _C._set_defer(mode is EagerMode.DEFER_AND_FUSE)
    _C._set_launch_blocking(mode is EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING)


class set_eager_mode:
    """Context manager: the eager mode of the process, inside. ``torch.tpu.eager_mode = mode`` sets it for good."""

    def __init__(self, mode: EagerMode):
        self.mode = mode

    def __enter__(self):
        self.previous = _get_eager_mode()
        _apply_eager_mode(self.mode)
        return self

    def __exit__(self, *exception):
        _apply_eager_mode(self.previous)


class FusionStats(NamedTuple):
    """What ``EagerMode.DEFER_AND_FUSE`` did since the start of the process."""

    recorded: int
    """Calls of operators that were collected."""
    dropped: int
    """Of them: never run, because nobody could see their results any more."""
    regions: int
    """Regions that ended: each is one program that runs, or nothing if all in it was dropped."""
    programs: int
    """Programs that were made for regions of several calls. Once a loop has warmed up, this stays the same."""
    reasons: dict[str, int]
    """Why regions ended, and how many for each reason."""


def fusion_stats() -> FusionStats:
    """What ``EagerMode.DEFER_AND_FUSE`` did since the start of the process. Does not load the plugin, ends no region."""
    return FusionStats(**_C._fusion_stats())


class Precision(enum.IntEnum):
    """How float32 matrix products and convolutions are computed on a TPU's matrix unit."""

    DEFAULT = 0
    """One bfloat16 pass. Also called MEDIUM."""
    HIGH = 1
    """Three passes."""
    HIGHEST = 2
    """Six passes: float32 throughout."""
    MEDIUM = 0


class precision:
    """Context manager: the precision of this thread's float32 products, over every other setting.

    What counts is where an operator runs: ``loss.backward()`` inside uses it on autograd's threads too, one outside does
    not, wherever the forward pass was. Accepts a ``Precision`` or its name in any case; KeyError or ValueError for anything else.
    """

    def __init__(self, precision: Precision | str):
        self.precision = Precision[precision.upper()] if isinstance(precision, str) else Precision(precision)
        self.previous: list[int] = []

    def __enter__(self):
        _C._warn_of_passes(int(self.precision))  # first: warnings may be errors
        self.previous.append(_C._context_precision())
        _C._set_context_precision(int(self.precision))
        return self

    def __exit__(self, *exception):
        _C._set_context_precision(self.previous.pop())


def get_cpu_fallback() -> str:
    """What happens to operators that have no lowering: "warn", "error" or "silent"."""
    return _C._get_fallback()


class set_cpu_fallback:
    """Sets what happens to operators that have no lowering. As a context manager it puts the old setting back.

    "warn" runs them on the CPU and says so once per operator, "silent" runs them on the CPU, "error" raises.
    """

    def __init__(self, mode: str):
        if mode not in ("warn", "error", "silent"):
            raise ValueError(f'set_cpu_fallback(): expected "warn", "error" or "silent", got {mode!r}')
        self.previous = _C._get_fallback()
        _C._set_fallback(mode)

    def __enter__(self):
        return self

    def __exit__(self, *exception: Any):
        _C._set_fallback(self.previous)

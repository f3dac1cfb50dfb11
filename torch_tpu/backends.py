"""torch.backends.tpu: what this build is and can, and the precision of float32 products.

``fp32_precision`` (also of ``matmul`` and of ``conv``) is as in ``torch.backends``: "ieee" is highest (six passes of the matrix unit),
"tf32" is high (three), "bf16" is medium (one), and "none", the default, leaves it to the next more general setting.
"""

import sys
import types

from torch_tpu import __version__ as version
from torch_tpu import _C

__all__ = ["conv", "fp32_precision", "is_available", "is_built", "matmul", "plugin_info", "version"]


def is_built() -> bool:
    """True: this module exists only where the extension was built."""
    return True


def is_available() -> bool:
    """True if there is a device; does not load the plugin."""
    return _C._device_count() > 0


def plugin_info() -> dict:
    """The PJRT plugin in use: path, platform, version, api, device_kind and emulates_mxu. Loads it."""
    return _C._plugin_info()


class _Fp32Precision:
    """An object whose ``fp32_precision`` is the setting for one kind of product."""

    _op = "all"

    @property
    def fp32_precision(self) -> str:
        """"none", "ieee", "tf32" or "bf16". ValueError for anything else."""
        return _C._backend_precision(self._op)

    @fp32_precision.setter
    def fp32_precision(self, value: str) -> None:
        _C._set_backend_precision(self._op, value)


class _Matmul(_Fp32Precision):
    _op = "matmul"


class _Conv(_Fp32Precision):
    _op = "conv"


class _BackendsModule(_Fp32Precision, types.ModuleType):
    """The module's own setting reads as an attribute."""


matmul = _Matmul()
conv = _Conv()
sys.modules[__name__].__class__ = _BackendsModule

"""torch.backends.tpu: what this build is and can."""

from torch_tpu import __version__ as version
from torch_tpu import _C

__all__ = ["is_available", "is_built", "plugin_info", "version"]


def is_built() -> bool:
    """True: this module exists only where the extension was built."""
    return True


def is_available() -> bool:
    """True if there is a device; does not load the plugin."""
    return _C._device_count() > 0


def plugin_info() -> dict:
    """The PJRT plugin in use: path, platform, version, api and device_kind. Loads it."""
    return _C._plugin_info()

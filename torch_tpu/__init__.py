"""The PyTorch device ``tpu``.

Nothing needs to be imported: ``import torch`` finds this package through its entry point. Everything for users is in
``torch.tpu``. Registering is cheap on purpose: no plugin is loaded and no thread started before the first tensor.
"""

import atexit
import os
import sys
import warnings

__version__ = "0.1.0"

_registered = False


def register() -> None:
    """Makes the device ``tpu`` known to PyTorch. Does nothing if it is known already.

    ``import torch`` does this by itself, except on a machine that has another accelerator and no TPU (see
    ``docs/plugins.md``), or where ``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` is set.
    """
    global _registered
    if _registered:
        return
    import torch
    import torch_tpu._C as _C

    _C._set_search_dirs([p for p in sys.path if p.endswith(("site-packages", "dist-packages")) and os.path.isdir(p)])
    torch.utils.rename_privateuse1_backend("tpu")
    from torch_tpu import _compile_default, _fake, _storage, backends, tpu

    torch._register_device_module("tpu", tpu)
    for name in ("compile_cache", "memory", "random", "streams", "modes"):  # one module under both names, not two copies
        sys.modules["torch.tpu." + name] = sys.modules["torch_tpu.tpu." + name]
    torch.utils.generate_methods_for_privateuse1_backend()
    _fake.register()
    _storage.patch()
    _compile_default.patch()
    # Backward on the thread that asks for it, as for CPU tensors: handing it to a thread of the device takes up to 60 us.
    torch.autograd.set_multithreading_enabled(False)
    torch.set_autocast_dtype("tpu", torch.bfloat16)  # PyTorch's default for out-of-tree devices is float16
    torch.backends.tpu = backends
    atexit.register(_C._shutdown)
    sys.modules["torch.backends.tpu"] = backends
    _registered = True


def _another_accelerator_rules(torch) -> bool:
    """True if this PyTorch drives another accelerator that is present, and nothing here says that a TPU is wanted.

    Only one device type is ``torch.accelerator``, and a registered out-of-tree one always wins; device-neutral programs
    on a GPU machine must go on using the GPU.
    """
    version = torch.version
    present = (
        (version.cuda and os.path.exists("/dev/nvidiactl"))
        or (version.hip and os.path.exists("/dev/kfd"))
        or (getattr(version, "xpu", None) and os.path.exists("/dev/dri"))
    )
    return bool(present) and not os.environ.get("TPU_LIBRARY_PATH") and not _machine_has_tpu()


def _machine_has_tpu(pci_devices: str = "/sys/bus/pci/devices") -> bool:
    """True if there is a PCI device of Google's (vendor 0x1ae0) that is neither a disk nor a network card (class 1, 2)."""
    try:
        for name in os.listdir(pci_devices):
            folder = os.path.join(pci_devices, name)
            with open(os.path.join(folder, "vendor")) as vendor, open(os.path.join(folder, "class")) as kind:
                if vendor.read().strip() == "0x1ae0" and not kind.read().startswith(("0x01", "0x02")):
                    return True
    except OSError:
        pass
    return False


def _autoload() -> None:
    """What ``import torch`` calls. Never raises: a broken installation must not take PyTorch down with it."""
    try:
        import torch

        if not _another_accelerator_rules(torch):
            register()
    except Exception as error:
        warnings.warn(
            f"torch_tpu: the device tpu is not available, because it could not be registered: "
            f"{type(error).__name__}: {error}. Reinstall the package for this PyTorch, or set "
            f"TORCH_DEVICE_BACKEND_AUTOLOAD=0 to silence this.",
            RuntimeWarning,
            stacklevel=2,
        )


import torch  # noqa: E402,F401  at the end: PyTorch's autoloading comes back to _autoload above

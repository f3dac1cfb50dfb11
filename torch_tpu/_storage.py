"""Storages of the device where PyTorch would reach for their memory by address."""

from multiprocessing.reduction import ForkingPickler

import torch
from torch.multiprocessing import reductions


def patch() -> None:
    """Files (pickle, the legacy format of ``torch.save``) are written from and read into a copy on the CPU, where bytes are swapped, too.

    PyTorch moves such bytes by their address, but an address of a ``tpu`` storage cannot be read. To another process (torch.multiprocessing)
    storages don't go at all: what is written there would not be seen here.
    """
    write_file = torch.UntypedStorage._write_file
    set_from_file = torch.UntypedStorage._set_from_file
    byteswap = torch.UntypedStorage._byteswap
    getitem = torch.UntypedStorage.__getitem__

    def _write_file(self, f, is_real_file, save_size, element_size):
        source = self.cpu() if self.device.type == "tpu" else self
        return write_file(source, f, is_real_file, save_size, element_size)

    def _set_from_file(self, f, offset, is_real_file, element_size):
        if self.device.type != "tpu":
            return set_from_file(self, f, offset, is_real_file, element_size)
        host = torch.UntypedStorage(self.nbytes())
        set_from_file(host, f, offset, is_real_file, element_size)
        return self.copy_(host)

    def _byteswap(self, element_size):
        if self.device.type != "tpu":
            return byteswap(self, element_size)
        host = self.cpu()
        byteswap(host, element_size)
        self.copy_(host)

    def __getitem__(self, at):
        if isinstance(at, slice) and self.device.type == "tpu":
            raise NotImplementedError("a storage on device tpu has no parts that are storages: slice a tensor, or storage.cpu()")
        return getitem(self, at)

    def reduce_storage(storage):
        if storage.device.type == "tpu":
            raise RuntimeError(
                "tensors on device tpu can't be shared between processes, since their memory belongs to the process that made them: "
                "send tensor.cpu(), and move it to tpu in the other process"
            )
        return reductions.reduce_storage(storage)

    ForkingPickler.register(torch.UntypedStorage, reduce_storage)
    torch.UntypedStorage._write_file = _write_file
    torch.UntypedStorage._set_from_file = _set_from_file
    torch.UntypedStorage._byteswap = _byteswap
    torch.UntypedStorage.__getitem__ = __getitem__

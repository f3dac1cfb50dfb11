"""Remote stores behind the compile cache: every address that fsspec understands.

The C core works on a local folder, and asks this for what is not there. It checks all that it gets.
"""

import hashlib
import os
import warnings

__all__ = ["Store", "local_folder", "open_store"]


def local_folder(address: str) -> str:
    """Where the local copy of a remote store lies."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "torch_tpu", "compiled", hashlib.sha256(address.encode()).hexdigest()[:16])


def _give_up(address: str, error: BaseException) -> None:
    warnings.warn(
        f"torch_tpu: the compile cache {address} is not used: {type(error).__name__}: {error}",
        RuntimeWarning,
        stacklevel=2,
    )


class Store:
    """Named bytes at an address. The first failure gives one warning; from then on it is an empty store."""

    def __init__(self, address: str):
        import fsspec

        self.address, self.folder = address, local_folder(address)
        self.fs, self.path = fsspec.core.url_to_fs(address)
        self.fs.makedirs(self.path, exist_ok=True)
        self.broken = False

    def get(self, name: str) -> bytes | None:
        if self.broken:
            return None
        try:
            return self.fs.cat_file(f"{self.path}/{name}")
        except FileNotFoundError:
            return None
        except Exception as error:
            self._fail(error)
            return None

    def put(self, name: str, data: bytes) -> None:
        if self.broken:
            return
        try:
            self.fs.pipe_file(f"{self.path}/{name}", data)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.broken = True
        _give_up(self.address, error)


def open_store(address: str) -> Store | None:
    """The store, or None after a warning."""
    try:
        return Store(address)
    except Exception as error:
        _give_up(address, error)
        return None

"""Filling a compile cache for a TPU that isn't there: a rehearsal of the user's own program tells which programs a TPU's process
would compile, libtpu compiles them, and they are stored where that process will look."""

import concurrent.futures
import dataclasses
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Callable, Sequence

from torch_tpu import _cache_remote
from torch_tpu.aot._check import Workers
from torch_tpu.aot._compiler import AotError, CompilerMissing, Options, find_library


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A program that a rehearsal asked for: its name, StableHLO text and XLA's options ("name=value name=value")."""

    name: str
    text: str
    options: str


@dataclasses.dataclass
class Filled:
    """What became of one program on one topology. ``entry``: its file in the cache; ``known``: it was there before;
    ``reason``: empty, or why the compiler refused it; ``seconds`` of compiling."""

    name: str
    topology: str
    entry: str = ""
    known: bool = False
    reason: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.reason


def rehearse(command: Sequence[str], folder: str, library: str | None = None) -> int:
    """Runs a command whose processes have a device ``tpu`` without contents, and gives its exit status. Programs that a TPU would
    need are written to ``folder`` (see :func:`wanted`); what is read from the device is zero."""
    environment = {
        **os.environ,
        "TORCH_TPU_INTERNAL_REHEARSE_TO": folder,
        # It isn't loaded, but says that a TPU is meant, where the machine has another accelerator.
        "TPU_LIBRARY_PATH": find_library(library),
    }
    return subprocess.run(list(command), env=environment).returncode


def wanted(folder: str) -> list[Wanted]:
    """The distinct programs of a rehearsal, in the order in which they were asked for."""
    distinct: dict[tuple[str, str], Wanted] = {}
    for path in sorted(pathlib.Path(folder).glob("*.mlir"), key=lambda p: p.stat().st_mtime_ns):
        options, name = path.with_suffix(".about").read_text().splitlines()[:2]
        text = path.read_text()
        distinct.setdefault((options, text), Wanted(name, text, options))
    return list(distinct.values())


def store(
    programs: Sequence[Wanted],
    topologies: Sequence[str],
    cache: str,
    jobs: int = 1,
    library: str | None = None,
    timeout: float = 3600,
    worker: str | None = None,
    tell: Callable[[Filled], None] = lambda filled: None,
) -> list[Filled]:
    """Compiles programs in full, for one device of each topology, and stores them in a cache folder or at a remote store's
    address. What is there already is not compiled again. ``tell`` hears of each as it is done.

    The key of an entry holds this process's ``XLA_FLAGS`` and ``LIBTPU_INIT_ARGS``: they must be those of the TPU's process.
    """
    remote = None
    if "://" in cache:
        remote = _cache_remote.open_store(cache)
        if not remote:
            raise AotError(f"the compile cache {cache} can't be opened")
    folder = os.path.abspath(remote.folder if remote else cache)
    workers = Workers(library, worker)

    def one(topology: str, program: Wanted) -> Filled:
        filled = Filled(program.name, topology)
        options = Options(effort="full", overrides_text=program.options)
        try:
            told = workers.compile(topology, program.text, options, timeout, cache=folder, name=program.name)
            filled.entry, filled.known = told["entry"], bool(told.get("known"))
            filled.seconds = told.get("seconds", 0.0)
            if remote:
                remote.put(filled.entry, (pathlib.Path(folder) / filled.entry).read_bytes())
        except CompilerMissing:
            raise
        except AotError as error:
            filled.reason = str(error)
        tell(filled)
        return filled

    try:
        with concurrent.futures.ThreadPoolExecutor(max(jobs, 1)) as pool:
            done = list(pool.map(one, *zip(*((t, p) for t in topologies for p in programs), strict=True))) if programs else []
    finally:
        workers.close()
    if remote and remote.broken:
        raise AotError(f"the compile cache {cache} could not be written: the programs are in {folder}")
    return done


def fill(
    command: Sequence[str],
    topologies: Sequence[str],
    cache: str,
    jobs: int = 1,
    library: str | None = None,
    timeout: float = 3600,
    tell: Callable[[Filled], None] = lambda filled: None,
) -> tuple[int, list[Filled]]:
    """Rehearses a command and stores what it asked for. Gives the command's exit status and what became of each program."""
    with tempfile.TemporaryDirectory(prefix="torch_tpu_rehearsal_") as folder:
        status = rehearse(command, folder, library)
        return status, store(wanted(folder), topologies, cache, jobs, library, timeout, tell=tell)

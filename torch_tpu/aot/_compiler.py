"""The TPU's compiler in a child process: it needs no TPU, and when it aborts only the child is gone."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import select
import signal
import subprocess
import tempfile
import time
from typing import Any

# libtpu would ask a metadata server that isn't there, for minutes; and two processes could not load it side by side.
_ENVIRONMENT = {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}


# XLA's own levels O0 and O1; and whatever the compiler does by itself.
EFFORTS = {"fast": 9, "normal": 19, "full": 0}


class AotError(RuntimeError):
    """Ahead-of-time compilation failed; the message says how."""


class CompilerMissing(AotError):
    """libtpu, or the worker that loads it, is not installed."""


class ProgramRefused(AotError):
    """The compiler gave an error for this program. ``code`` is the name of the core's status, such as "invalid argument"."""

    def __init__(self, message: str, code: str):
        super().__init__(message)
        self.code = code


class OutOfHbm(ProgramRefused):
    """The program needs more memory than a device has."""


class CompilerDied(AotError):
    """The compiler ended its process, or took too long. ``stderr`` is what it printed last."""

    def __init__(self, message: str, stderr: str):
        super().__init__(f"{message}\n{stderr}" if stderr else message)
        self.stderr = stderr


def find_library(path: str | None = None) -> str:
    """The file of a PJRT plugin that compiles for topologies: ``path`` if given, else that of the package libtpu."""
    if path:
        if not os.path.isfile(path):
            raise CompilerMissing(f"'{path}' is not a file: it should be a PJRT plugin such as libtpu.so")
        return path
    spec = importlib.util.find_spec("libtpu")  # not imported: that would set TPU_LIBRARY_PATH for this process
    for folder in (spec.submodule_search_locations or []) if spec else []:
        library = os.path.join(folder, "libtpu.so")
        if os.path.isfile(library):
            return library
    raise CompilerMissing(
        "Compiling for a TPU takes its compiler, libtpu, which is not installed. It needs no TPU, and is a download of "
        "some 140 MB: pip install 'torch-tpu-c[tpu]' (or pip install libtpu)."
    )


def find_worker() -> str:
    """The executable that loads the compiler; it is installed beside the extension module."""
    import torch_tpu._C as _C

    worker = pathlib.Path(_C.__file__).resolve().with_name("tt_aot_worker")
    if not os.access(worker, os.X_OK):
        raise CompilerMissing(f"{worker} is missing or not executable: reinstall torch-tpu-c")
    return str(worker)


@dataclasses.dataclass(frozen=True)
class Topology:
    """What the compiler says of a topology: devices, their kind, and bytes of memory of each (0: not told)."""

    name: str
    devices: int
    kind: str
    version: str
    memory_bytes: int
    api_minor: int


@dataclasses.dataclass
class Options:
    """How a program is compiled.

    ``partitions``: devices over which one program is split. ``effort``: "fast" and "normal" compile several times as fast
    as "full", which is what a run on a TPU uses. ``xla``: XLA's options, by name; ``overrides_text``: the same as the core
    has them, in front of these.
    """

    replicas: int = 1
    partitions: int = 1
    effort: str = "full"
    xla: dict[str, Any] = dataclasses.field(default_factory=dict)
    overrides_text: str = ""

    def __post_init__(self) -> None:
        if self.effort not in EFFORTS:
            raise ValueError(f"effort is one of {', '.join(EFFORTS)}, got {self.effort!r}")

    def overrides(self) -> str:
        for name, value in self.xla.items():
            if any(c.isspace() for c in f"{name}{value}"):
                raise ValueError(f"the XLA option {name}={value!r} has spaces in it, which options can't have")
        named = [f"{n}={str(v).lower() if isinstance(v, bool) else v}" for n, v in self.xla.items()]
        return " ".join([*self.overrides_text.split(), *named])


def _died(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"


class Compiler:
    """A child process that compiles for one topology. Used in a ``with`` block; started at first use, and again after it died."""

    def __init__(self, topology: str, library: str | None = None, worker: str | None = None):
        if not topology or any(c in topology for c in "\t\n\0"):
            raise ValueError(f"{topology!r} is not a topology's name, such as 'v6e:2x4'")
        self.name = topology
        self._command = [worker or find_worker(), find_library(library), topology]
        self._process: subprocess.Popen | None = None
        self._topology: Topology | None = None

    def __enter__(self) -> "Compiler":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
            self._process = None
            self._stderr.close()

    @property
    def topology(self) -> Topology:
        if not self._topology:
            self._start()
        return self._topology

    def _start(self) -> None:
        self._stderr = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, **_ENVIRONMENT},
        )
        self._pending = b""
        told = self._answer(f"the compiler for {self.name}", timeout=120)
        if "error" in told:
            self.close()
            raise AotError(f"{self._command[1]}: {told['error']}")
        self._topology = Topology(
            self.name, int(told["devices"]), told["kind"], told["version"], int(told["memory_bytes"]), int(told["api_minor"])
        )

    def _printed(self) -> str:
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - 6000))
        return self._stderr.read().decode(errors="replace").strip()

    def _answer(self, what: str, timeout: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        out = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            if not select.select([out], [], [], max(0.0, deadline - time.monotonic()))[0]:
                printed = self._printed()
                self.close()
                raise CompilerDied(f"{what}: no answer within {timeout:.0f} seconds, so its process was ended.", printed)
            block = os.read(out, 1 << 16)
            if not block:
                code, printed = self._process.wait(), self._printed()
                self.close()
                raise CompilerDied(f"{what}: the compiler's process {_died(code)}. It printed:", printed)
            self._pending += block
        line, _, self._pending = self._pending.partition(b"\n")
        return json.loads(line)

    def compile(
        self,
        program: str,
        options: Options | None = None,
        store: str | None = None,
        timeout: float = 3600,
        cache: str | None = None,
        name: str = "",
    ) -> dict[str, Any]:
        """Compiles a StableHLO text and returns what the compiler tells of it: seconds, flops, bytes_accessed, code_bytes,
        argument_bytes, output_bytes, alias_bytes, temp_bytes, peak_bytes (-1: not told; all for one device), fingerprint.

        ``store``: a file for the compiled program. ``cache``: a compile cache's folder, where it is stored under ``name`` as a
        process that has these devices would; then ``entry`` is its file, and what was there before is not compiled: ``known`` is
        told instead of all else. Raises :class:`OutOfHbm`, :class:`ProgramRefused` or :class:`CompilerDied`.
        """
        options = options or Options()
        if not self._process:
            self._start()
        with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
            file.write(program)
            file.flush()
            fields = [
                file.name,
                store or "",
                options.replicas,
                options.partitions,
                int(options.partitions > 1),
                EFFORTS[options.effort],
            ]
            named = " ".join(name.split())
            request = "\t".join(map(str, [*fields, options.overrides(), cache or "", named])) + "\n"
            try:
                self._process.stdin.write(request.encode())
                self._process.stdin.flush()
            except BrokenPipeError:
                pass  # the answer's absence tells more
            told = self._answer(f"compiling for {self.name}", timeout)
        if "error" in told:
            kind = OutOfHbm if told["code"] == "out of memory" else ProgramRefused
            arguments = (told["error"], told["code"])
            raise kind(*arguments)
        return told

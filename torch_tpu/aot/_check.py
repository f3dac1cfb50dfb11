"""Does every program of a folder compile for a TPU? Each distinct one is compiled once for each topology, several at a time."""

import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import queue
import re
import tempfile
import threading
import time
from collections import Counter
from typing import Any

from torch_tpu.aot._compiler import AotError, Compiler, CompilerDied, CompilerMissing, Options, find_library

SAVE_EVERY = 60  # seconds
RENEW_EVERY = 500  # programs: a compiler's process grows by megabytes with each
TOPOLOGIES = ("v5e:1x1", "v6e:1x1", "tpu7x:2x2x1")


@dataclasses.dataclass
class Outcome:
    """One program on one topology. ``files``: those that have this text. ``reason`` is empty if it compiled."""

    files: list[str]
    topology: str
    reason: str
    seconds: float
    cached: bool = False

    @property
    def ok(self) -> bool:
        return not self.reason


def normalized(text: str) -> str:
    """The text without its module's name, which is no part of the program."""
    return re.sub(r"^module @\S+", "module", text.strip(), count=1)


def fingerprint(text: str) -> str:
    return hashlib.sha256(normalized(text).encode()).hexdigest()[:32]


def library_mark(path: str) -> str:
    """What tells one version of the compiler from another."""
    info = os.stat(path)
    return f"{os.path.basename(path)} {info.st_size} {int(info.st_mtime)}"


class _Memory:
    """What is known from earlier: a JSON file of reasons by compiler, topology and program."""

    def __init__(self, path: str | None, library: str):
        self.path, self.mark = path, library_mark(library)
        self.known: dict[str, dict[str, Any]] = {}
        self.lock, self.saved_at = threading.Lock(), time.monotonic()
        if path and os.path.exists(path):
            try:
                with open(path) as f:
                    held = json.load(f)
                self.known = held["programs"] if held.get("compiler") == self.mark else {}
            except (ValueError, KeyError, TypeError):
                pass  # damaged: everything is asked again

    def add(self, key: str, reason: str, seconds: float) -> None:
        with self.lock:
            self.known[key] = {"reason": reason, "seconds": seconds}
            if time.monotonic() > self.saved_at + SAVE_EVERY:  # a check may take hours, and be stopped
                self.save()

    def save(self) -> None:
        self.saved_at = time.monotonic()
        if not self.path:
            return
        folder = os.path.dirname(os.path.abspath(self.path))
        os.makedirs(folder, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as f:
            json.dump({"compiler": self.mark, "programs": self.known}, f)
        os.replace(f.name, self.path)


class Workers:
    """Compilers that are lent to one thread at a time, as many for each topology as are needed at once."""

    def __init__(self, library: str | None, worker: str | None):
        self.library, self.worker = library, worker
        self.idle: dict[str, queue.SimpleQueue[Compiler]] = {}
        self.all: list[Compiler] = []
        self.compiled: Counter[Compiler] = Counter()

    def compile(self, topology: str, text: str, options: Options, timeout: float, **more: str) -> dict[str, Any]:
        idle = self.idle.setdefault(topology, queue.SimpleQueue())
        try:
            compiler = idle.get_nowait()
        except queue.Empty:
            compiler = Compiler(topology, self.library, self.worker)
            self.all.append(compiler)
        try:
            return compiler.compile(text, options, timeout=timeout, **more)
        finally:
            self.compiled[compiler] += 1
            if self.compiled[compiler] % RENEW_EVERY == 0:
                compiler.close()  # the next program starts it again
            idle.put(compiler)

    def close(self) -> None:
        for compiler in self.all:
            compiler.close()


def check_programs(
    programs: dict[str, str],
    topologies: list[str],
    jobs: int = 1,
    cache: str | None = None,
    library: str | None = None,
    timeout: float = 300,
    effort: str = "normal",
    worker: str | None = None,
) -> list[Outcome]:
    """Compiles programs, which are texts by their names. One that makes the compiler abort, or takes longer than ``timeout``
    seconds, is an outcome as any other."""
    known = _Memory(cache, find_library(library))
    distinct: dict[str, tuple[str, list[str]]] = {}
    for name, text in sorted(programs.items()):
        distinct.setdefault(fingerprint(text), (text, []))[1].append(name)
    workers = Workers(library, worker)

    def one(topology: str, mark: str) -> Outcome:
        text, names = distinct[mark]
        key = f"{topology} {mark} {effort}"
        if held := known.known.get(key):
            return Outcome(names, topology, held["reason"], held["seconds"], cached=True)
        reason, seconds = "", 0.0
        try:
            seconds = workers.compile(topology, text, Options(effort=effort), timeout)["seconds"]
        except CompilerMissing:
            raise
        except CompilerDied as error:
            reason = f"the compiler died: {error}"
        except AotError as error:
            reason = str(error)
        known.add(key, reason, seconds)
        return Outcome(names, topology, reason, seconds)

    try:
        with concurrent.futures.ThreadPoolExecutor(max(jobs, 1)) as pool:
            return list(pool.map(one, *zip(*((t, m) for t in topologies for m in distinct), strict=True))) if distinct else []
    finally:
        workers.close()
        known.save()


def check_folder(
    folder: str,
    topologies: list[str],
    jobs: int = 1,
    cache: str | None = None,
    library: str | None = None,
    timeout: float = 300,
    **options: Any,
) -> list[Outcome]:
    """The same for all .mlir files below a folder. Raises FileNotFoundError if there are none."""
    root = pathlib.Path(folder)
    files = sorted(root.rglob("*.mlir"))
    if not files:
        raise FileNotFoundError(f"there are no .mlir files in {folder}")
    programs = {str(p.relative_to(root)): p.read_text() for p in files}
    return check_programs(programs, topologies, jobs, cache, library, timeout, **options)


def short(reason: str) -> str:
    """A reason's first line, without what differs from program to program."""
    line = next((s.strip() for s in reason.splitlines() if s.strip()), "")
    return re.sub(r"%\S+|\b\d{3,}\b", "_", line)[:200]


def summary(outcomes: list[Outcome]) -> str:
    """What failed and why, equal reasons together; then how many were compiled."""
    lines = []
    failed = [o for o in outcomes if not o.ok]
    for reason, count in Counter(short(o.reason) for o in failed).most_common():
        lines.append(f"{count} x {reason}")
        for o in [o for o in failed if short(o.reason) == reason][:8]:
            lines.append(f"    {o.topology}  {o.files[0]}" + (f" and {len(o.files) - 1} more" if len(o.files) > 1 else ""))
    fresh = [o for o in outcomes if not o.cached]
    lines.append(
        f"{len(outcomes) - len(failed)} of {len(outcomes)} compile ({len(outcomes) - len(fresh)} known from before); "
        f"{sum(o.seconds for o in fresh):.1f} s of compiling"
    )
    return "\n".join(lines)

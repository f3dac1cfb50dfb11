"""The processes that are measured: started, asked for samples, never waited for longer than a limit."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from spec import BODY, Backend, Workload

HERE = Path(__file__).resolve().parent
# Neither what the caller's shell holds nor an earlier run may fill a cache.
FORGOTTEN = ("TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT", "JAX_COMPILATION_CACHE_DIR", "TORCHINDUCTOR_FORCE_DISABLE_CACHES")
ALONE = {"TORCH_TPU_TIER2_COMPILATION_CACHE": "disabled"}
ALONE |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}


class Failed(Exception):
    """A process that can't be measured: its own error, its death, or the limit."""


class Setup:
    """Who runs what, and where: interpreters and variables by backend, the floor's program and plugin."""

    def __init__(self, limit: float, seconds: float):
        self.limit, self.seconds = limit, seconds
        self.python: dict[str, str] = {}
        self.env: dict[str, dict[str, str]] = {}
        self.floor = self.plugin = ""
        self.folder = tempfile.mkdtemp(prefix="bench")

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_folder(self) -> str:
        return tempfile.mkdtemp(dir=self.folder)

    def command(self, backend: Backend, name: str, clock: str, descriptor: int) -> list[str]:
        if backend.kind == "floor":
            return [self.floor, self.plugin, name, str(descriptor), str(self.seconds)]
        job = {"name": name, "body": BODY.get(name, name), "clock": clock, "seconds": self.seconds, "kind": backend.kind}
        job |= {"device": backend.device, "compiled": backend.compiled}
        python = self.python.get(backend.name, sys.executable)
        return [python, str(HERE / "worker.py"), str(descriptor), json.dumps(job)]

    def environment(self, backend: Backend, cache: str | None) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if name not in FORGOTTEN}
        env |= ALONE | {"TORCHINDUCTOR_CACHE_DIR": cache or self.new_folder()} | dict(backend.env)
        if backend.kind == "jax":
            env["PJRT_NAMES_AND_LIBRARY_PATHS"] = f"plugin:{self.plugin}" if self.plugin else ""
        if cache:
            env["TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT"] = env["JAX_COMPILATION_CACHE_DIR"] = cache
            env["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
            env["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
        return env | self.env.get(backend.name, {})


class Process:
    def __init__(self, setup: Setup, backend: Backend, name: str, clock: str = "held", cache: str | None = None):
        self.limit, self.unread = setup.limit, b""
        self.answers, theirs = os.pipe()
        self.log = tempfile.TemporaryFile()
        self.started = time.monotonic()
        try:
            self.process = subprocess.Popen(
                setup.command(backend, name, clock, theirs), env=setup.environment(backend, cache), cwd=setup.folder,
                pass_fds=(theirs,), stdin=subprocess.PIPE, stdout=self.log, stderr=self.log, start_new_session=True,
            )  # fmt: skip
        except OSError as e:
            os.close(self.answers)
            raise Failed(str(e)) from None
        finally:
            os.close(theirs)

    def answer(self) -> dict:
        end = time.monotonic() + self.limit
        while b"\n" not in self.unread:
            if not select.select([self.answers], [], [], max(0, end - time.monotonic()))[0]:
                raise Failed(f"no answer in {self.limit:.0f} s")
            more = os.read(self.answers, 1 << 16)
            if not more:
                raise Failed(self.last_words())
            self.unread += more
        line, self.unread = self.unread.split(b"\n", 1)
        values = json.loads(line)
        if "error" in values:
            raise Failed(values["error"])
        return values

    def sample(self) -> float:
        try:
            self.process.stdin.write(b"s\n")
            self.process.stdin.flush()
        except OSError:
            raise Failed(self.last_words()) from None
        return self.answer()["seconds"]

    def totals(self) -> dict:
        self.process.stdin.close()
        return self.answer()

    def last_words(self) -> str:
        try:
            status = self.process.wait(10)
        except subprocess.TimeoutExpired:
            return "it closed its answers and went on running"
        self.log.seek(0)
        lines = [line.strip() for line in self.log.read().decode(errors="replace").splitlines() if line.strip()]
        # An abort's reason comes before the stack that is printed last.
        telling = [line for line in lines if "Check failed" in line or "Error:" in line] or lines[-1:] or ["nothing was printed"]
        return f"ended with status {status}: {telling[0]}"

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        if self.process.stdin and not self.process.stdin.closed:
            try:
                self.process.stdin.close()
            except OSError:
                pass
        os.close(self.answers)
        self.log.close()


class Held:
    """All samples from one process."""

    def __init__(self, setup: Setup, backend: Backend, workload: Workload):
        self.process = Process(setup, backend, workload.name)

    def start(self) -> dict:
        return self.process.answer()

    def sample(self) -> tuple[float, dict]:
        return self.process.sample(), {}

    def finish(self) -> dict:
        return self.process.totals()

    def close(self):
        self.process.close()


class Fresh:
    """Each sample from a new process."""

    def __init__(self, setup: Setup, backend: Backend, workload: Workload):
        self.setup, self.backend, self.workload = setup, backend, workload
        self.cache = setup.new_folder() if workload.warm else None

    def start(self) -> dict:
        if self.workload.warm:
            self.sample()
        return {}

    def sample(self) -> tuple[float, dict]:
        cache = self.cache or self.setup.new_folder()
        process = Process(self.setup, self.backend, self.workload.name, self.workload.clock, cache)
        try:
            values = process.answer()
            return values.pop("seconds", time.monotonic() - process.started), values
        finally:
            process.close()

    def finish(self) -> dict:
        return {}

    def close(self):
        pass


def open_source(setup: Setup, backend: Backend, workload: Workload) -> Held | Fresh:
    return (Held if workload.clock == "held" else Fresh)(setup, backend, workload)

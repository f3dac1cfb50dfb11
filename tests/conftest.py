"""Without the device there is nothing to test: the run fails instead of skipping."""

import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("TORCH_TPU_INTERNAL_BOUNDED_SIZES", "off")  # else programs would depend on the sizes of tests before

import pytest
import torch
import torch._functorch.config

DEVICE = "tpu"
NO_CACHE = {"TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}  # in child processes
torch._functorch.config.enable_autograd_cache = False  # else a graph may come from an earlier run, and nothing is traced


def pytest_sessionstart(session):
    if not hasattr(torch, "tpu") or not torch.tpu.is_available():
        pytest.exit("the device tpu is not there: run `make setup` and test with .venv/bin/python", returncode=3)


@pytest.fixture(autouse=True)
def _clean():
    """Every test starts from the same seed and leaves no failed work behind."""
    torch.manual_seed(0)
    yield
    torch.tpu.synchronize()


@pytest.fixture
def native():
    """Nothing may run on the CPU instead."""
    with torch.tpu.set_cpu_fallback("error"):
        yield


@pytest.fixture
def fresh_dynamo():
    """Nothing is compiled yet, and no counter has counted."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="session")
def mock(tmp_path_factory):
    """The core's mock plugin, built here; and the worker that the package installed."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if not compiler:
        pytest.skip("no C compiler, to build the mock plugin with")
    library = tmp_path_factory.mktemp("mock") / "mock.so"
    csrc = pathlib.Path(__file__).parent.parent / "csrc"
    sources = [*map(str, (csrc / "pjrt/mock").glob("*.c")), str(csrc / "base/dtype.c")]
    command = [compiler, "-std=c17", "-D_GNU_SOURCE", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{csrc}", "-o", str(library)]
    subprocess.run([*command, *sources, "-lpthread", "-ldl"], check=True, capture_output=True)
    return str(library)


def programs_by_kernels(code, folder):
    """The programs that code needs with own kernels and without, as one text each."""
    for on in ("1", "0"):
        (folder / on).mkdir()
        python_output(code, TORCH_TPU_INTERNAL_FFI=on, TORCH_TPU_DUMP_TO=str(folder / on))
        yield "".join(p.read_text() for p in (folder / on).iterdir())


def compiled(function, **options):
    return torch.compile(function, backend="tpu", **options)


def to_device(value, device=DEVICE):
    if isinstance(value, torch.Tensor):
        moved = value.detach().to(device)
        return moved.requires_grad_() if value.requires_grad else moved
    if isinstance(value, list | tuple):
        return type(value)(to_device(v, device) for v in value)
    if isinstance(value, dict):
        return {k: to_device(v, device) for k, v in value.items()}
    return value


def to_cpu(value):
    return to_device(value, "cpu")


def assert_same(actual, expected, **tolerance):
    torch.testing.assert_close(to_cpu(actual), to_cpu(expected), equal_nan=True, **tolerance)


def check(function, *args, **tolerance):
    """The function gives the same on tpu as on the CPU. Its arguments must be CPU tensors or plain values."""
    expected = function(*args)
    actual = function(*to_device(args))
    for result in actual if isinstance(actual, list | tuple) else (actual,):
        if isinstance(result, torch.Tensor):
            assert result.device.type == DEVICE
    assert_same(actual, expected, **tolerance)
    return actual


def run_python(code: str, timeout: float = 120, **environment: str | None) -> subprocess.CompletedProcess:
    """Runs code in a new process, which finds the modules of this folder. A variable that is None is unset."""
    path = os.pathsep.join(filter(None, [str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    env = {**NO_CACHE, **os.environ, "PYTHONPATH": path, **{k: v for k, v in environment.items() if v is not None}}
    for name in (k for k, v in environment.items() if v is None):
        env.pop(name, None)
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=env, capture_output=True, text=True, timeout=timeout
    )


def python_output(code: str, **options) -> str:
    done = run_python(code, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()

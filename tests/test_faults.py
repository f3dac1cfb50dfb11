"""Any call of the plugin may fail, once: it is told once, nothing leaks, and the next step is right (see faults.py)."""

import os

import pytest
import torch
from conftest import python_output

ALL = "TORCH_TPU_TEST_EVERYTHING" in os.environ
COLD = {"TORCH_TPU_MAX_PROGRAMS": "1"}  # each step compiles its programs again
# One process for each line: its modes, how many faults of each kind, the environment.
RUNS = {
    "warm": ("strict,blocking,queued,deferred,compiled", 2, {}),
    "cold": ("cold", 1, COLD),
    "cold, with a cache": ("cached cold", 2, COLD),
    "compiling graphs": ("compiled cold", 1, {}),
}


@pytest.mark.parametrize("run", RUNS)
def test_any_call_may_fail_once(run, mock, tmp_path):
    modes, most, environment = RUNS[run]
    if "cache" in run:
        environment = {**environment, "TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT": str(tmp_path)}
    out = python_output(f"import faults; faults.main({modes!r}, {0 if ALL else most})", timeout=900, TPU_LIBRARY_PATH=mock,
                        TT_MOCK_BEFORE=torch.backends.tpu.plugin_info()["path"], **environment)
    print(out)
    told = "made good" if "cache" in run else "told"  # a program that can't be loaded is compiled
    assert all(told in line for line in out.splitlines())


def test_own_kernels_are_there_behind_the_mock(mock, tmp_path):
    """Else the faults above would not meet them."""
    out = python_output("import torch; print(torch.tensor([3, 1, 2], device='tpu').sort()[0].tolist())", TPU_LIBRARY_PATH=mock,
                        TT_MOCK_BEFORE=torch.backends.tpu.plugin_info()["path"], TORCH_TPU_DUMP_TO=str(tmp_path))
    assert out == "[1, 2, 3]" and any("tt_sort" in p.read_text() for p in tmp_path.glob("*sort*"))

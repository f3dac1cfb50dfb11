"""Any call of the plugin may fail, once: it is told once, nothing leaks, and the next step is right (see faults.py)."""

import os

import pytest
import torch
from conftest import python_output

ALL = "TORCH_TPU_TEST_EVERYTHING" in os.environ
# How many faults of each kind; the environment.
MODES = {
    "strict": (4, {}),
    "blocking": (3, {"TORCH_TPU_LAUNCH_BLOCKING": "1"}),
    "queued": (3, {}),
    "deferred": (3, {}),
    "compiled": (2, {}),
    "cold": (1, {"TORCH_TPU_MAX_PROGRAMS": "1"}),  # so that each step compiles its programs again
    "cached cold": (3, {"TORCH_TPU_MAX_PROGRAMS": "1", "TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT": "cache"}),
    "compiled cold": (1, {}),
}


@pytest.mark.parametrize("mode", MODES)
def test_any_call_may_fail_once(mode, mock, tmp_path):
    most, environment = MODES[mode]
    if "TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT" in environment:
        environment = {**environment, "TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT": str(tmp_path)}
    out = python_output(f"import faults; faults.main({mode!r}, {0 if ALL else most})", timeout=900, TPU_LIBRARY_PATH=mock,
                        TT_MOCK_BEFORE=torch.backends.tpu.plugin_info()["path"], **environment)
    print(out)
    assert " told': " in out or mode == "cached cold"  # a program that can't be loaded is compiled


def test_own_kernels_are_there_behind_the_mock(mock, tmp_path):
    """Else the faults above would not meet them."""
    out = python_output("import torch; print(torch.tensor([3, 1, 2], device='tpu').sort()[0].tolist())", TPU_LIBRARY_PATH=mock,
                        TT_MOCK_BEFORE=torch.backends.tpu.plugin_info()["path"], TORCH_TPU_DUMP_TO=str(tmp_path))
    assert out == "[1, 2, 3]" and any("@tt_sort" in p.read_text() for p in tmp_path.glob("*sort*"))

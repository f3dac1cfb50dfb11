"""PyTorch's operator database (operator_database.py): what is not listed in known_differences.py is the CPU's answer."""

import os
import pathlib
import subprocess
import sys

import known_differences
import operator_database
import pytest

EVERYTHING = bool(os.environ.get("TORCH_TPU_TEST_EVERYTHING"))
OTHERS = "float64,int64,int32,bool,bfloat16,float16,complex64"
# mode, dtypes, samples of an operator; then the same for the quick part, which takes one operator in so many
RUNS = {
    "strict": ("strict", "float32", 1000, "float32,int64", 2, 8),
    "other dtypes": ("strict", OTHERS, 8, "float64,bool,bfloat16,complex64", 1, 13),
    "fused": ("fuse", "float32", 2, "float32", 1, 24),
    "compiled": ("compile", "float32", 2, "float32", 1, 40),
    "forms for TPUs": ("tpu", "float32,int64", 2, "float32,int64", 1, 24),
}


@pytest.mark.parametrize("name", RUNS)
def test_operators_are_the_cpus(name, tmp_path):
    mode, dtypes, samples, *quick = RUNS[name]
    every = 1
    out = pathlib.Path(__file__).parent.parent / "build/conformance" / f"{name.replace(' ', '_')}.jsonl"
    if not EVERYTHING:
        (dtypes, samples, every), out = quick, tmp_path / "rows.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.unlink(missing_ok=True)
    command = [sys.executable, operator_database.__file__, str(out), "--mode", mode, "--dtypes", dtypes]
    subprocess.run([*command, "--samples", str(samples), "--every", str(every)], check=True, capture_output=True, timeout=10000)
    lines = [line for line in operator_database.read(out) if "op" in line]
    assert len(lines) > 10
    wrong = [line for line in lines if line["right"] < line["samples"] and not known_differences.reason_of(line)]
    assert not wrong, "\n".join(f"{w['op']} {w['dtype']} {w['direction']}: {w['right']} of {w['samples']}: {w['reason']}" for w in wrong)
    if EVERYTHING and name == "other dtypes":
        assert not known_differences.unused(lines), "these are right now: take them out of known_differences.py"

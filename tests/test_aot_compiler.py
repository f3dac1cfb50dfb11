"""The compiler of a TPU that isn't there is a child process that may fail in every way: on the mock plugin."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import python_output

from torch_tpu import aot
from torch_tpu.aot import _check



GOOD = "module { func.func public @main(%a: tensor<4xi32> {tf.aliasing_output = 0 : i32}, %b: tensor<8xf32>) -> tensor<4xi32> { return %a : tensor<4xi32> } }"


def test_a_program_is_compiled_in_a_child(mock, tmp_path):
    with aot.Compiler("mock:2x4", mock) as compiler:
        assert compiler.topology == aot.Topology("mock:2x4", 8, "mock", "mock", 2**36, 81)
        told = compiler.compile(GOOD, aot.Options(partitions=8, xla={"some_option": True}), store=str(tmp_path / "program"))
        assert told["argument_bytes"] == 48 and told["alias_bytes"] == 16 and told["peak_bytes"] == 48
        assert (tmp_path / "program").stat().st_size == told["stored_bytes"]
        with pytest.raises(aot.ProgramRefused, match="cannot parse") as refused:
            compiler.compile("nonsense")
        assert refused.value.code == "invalid argument"
        with pytest.raises(aot.ProgramRefused, match="for 9 devices, the topology has 8"):
            compiler.compile(GOOD, aot.Options(partitions=9))
        huge = GOOD.replace("8xf32", "1000000x1000000xf32")
        with pytest.raises(aot.OutOfHbm, match="out of memory"):
            compiler.compile(huge)
        assert compiler.compile(GOOD)["fingerprint"] == told["fingerprint"]


def test_an_abort_is_an_error_that_shows_what_was_printed(mock):
    with aot.Compiler("mock:1x1", mock) as compiler:
        compiler.compile(GOOD)
        with pytest.raises(aot.CompilerDied, match="SIGABRT") as died:
            compiler.compile("// mock: abort\n" + GOOD)
        assert "a check failed" in died.value.stderr and "a check failed" in str(died.value)
        assert compiler.compile(GOOD)["outputs"] == 1  # in a new process


def test_a_compiler_that_takes_too_long_is_ended(tmp_path):
    slow = tmp_path / "slow"
    slow.write_text(
        '#!/bin/sh\necho \'{"devices": 1, "kind": "k", "version": "", "memory_bytes": 0, "api_minor": 1}\'\necho thinking >&2\nexec sleep 60\n'
    )
    slow.chmod(0o755)
    library = tmp_path / "library.so"
    library.touch()
    with aot.Compiler("any:1", str(library), str(slow)) as compiler:
        with pytest.raises(aot.CompilerDied, match="no answer within 1 seconds(.|\n)*thinking"):
            compiler.compile(GOOD, timeout=1)


def test_what_cannot_be_opened_is_told(mock, tmp_path, monkeypatch):
    with pytest.raises(aot.AotError, match="mock:nowhere"), aot.Compiler("mock:nowhere", mock) as compiler:
        compiler.compile(GOOD)
    with pytest.raises(aot.CompilerMissing, match="is not a file"):
        aot.Compiler("v5e:1x1", str(tmp_path / "absent.so"))
    with pytest.raises(ValueError, match="not a topology's name"):
        aot.Compiler("", mock)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(aot.CompilerMissing, match="pip install"):
        aot.find_library()
    with pytest.raises(ValueError, match="has spaces"):
        aot.Options(xla={"a": "b c"}).overrides()
    with pytest.raises(ValueError, match="effort is one of"):
        aot.Options(effort="some")
    assert aot.Options(xla={"a": True, "b": 3, "c": "x"}).overrides() == "a=true b=3 c=x"


def test_a_text_makes_a_report(mock):
    r = aot.compile_text(GOOD, topology="mock:1x1", library=mock)
    assert r.fits and r.peak_bytes == 48 and [i.shape for i in r.inputs] == [(4,), (8,)] and r.chip is None
    assert "compiles and fits" in str(r) and "flop" in str(r)
    assert aot.compile_text(GOOD.replace("8xf32", "99999999999xf32"), topology="mock:1x1", library=mock).verdict == "too large"


# ---- checking folders -----------------------------------------------------------------------------------------------


def test_each_distinct_program_is_compiled_once(mock, tmp_path):
    folder, cache = tmp_path / "programs", str(tmp_path / "known" / "programs.json")
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.mlir").write_text(GOOD.replace("module", f"module @{name}"))
    (folder / "bad.mlir").write_text("nonsense")
    (folder / "abort.mlir").write_text("// mock: abort\n" + GOOD)
    topologies = ["mock:1x1", "mock:2x2"]
    outcomes = _check.check_folder(str(folder), topologies, 2, cache, mock)
    assert len(outcomes) == 6 and not any(o.cached for o in outcomes)
    for t in topologies:
        by_file = {o.files[0]: o for o in outcomes if o.topology == t}
        assert by_file["a.mlir"].ok and by_file["a.mlir"].files == ["a.mlir", "b.mlir"]
        assert "cannot parse" in by_file["bad.mlir"].reason and "SIGABRT" in by_file["abort.mlir"].reason
    text = _check.summary(outcomes)
    assert "2 of 6 compile" in text and "abort.mlir" in text
    again = _check.check_folder(str(folder), topologies, 2, cache, mock)
    assert all(o.cached for o in again) and [o.reason for o in again] == [o.reason for o in outcomes]
    os.utime(mock, (1, 1))  # another compiler
    assert not any(o.cached for o in _check.check_folder(str(folder), topologies, 2, cache, mock))
    with open(cache, "w") as f:
        f.write("{")
    assert len(_check.check_folder(str(folder), topologies, 1, cache, mock)) == 6
    with pytest.raises(FileNotFoundError, match="no .mlir files"):
        _check.check_folder(str(tmp_path / "known"), topologies, 1, None, mock)


def test_programs_of_operators(tmp_path):
    python_output(
        f"""
import torch
from torch_tpu.aot import _programs
fates = _programs.emit({str(tmp_path)!r}, [torch.float32, torch.int64], 2, lambda name: name in ("add", "mm", "nonzero", "t"))
assert fates["written"] >= 2 and fates["has no program"] >= 1 and any("nonzero" in k for k in fates), fates
"""
    )
    texts = {p.name: p.read_text() for p in tmp_path.glob("*.mlir")}
    overloads = json.loads((tmp_path / "overloads.json").read_text())
    assert overloads.keys() == texts.keys() and {"mm", "abs", "sgn"} <= set(overloads["mm.float32.0.mlir"])  # and its gradients
    assert any(n.startswith("add.float32") for n in texts) and all("@main" in t for t in texts.values())
    assert "dot_general" in texts["mm.float32.0.mlir"]


def command_line(*args):
    return subprocess.run([sys.executable, "-m", "torch_tpu", "aot", *map(str, args)], capture_output=True, text=True, timeout=120)


def test_the_command_line(mock, tmp_path):
    program = tmp_path / "p.mlir"
    program.write_text(GOOD)
    on_mock = ("--topology", "mock:1x1", "--library", mock)
    ran = command_line("compile", program, *on_mock, "--json", tmp_path / "r.json", "--html", tmp_path / "r.html")
    assert ran.returncode == 0, ran.stderr
    assert "compiles and fits" in ran.stdout and json.loads((tmp_path / "r.json").read_text())["verdict"] == "fits"
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    ran = command_line("programs", tmp_path / "ops", "--only", "^(exp|mm)$", "--dtype", "float32")
    assert ran.returncode == 0 and "written" in ran.stdout, ran.stdout + ran.stderr
    assert (tmp_path / "ops" / "mm.float32.0.mlir").exists()
    shutil.rmtree(tmp_path / "ops")
    ran = command_line("check", tmp_path, *on_mock)
    assert ran.returncode == 0 and "1 of 1 compile" in ran.stdout
    ran = command_line("compile", program, "--topology", "mock:1x", "--library", mock)
    assert ran.returncode == 2 and "mock:1x" in ran.stderr

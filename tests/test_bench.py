"""The benchmark as a tool: what it measures is right and complete, and it survives backends that don't work. Never speed."""

import ast
import json
import math
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parent.parent / "bench"


@pytest.fixture
def spec(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import spec

    return spec


def run_bench(folder: Path, *options: str) -> tuple[dict, str]:
    results, page = folder / "results.json", folder / "page.md"
    command = [sys.executable, BENCH / "run.py", "--rounds", "2", "--seconds", "0.001", "--results", results, "--report", page]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(results.read_text()), page.read_text()


def test_it_measures_and_checks(tmp_path, spec):
    names, backends = ["dispatch_dep", "mlp_train", "first_fwd_warm"], ["cpu", "strict", "fused", "compiled"]
    results, page = run_bench(tmp_path, "--workloads", ",".join(names), "--backends", ",".join(backends))
    assert list(results["workloads"]) == names and list(results["versions"]) == backends and not results["failed"]
    for name, records in results["workloads"].items():
        assert list(records) == [b for b in backends if b in spec.WORKLOADS[name].backends]
        for record in records.values():
            assert "error" not in record and record["wrong"] is False
            assert len(record["samples"]) == 2 and all(s > 0 for s in record["samples"])
        assert f"(`{name}`)" in page
    assert results["workloads"]["mlp_train"]["strict"]["device_peak"] > 0
    assert results["workloads"]["mlp_train"]["strict"]["programs"] > 0
    assert results["workloads"]["mlp_train"]["compiled"]["programs"] == 1  # graphs of Dynamo
    assert results["workloads"]["first_fwd_warm"]["strict"]["programs"] == 0  # the cache was warm
    assert "What failed" not in page and str(Path.home()) not in page and sys.prefix not in page
    (tmp_path / "page.md").unlink()
    assert run_bench(tmp_path, "--render") == (results, page)
    kept, _ = run_bench(tmp_path, "--keep", "--workloads", "item", "--backends", "strict")
    assert list(kept["workloads"]) == [*names, "item"]
    assert kept["workloads"]["mlp_train"] == results["workloads"]["mlp_train"]


# In the place of the reference's interpreter: its strict mode is quick and wrong, its fused mode dies at the second sample.
IMPOSTOR = """
    #!{python}
    import json, os, sys
    answers, job = os.fdopen(int(sys.argv[2]), "w"), json.loads(sys.argv[3])
    def answer(**values):
        print(json.dumps(values), file=answers, flush=True)
    if job["name"] == "versions":
        answer(versions={{"python": "of an impostor"}})
        sys.exit()
    dies = os.environ["TORCH_TPU_DEFER_AND_FUSE"] == "1"
    answer(check=[1.0] * 9, repeats=1)
    for i, _ in enumerate(sys.stdin):
        if dies and i:
            print("F0000 Check failed: it is a real backend", "more words", sep="\\n", file=sys.stderr, flush=True)
            os.abort()
        answer(seconds=1e-9)
    answer(programs=1)
"""


def test_wrong_answers_and_deaths_are_shown(tmp_path):
    impostor = tmp_path / "impostor"
    impostor.write_text(textwrap.dedent(IMPOSTOR).format(python=sys.executable).lstrip())
    impostor.chmod(0o755)
    options = ["--workloads", "dispatch_dep,item", "--backends", "ref-strict,ref-fused,jax", "--jax-python", "/no/interpreter"]
    results, page = run_bench(tmp_path, *options, "--reference-python", str(impostor))
    assert list(results["failed"]) == ["jax"] and "JAX jit does not run here" in page
    for name in ("dispatch_dep", "item"):
        records = results["workloads"][name]
        assert len(records["cpu"]["samples"]) == 2 and records["cpu"]["wrong"] is False
        assert records["ref-strict"]["wrong"] is True
        assert "Check failed: it is a real backend" in records["ref-fused"]["error"]
        row = next(line for line in page.splitlines() if f"(`{name}`)" in line)
        assert row.endswith("| *wrong* | *error* |")
    assert page.count("wrong answer, off by") == 2 and "1e-09" not in page


def test_nobody_is_waited_for_longer_than_the_limit(tmp_path, spec):
    from processes import Failed, Process, Setup

    sleeper = tmp_path / "sleeper"
    sleeper.write_text("#!/bin/sh\nsleep 1000\n")
    sleeper.chmod(0o755)
    setup = Setup(limit=0.2, seconds=0.001)
    setup.python["cpu"] = str(sleeper)
    try:
        process = Process(setup, spec.BACKENDS["cpu"], "item")
        with pytest.raises(Failed, match="no answer"):
            process.answer()
        process.close()
        assert process.process.returncode < 0
    finally:
        setup.close()


def test_jax_gets_the_plugin_that_this_project_uses(spec):
    from processes import Setup

    setup = Setup(limit=1, seconds=1)
    try:
        setup.plugin = "/some/plugin.so"
        env = setup.environment(spec.BACKENDS["jax-plugin"], None)
        platform, _, path = env["PJRT_NAMES_AND_LIBRARY_PATHS"].partition(":")
        assert (env["JAX_PLATFORMS"], path) == (platform, "/some/plugin.so")
        assert setup.environment(spec.BACKENDS["jax"], None)["JAX_PLATFORMS"] == "cpu"
        assert "PJRT_NAMES_AND_LIBRARY_PATHS" not in setup.environment(spec.BACKENDS["compiled"], None)
    finally:
        setup.close()


def test_differences(spec):
    from run import difference

    assert difference([1.0, 2.0], [1.0, 2.0]) == 0
    assert difference([1.0, 2.5], [1.0, 2.0]) == 0.25
    assert difference([], []) == 0
    for check in ([1.0], [1.0, math.nan], [math.inf, 2.0]):
        assert difference(check, [1.0, 2.0]) == math.inf


def test_what_was_not_checked_is_not_shown(spec):
    import report

    workload = spec.WORKLOADS["item"]
    records = {"cpu": {"samples": [], "error": "no answer"}, "strict": {"samples": [0.25e-6]}}
    assert report.cell(workload, records, "strict") == "*unchecked*"
    checked = {"cpu": {"samples": [0.5e-6], "wrong": False}, "strict": {"samples": [0.25e-6], "wrong": False}}
    assert report.cell(workload, checked, "strict") == "0.25 ×0.5"


def decorated(path: Path) -> set[str]:
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    return {f.name for f in functions if any(isinstance(d, ast.Name) and d.id == "workload" for d in f.decorator_list)}


@pytest.mark.parametrize("peer, source", [("cpu", "torch_side.py"), ("jax", "jax_side.py"), ("floor", "floor.c")])
def test_every_promised_workload_exists(spec, peer, source):
    promised = {spec.BODY.get(w.name, w.name) for w in spec.WORKLOADS.values() if peer in w.backends} - {"import"}
    path = BENCH / source
    made = set(re.findall(r'\{"(\w+)", \w+,', path.read_text())) if path.suffix == ".c" else decorated(path)
    assert made == promised


def test_named_workloads_and_backends_exist(spec):
    assert set(spec.QUICK) | set(spec.MEMORY) | set(spec.BODY) <= set(spec.WORKLOADS)
    assert set(spec.QUICK_BACKENDS) | spec.EAGER | set(spec.PEERS.values()) == set(spec.BACKENDS)

#!/usr/bin/env python3
"""Measures this project beside its peers, in alternating rounds, and writes docs/performance.md.

Each workload runs in a process of its own on each backend, all on one core with one thread. All are started first; then,
round by round in rotated order, each gives one sample. So noise hits all alike, and ratios are taken within a round.
Every result is compared with PyTorch's on the CPU: a wrong answer is marked and its time is not shown.
A backend that fails, dies or hangs shows its error, and the rest goes on. Results are kept after each workload.
"""

import argparse
import datetime
import json
import math
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import report
from processes import Failed, Process, Setup, open_source
from spec import BACKENDS, BASELINE, QUICK, QUICK_BACKENDS, WORKLOADS, Workload

ROOT = Path(__file__).resolve().parent.parent
FRESH_ROUNDS = 3  # a new process takes seconds


def first_line(path: str, start: str) -> str:
    with open(path) as lines:
        return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(start)), "unknown")


def output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=20).stdout.strip()
    except OSError:
        return ""


def describe_machine() -> dict[str, str]:
    memory = int(first_line("/proc/meminfo", "MemTotal").split()[0]) / (1 << 20)
    distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    return {
        "processor": first_line("/proc/cpuinfo", "model name"),
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "system": f"{distribution}, Linux {platform.release().split('-')[0]}",
        "C++ compiler (inductor)": output("g++", "--version").split("\n")[0] or "none",
    }


def difference(check: list[float], wanted: list[float]) -> float:
    """The largest difference in units of the largest wanted number; infinite if there is any NaN or another length."""
    if len(check) != len(wanted) or not all(map(math.isfinite, check)):
        return math.inf
    return max((abs(a - b) for a, b in zip(check, wanted)), default=0) / max((abs(b) for b in wanted), default=1)


class Measurement:
    """One workload: its sources, and the record of each backend as it grows."""

    def __init__(self, setup: Setup, workload: Workload, backends: list[str]):
        self.setup, self.workload = setup, workload
        self.records: dict[str, dict] = {name: {"samples": []} for name in backends}
        self.sources: dict = {}

    def guarded(self, name: str, action):
        try:
            return action()
        except Failed as e:
            self.records[name]["error"] = " ".join(str(e).split())
            source = self.sources.pop(name, None)
            if source:
                source.close()

    def open(self, name: str):
        self.sources[name] = open_source(self.setup, BACKENDS[name], self.workload)
        self.records[name].update(self.sources[name].start())

    def sample(self, name: str):
        seconds, values = self.sources[name].sample()
        self.records[name]["samples"].append(seconds)
        self.records[name].update(values)

    def run(self, rounds: int) -> dict[str, dict]:
        names = list(self.records)
        try:
            for name in names:
                self.guarded(name, lambda: self.open(name))
            for i in range(rounds):
                turn = i % len(names)
                for name in names[turn:] + names[:turn]:
                    if name in self.sources:
                        self.guarded(name, lambda: self.sample(name))
            for name in list(self.sources):
                self.guarded(name, lambda: self.records[name].update(self.sources[name].finish()))
        finally:
            for source in self.sources.values():
                source.close()
        self.compare()
        return self.records

    def compare(self):
        wanted = self.records[BASELINE].get("check")
        for record in self.records.values():
            check = record.pop("check", None)
            if check is not None and wanted is not None:
                record["difference"] = difference(check, wanted)
                record["wrong"] = not record["difference"] <= self.workload.tolerance


def probe(setup: Setup, names: list[str]) -> tuple[dict[str, dict], dict[str, str]]:
    """The versions of each backend that runs, and why others don't."""
    versions: dict[str, dict] = {}
    failed: dict[str, str] = {}
    setup.plugin = os.environ.get("TPU_LIBRARY_PATH", "")
    for name in (n for n in names if BACKENDS[n].kind != "floor"):
        try:
            process = Process(setup, BACKENDS[name], "versions")
            try:
                versions[name] = process.answer()["versions"]
                setup.plugin = setup.plugin or versions[name].get("plugin", "")
            finally:
                process.close()
        except Failed as e:
            failed[name] = " ".join(str(e).split())
    if "floor" in names:
        if setup.plugin:
            versions["floor"] = {}
        else:
            failed["floor"] = "no plugin is known"
    return versions, failed


def choose(text: str | None, known, default) -> list[str]:
    names = text.split(",") if text else list(default)
    unknown = [n for n in names if n not in known]
    if unknown:
        sys.exit(f"there is no {unknown[0]}; there are: {', '.join(known)}")
    return names


def available(args: argparse.Namespace) -> list[str]:
    """The backends that the caller gave the means for."""
    missing = set()
    if not args.reference_python:
        missing |= {name for name, backend in BACKENDS.items() if backend.is_reference}
    if not args.jax_python:
        missing |= {name for name, backend in BACKENDS.items() if backend.kind == "jax"}
    if not args.floor:
        missing.add("floor")
    if not shutil.which(os.environ.get("CXX", "g++")):
        missing.add("inductor")
    return [name for name in BACKENDS if name not in missing]


def make_setup(args: argparse.Namespace) -> Setup:
    setup = Setup(args.timeout, args.seconds)
    setup.floor = str(Path(args.floor).resolve()) if args.floor else ""
    for name, backend in BACKENDS.items():
        if backend.is_reference:
            setup.python[name] = args.reference_python
            setup.env[name] = dict(pair.split("=", 1) for pair in shlex.split(args.reference_env))
        if backend.kind == "jax":
            setup.python[name] = args.jax_python
    return setup


def measure(args: argparse.Namespace, results: dict, save) -> None:
    names = choose(args.backends, BACKENDS, QUICK_BACKENDS if args.quick else BACKENDS)
    names = [n for n in available(args) if n in names or n == BASELINE]
    setup = make_setup(args)
    try:
        results["versions"], results["failed"] = probe(setup, names)
        if BASELINE not in results["versions"]:
            sys.exit(f"the baseline doesn't run: {results['failed'][BASELINE]}")
        for name in choose(args.workloads, WORKLOADS, QUICK if args.quick else WORKLOADS):
            workload = WORKLOADS[name]
            taking_part = [n for n in results["versions"] if n in workload.backends]
            taking_part.sort(key=list(BACKENDS).index)
            rounds = args.rounds if workload.clock == "held" else min(args.rounds, FRESH_ROUNDS)
            results["workloads"][name] = Measurement(setup, workload, taking_part).run(rounds)
            print(report.one_line(workload, results["workloads"][name]), flush=True)
            save()
    finally:
        setup.close()


def parse(argv: list[str] | None) -> argparse.Namespace:
    cores = sorted(os.sched_getaffinity(0))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--workloads", help="names with commas between them; default: all (--list shows them)")
    p.add_argument("--backends", help="names with commas between them; default: all that are given. torch on the CPU always takes part")
    p.add_argument("--rounds", type=int, help="samples of each backend; default 5, with --quick 3. At most 3 where a sample is a process")
    p.add_argument("--seconds", type=float, help="about how long a sample takes; default 0.2, with --quick 0.05")
    p.add_argument("--core", type=int, default=cores[-1], help="the core that all run on; default: the last")
    p.add_argument("--timeout", type=float, default=240, help="seconds that a process has for each answer")
    p.add_argument("--quick", action="store_true", help=f"{', '.join(QUICK)} on {', '.join(QUICK_BACKENDS)}, few rounds")
    p.add_argument("--results", type=Path, default=ROOT / "build/bench/results.json")
    p.add_argument("--keep", action="store_true", help="keep the other workloads of an earlier results file from this machine")
    p.add_argument("--report", type=Path, help="write the page here; default: print it")
    p.add_argument("--render", action="store_true", help="measure nothing: write the page from the results file")
    p.add_argument("--list", action="store_true", help="print workloads and backends")
    p.add_argument("--floor", help="the program bench/floor.c")
    p.add_argument("--reference-python", default="", help="an interpreter with the reference TorchTPU")
    p.add_argument("--reference-env", default="", help="what it needs: 'NAME=value NAME=value'")
    p.add_argument("--jax-python", default="", help="an interpreter with JAX")
    args = p.parse_args(argv)
    args.rounds = args.rounds or (3 if args.quick else 5)
    args.seconds = args.seconds or (0.05 if args.quick else 0.2)
    return args


def new_results(args: argparse.Namespace) -> dict:
    machine = describe_machine()
    results = {"machine": machine, "workloads": {}}
    if args.keep and args.results.exists():
        results = json.loads(args.results.read_text())
        if results["machine"] != machine:
            sys.exit(f"{args.results} comes from another machine: its figures can't be kept beside new ones")
    results["date"] = datetime.date.today().isoformat()
    commit, earlier = output("git", "describe", "--always", "--dirty") or "unknown", results.get("commit", "")
    results["commit"] = f"{earlier}, some later: {commit}" if earlier and not earlier.endswith(commit) else commit
    results["load"] = f"{os.getloadavg()[0]:.2f}"
    results["settings"] = {"rounds": args.rounds, "seconds": args.seconds, "fresh_rounds": min(args.rounds, FRESH_ROUNDS)}
    return results


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    if args.list:
        for workload in WORKLOADS.values():
            print(f"{workload.name:18}{workload.unit:4}{workload.what}")
        return print("backends:", ", ".join(BACKENDS))
    results = json.loads(args.results.read_text()) if args.render else new_results(args)

    def save():
        args.results.parent.mkdir(parents=True, exist_ok=True)
        partial = args.results.with_suffix(".partial")
        partial.write_text(json.dumps(results, indent=1))
        partial.replace(args.results)
        if args.report:
            args.report.write_text(report.page(results))

    if not args.render:
        os.sched_setaffinity(0, {args.core})
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # ends the processes too
        measure(args, results, save)
    save()
    if not args.report:
        print(report.page(results))


if __name__ == "__main__":
    main()

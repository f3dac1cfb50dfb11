"""The page docs/performance.md, from results as run.py keeps them."""

import re
import statistics

from spec import BACKENDS, BASELINE, EAGER, GROUPS, MEMORY, SCALE, WORKLOADS, Workload

HOW = """Each workload runs in a process of its own on each backend, all on one core with one thread. All processes are started first; then each gives one sample per round, in rotated order, so that noise hits all alike.
A cell holds the **smallest time**, and **×** the median over rounds of its ratio to torch on the CPU in the same round: ×0.5 takes half as long. Results are compared with torch on the CPU; a wrong answer is marked, and its time is not shown.
"""
SUMMARY_NOTE = "Geometric means of the ratios to torch on the CPU, over the workloads that every column here got right."
MEMORY_NOTE = """Megabytes. Before the slash: the most that tensors held on the device during the timed steps, as `torch.accelerator.max_memory_allocated()` tells it, where the backend counts it; what a program needs inside while it runs is not in it.
Behind the slash: the largest resident size of the process, with interpreter, framework, plugin and compiler."""
PROGRAMS_NOTE = "Programs compiled in the process, as the backend counts them (inductor: graphs)."
AGAIN = """```sh
make bench         # all, about 20 minutes; leave the machine alone meanwhile
make bench-quick   # a few workloads, under a minute, printed only
make bench BENCH='--workloads gpt_train,item --keep'   # measures some again, keeps the rest
make bench BENCH=--render                              # writes this page from build/bench/results.json
```

Peers take part where they can be had: inductor if there is a g++; `JAX_PYTHON=` an interpreter with JAX; `REF_PYTHON=` an interpreter with the reference (`torch_tpu` 0.2.0 from PyPI, which on a CPU plugin needs a shim) and `REF_ENV='NAME=value ...'` the variables it needs.
`bench/run.py --help` tells the rest.
"""


def figure(x: float) -> str:
    return f"{x:.0f}" if x >= 100 else f"{x:.3g}"


def median_ratio(record: dict, baseline: dict | None) -> float | None:
    pairs = list(zip(record["samples"], baseline["samples"])) if baseline else []
    return statistics.median(a / b for a, b in pairs) if pairs else None


def problem(record: dict) -> str | None:
    if record.get("error"):
        return "error"
    if record.get("wrong"):
        return "wrong"
    if "wrong" not in record:
        return "unchecked"
    return None if record["samples"] else "error"


def cell(workload: Workload, records: dict, name: str) -> str:
    record = records.get(name)
    if record is None:
        return ""
    if problem(record):
        return f"*{problem(record)}*"
    text = figure(min(record["samples"]) * SCALE[workload.unit])
    ratio = median_ratio(record, records.get(BASELINE)) if name != BASELINE else None
    return text if ratio is None else f"{text} ×{figure(ratio)}"


def one_line(workload: Workload, records: dict) -> str:
    cells = (f"{name} {cell(workload, records, name)}" for name in records)
    return f"{workload.name} ({workload.unit}): " + ", ".join(cells)


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Columns without any entry are left out."""
    used = [i for i in range(len(head)) if i == 0 or any(row[i] for row in rows)]
    lines = ["| " + " | ".join(row[i] for i in used) + " |" for row in [head, *rows]]
    return [lines[0], "|" + " --- |" * len(used), *lines[1:], ""]


def per_workload(results: dict, workloads, text_of, unit_of=lambda w: "") -> list[str]:
    """One row for each workload that was measured; text_of(workload, records, name) fills a cell."""
    rows = []
    for workload in (w for w in workloads if w.name in results["workloads"]):
        records = results["workloads"][workload.name]
        cells = [text_of(workload, records, name) for name in BACKENDS]
        if any(cells):
            rows.append([f"{workload.what} (`{workload.name}`){unit_of(workload)}", *cells])
    return table(["", *(b.title for b in BACKENDS.values())], rows) if rows else []


def summary(results: dict) -> list[str]:
    """Geometric means of the ratios, over what every torch device got right."""
    columns = [name for name in BACKENDS if name in EAGER - {BASELINE} and name in results["versions"]]
    rows = []
    for title, (_, workloads) in GROUPS.items():
        ratios = []
        for records in (results["workloads"].get(w.name, {}) for w in workloads):
            if all(name in records and not problem(records[name]) for name in [BASELINE, *columns]):
                ratios.append([median_ratio(records[name], records[BASELINE]) for name in columns])
        if ratios:
            means = [f"×{figure(statistics.geometric_mean(column))}" for column in zip(*ratios)]
            rows.append([f"{title} ({len(ratios)} workloads)", *means])
    if not columns or not rows:
        return []
    return ["## Summary", "", SUMMARY_NOTE, "", *table(["", *(BACKENDS[name].title for name in columns)], rows)]


def programs_cell(_workload: Workload, records: dict, name: str) -> str:
    count = records.get(name, {}).get("programs")
    return "" if count is None else str(count)


def memory_cell(_workload: Workload, records: dict, name: str) -> str:
    record = records.get(name, {})
    if "resident_peak" not in record:
        return ""
    device = f"{record['device_peak'] / 1e6:.1f}" if record.get("device_peak") else "–"
    return f"{device} / {record['resident_peak'] / 1e6:.0f}"


def machine(results: dict) -> list[str]:
    rows = [[name, value] for name, value in results["machine"].items()]
    rows.append(["load average at the start", results["load"]])
    seen: dict[str, list[str]] = {}
    for name, versions in results["versions"].items():
        if "plugin" in versions:
            versions = versions | {"plugin": "/".join(versions["plugin"].split("/")[-2:])}
        text = ", ".join(f"{k} {v}" for k, v in versions.items())
        if text:
            seen.setdefault(text, []).append(BACKENDS[name].title)
    rows += [[", ".join(titles), text] for text, titles in seen.items()]
    rows += [["date, version of this project", f"{results['date']}, {results['commit']}"]]
    settings = results["settings"]
    rows += [["rounds", f"{settings['rounds']}, of about {settings['seconds']} s a sample; {settings['fresh_rounds']} where each sample is a process"]]
    return table(["", "measured on"], rows)


def without_paths(text: str) -> str:
    """Error texts name files of the machine, which tell readers nothing."""
    text = re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+", ".../", text)
    return (text if len(text) <= 240 else text[:240] + " ...").replace("|", "/")


def failures(results: dict) -> list[str]:
    lines = [f"- {BACKENDS[name].title} does not run here: {without_paths(why)}" for name, why in results["failed"].items()]
    for workload, records in results["workloads"].items():
        for name, record in records.items():
            kind = problem(record)
            if kind == "wrong":
                lines.append(f"- `{workload}`, {BACKENDS[name].title}: wrong answer, off by {record['difference']:.1e} of the largest number")
            elif kind == "unchecked":
                lines.append(f"- `{workload}`, {BACKENDS[name].title}: not shown, because the baseline gave nothing to compare it with")
            elif kind:
                lines.append(f"- `{workload}`, {BACKENDS[name].title}: {without_paths(record.get('error', 'no sample'))}")
    return ["## What failed", "", *lines, ""] if lines else []


def page(results: dict) -> str:
    lines = ["# Performance", "", "Made by `make bench`: do not edit. All figures were measured on the machine below.", "", HOW, "## Machine", ""]
    lines += machine(results) + summary(results)
    for title, (note, workloads) in GROUPS.items():
        found = per_workload(results, workloads, cell, lambda w: ", " + w.unit)
        if found:
            lines += [f"## {title}", "", note, "", *found]
    programs = per_workload(results, [WORKLOADS[n] for n in ("first_fwd_cold", "first_train", "shapes_first")], programs_cell)
    if programs:
        lines += ["### Programs", "", PROGRAMS_NOTE, "", *programs]
    memory = per_workload(results, [WORKLOADS[n] for n in MEMORY], memory_cell)
    if memory:
        lines += ["## Memory of a train step", "", MEMORY_NOTE, "", *memory]
    lines += [*failures(results), "## Again", "", AGAIN]
    return "\n".join(lines)

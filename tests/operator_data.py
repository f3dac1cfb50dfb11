"""Writes docs/operators.json, which the table of operators is made of.

    python tests/operator_data.py CONFORMANCE
    python tests/operator_data.py --tpu PROGRAMS KNOWN

CONFORMANCE is a folder of what operator_database.py wrote; PROGRAMS the folder of `aot programs`, KNOWN the cache of `aot check`.
What isn't given stays as it was. Fails if the TPU compiler refuses a program that isn't listed in known_differences.py."""

import json
import pathlib
import re
import sys
from collections import defaultdict

from known_differences import reason_of, refusal_of
from operator_database import read

TOPOLOGIES = ["v5e:1x1", "v6e:1x1", "tpu7x:2x2x1"]
OUT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "operators.json"


def conformance(folder):
    """Dtypes by overload, of rows that are right; and the rows that are not, those of equal reason together."""
    lines = [line for path in sorted(pathlib.Path(folder).glob("*.jsonl")) for line in read(path) if "op" in line]
    wrong = [line for line in lines if line["right"] < line["samples"]]
    failed = {(line["op"], line["dtype"]) for line in wrong}
    overloads, together = defaultdict(set), defaultdict(set)
    for line in lines:
        if (line["op"], line["dtype"]) not in failed:
            for overload, dtypes in line.get("overloads", {}).items():
                overloads[overload].update(dtypes)
    for line in wrong:
        together[line["op"], line["direction"], reason_of(line) or line["reason"]].add(line["dtype"])
    differences = [
        {"op": op, "dtypes": sorted(dtypes), "direction": direction, "why": why}
        for (op, direction, why), dtypes in sorted(together.items())
    ]
    return {"overloads": {k: sorted(v) for k, v in sorted(overloads.items())}, "differences": differences}


def tpu(programs, known):
    """How many programs hold an overload and compile for every TPU, of how many; and the programs that are refused."""
    from torch_tpu.aot._check import fingerprint, short

    root = pathlib.Path(programs)
    held = json.loads(pathlib.Path(known).read_text())["programs"]
    counts, refused = defaultdict(lambda: [0, 0]), []
    for file, overloads in sorted(json.loads((root / "overloads.json").read_text()).items()):
        mark = fingerprint((root / file).read_text())
        outcomes = {t: held.get(f"{t} {mark} normal") for t in TOPOLOGIES}
        if not all(outcomes.values()):
            continue  # not asked for yet
        bad = [t for t, outcome in outcomes.items() if outcome["reason"]]
        for overload in overloads:
            counts[overload][0] += not bad
            counts[overload][1] += 1
        if bad:
            name = re.sub(r"\.mlir$", "", file)
            refused.append({"program": name, "topologies": bad, "why": refusal_of(name) or short(outcomes[bad[0]]["reason"])})
    return {"tpu": dict(sorted(counts.items())), "refused": refused, "topologies": TOPOLOGIES}


def main():
    data = json.loads(OUT.read_text()) if OUT.exists() else {"overloads": {}, "differences": [], "tpu": {}, "refused": [], "topologies": TOPOLOGIES}
    data |= tpu(*sys.argv[2:4]) if sys.argv[1] == "--tpu" else conformance(sys.argv[1])
    OUT.write_text(json.dumps(data, indent=0, separators=(",", ":")) + "\n")
    print(f"wrote {OUT}: {len(data['overloads'])} overloads, {len(data['differences'])} differences, {len(data['refused'])} refused programs")
    unlisted = [r["program"] for r in data["refused"] if not refusal_of(r["program"])]
    if sys.argv[1] == "--tpu" and unlisted:
        sys.exit("refused, and not listed: " + ", ".join(unlisted))


if __name__ == "__main__":
    main()

"""Runs the three examples on the CPU and on the device tpu, and checks that both give the same.

    python examples/demo.py
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def run(example: str, device: str, folder: str) -> dict:
    out = Path(folder) / f"{example}-{device}.json"
    command = [sys.executable, str(HERE / f"{example}.py"), "--device", device, "--json", str(out)]
    if subprocess.run(command).returncode:
        sys.exit(f"{example} failed on {device}")
    return json.loads(out.read_text())


def largest_difference(a: list, b: list) -> float:
    if isinstance(a, list):
        return max(largest_difference(x, y) for x, y in zip(a, b, strict=True))
    return abs(a - b) if a == a and b == b else float("inf")


def main():
    rows, failed = [], False

    def check(what: str, cpu: str, tpu: str, verdict: str, ok: bool):
        nonlocal failed
        failed |= not ok
        rows.append((what, cpu, tpu, verdict, "ok" if ok else "FAILED"))

    with tempfile.TemporaryDirectory() as folder:
        results = {name: {d: run(name, d, folder) for d in ("cpu", "tpu")} for name in ("gpt", "digits", "search")}

    gpt, digits, search = ((results[name]["cpu"], results[name]["tpu"]) for name in ("gpt", "digits", "search"))
    # The convolutional network's ReLUs and pools make it chaotic: rounding alone parts its losses after some steps.
    for name, (cpu, tpu), steps in (("gpt", gpt, 100), ("digits", digits, 10)):
        apart = largest_difference(cpu["losses"][:steps], tpu["losses"][:steps])
        check(
            f"{name}: losses of {steps} steps",
            f"{cpu['losses'][0]:.4f} to {cpu['losses'][steps - 1]:.4f}",
            f"{tpu['losses'][0]:.4f} to {tpu['losses'][steps - 1]:.4f}",
            f"at most {apart:.1e} apart",
            apart <= 1e-3,
        )
    check("gpt: last loss", f"{gpt[0]['losses'][-1]:.4f}", f"{gpt[1]['losses'][-1]:.4f}", "", gpt[1]["losses"][-1] < 2.6)
    check(
        "digits: accuracy", f"{digits[0]['accuracy']:.4f}", f"{digits[1]['accuracy']:.4f}", "at least 0.97",
        min(digits[0]["accuracy"], digits[1]["accuracy"]) >= 0.97,
    )  # fmt: skip
    apart = max(largest_difference(search[0][part], search[1][part]) for part in ("questions", "corpus"))
    check("search: embeddings", "", "", f"at most {apart:.1e} apart", apart <= 1e-4)
    check("search: first answer", search[0]["answers"][0][0], search[1]["answers"][0][0], "",
          search[0]["answers"] == search[1]["answers"])  # fmt: skip
    for name in results:
        cpu, tpu = results[name]["cpu"]["seconds"], results[name]["tpu"]["seconds"]
        check(f"{name}: seconds", f"{cpu:.1f}", f"{tpu:.1f}", "", True)

    print(f"\n{'':28} {'cpu':20} {'tpu':20}")
    for what, cpu, tpu, verdict, state in rows:
        print(f"{what:28} {cpu:20} {tpu:20} {verdict:24} {state}")
    sys.exit(failed)


if __name__ == "__main__":
    main()

"""One process of the benchmark: serves one workload on one backend. Started by run.py, never by hand.

    worker.py ANSWERS JSON     ANSWERS: descriptor for one JSON object a line; JSON: what to do

A held workload says it is ready, then gives a sample for each line "s" on stdin, and its totals at the end of stdin.
Others give one sample and end.
"""

import json
import os
import sys
import time


def resident_peak() -> int:
    """Bytes. Not getrusage's figure, which a process inherits from the one that started it."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def digest(side, result) -> list[float]:
    """Up to 64 of the result's numbers, and the mean of their sizes."""
    if isinstance(result, float):
        return [result]
    if isinstance(result, list):
        return result
    flat = side.numbers(result).reshape(-1).astype("float64")
    return [*flat[:: max(1, flat.size // 61)][:64].tolist(), float(abs(flat).mean())]


def held(side, step, count, seconds, inputs, answer):
    """Warm up, check, choose how many steps make a sample, then serve."""
    results = [step() for _ in range(5)]
    check = results if isinstance(results[0], float) else digest(side, results[-1])

    def sample(repeats):
        start = time.perf_counter()
        for _ in range(repeats):
            side.sync(step())
        return (time.perf_counter() - start) / repeats

    del results
    one = min(sample(1) for _ in range(3))
    repeats = max(1, min(10000, round(seconds / one)))
    side.reset_peak_memory()
    answer(check=check, repeats=repeats)
    for _ in inputs:
        answer(seconds=sample(repeats) / count)
    answer(programs=side.programs(), device_peak=side.peak_memory(), resident_peak=resident_peak())


def serve(job: dict, answer):
    if job["name"] == "import":
        __import__("torch" if job["kind"] == "torch" else "jax")
        return answer(check=[], resident_peak=resident_peak())
    if job["kind"] == "torch":
        import torch_side as workloads
    else:
        import jax_side as workloads
    side = workloads.Side(job["device"], job["compiled"])
    if job["name"] == "versions":
        return answer(versions=workloads.versions(side))
    step, count = workloads.BUILDERS[job["body"]](side)
    if job["clock"] == "held":
        return held(side, step, count, job["seconds"], sys.stdin, answer)
    start = time.perf_counter()
    result = step()
    side.sync(result)
    seconds = time.perf_counter() - start
    measured = {"seconds": seconds} if job["clock"] == "step" else {}  # else run.py's clock, which started before us
    answer(check=digest(side, result), programs=side.programs(), resident_peak=resident_peak(), **measured)


def main():
    with os.fdopen(int(sys.argv[1]), "w") as answers:

        def answer(**values):
            print(json.dumps(values), file=answers, flush=True)

        try:
            serve(json.loads(sys.argv[2]), answer)
        except Exception as e:
            answer(error=f"{type(e).__name__}: {e}")
            raise


if __name__ == "__main__":
    main()

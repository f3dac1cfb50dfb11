"""PyTorch's operator database on the device against the CPU: every operator, forward and backward, by dtype and mode.

    python tests/operator_database.py OUT.jsonl [--mode strict|fuse|compile|tpu] [--dtypes float32,int64] [--samples 2] [--part i/n]
                                      [--only REGEX] [--every K]

Each line of OUT.jsonl is a row: an operator with a dtype in one direction, how many samples were compared and were right,
the first difference, and the overloads of ATen that it reached with the dtypes that they met. A file that is there is gone on
with. What kills or stops a process costs one row: the work is done by a child, which is started again behind it.

A result is right if it is within ``torch.testing.assert_close``'s default tolerance of the CPU's, or as near to what the CPU
computes in float64 as the CPU itself is (`NEAR` times, or a unit in the last place of the largest): rounding is nobody's fault, and
sums have no order in PyTorch.
"""

import argparse
import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import time
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

MODES = ("strict", "fuse", "compile", "tpu")  # tpu: in the forms that a TPU would get
NEAR = 2
SECONDS = 120  # for one row
WIDER = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64, torch.complex64: torch.complex128}
# Results are random, or memory that nobody has written: sizes, dtypes and devices are compared.
UNDEFINED = re.compile(
    r"rand|dropout|bernoulli|multinomial|normal(_number_mean|_in_place)?$|^normal_|cauchy|exponential|geometric|log_normal|uniform|rrelu"
    r"|empty|_lowrank|fractional"
)


class Overloads(TorchDispatchMode):
    """The overloads that are reached, with the dtype that each one meets."""

    def __init__(self):
        super().__init__()
        self.met = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        tensors = [t for t in (*tree_leaves((args, kwargs)), *tree_leaves(result)) if isinstance(t, torch.Tensor)]
        if tensors and function.namespace == "aten":
            self.met.setdefault(function.__name__.removesuffix(".default"), set()).add(name_of(tensors[0].dtype))
        return result


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def map_tensors(function, value):
    return tree_map(lambda v: function(v) if isinstance(v, torch.Tensor) else v, value)


def on_device(call):
    def move(value):
        if isinstance(value, torch.Tensor):
            return value.detach().to("tpu").requires_grad_(value.requires_grad)
        return torch.device("tpu") if isinstance(value, torch.device) else value

    args, kwargs = tree_map(move, call)
    return args, {**kwargs, "device": "tpu"} if "device" in kwargs else kwargs


def widened(call, dtype):
    """The call in twice the precision or more. None where there is none."""
    wide = WIDER.get(dtype)
    if wide is None:
        return None

    def widen(value):
        if isinstance(value, torch.Tensor) and value.dtype in WIDER and value.layout == torch.strided:
            return value.detach().to(WIDER[value.dtype]).requires_grad_(value.requires_grad)
        return wide if value == dtype else value

    return tree_map(widen, call)


def forward(op, call):
    args, kwargs = call
    return tree_leaves(op(*args, **kwargs))


def backward(results, call):
    """Gradients of the sum of absolute values: one that makes sense for complex results and for bases of any sign."""
    ends = [r.abs().sum() for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    inputs = [t for t in tree_leaves(call) if isinstance(t, torch.Tensor) and t.requires_grad]
    return torch.autograd.grad(ends, inputs, allow_unused=True) if ends and inputs else []


def distance(a, wide):
    """The largest difference; infinite where one is not finite and the other is something else."""
    a = a.detach().cpu().to(wide.dtype)
    if a.numel() == 0:
        return 0.0
    same = (a == wide) | (a.isnan() & wide.isnan())
    return torch.where(same, 0, (a - wide).abs()).nan_to_num(nan=float("inf")).max().item()


def is_as_near(a, e, wide, near=NEAR):
    """Whether ``a`` is as near as the CPU's ``e`` to what the CPU computes in higher precision, or nearer than its dtype can tell."""
    if not isinstance(wide, torch.Tensor) or wide.shape != e.shape or wide.dtype not in WIDER.values():
        return False
    wide = wide.detach()
    unit = torch.finfo(e.dtype).eps * wide.abs().nan_to_num(0, 0).max().item() if e.numel() else 0
    return distance(a, wide) <= near * max(distance(e, wide), unit / NEAR)


def compare(actual, expected, exact):
    """What differs, or an empty text. ``exact()`` is the same in higher precision, or None."""
    if len(actual) != len(expected):
        return f"{len(actual)} results, not {len(expected)}"
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if not isinstance(e, torch.Tensor):
            if a != e and not (a != a and e != e):
                return f"{a}, not {e}"
            continue
        if not isinstance(a, torch.Tensor) or (a.shape, a.dtype, a.layout) != (e.shape, e.dtype, e.layout):
            return f"{getattr(a, 'dtype', a)} of {tuple(getattr(a, 'shape', ()))}, not {e.dtype} of {tuple(e.shape)}"
        if e.layout != torch.strided:
            a, e = a.cpu().to_dense(), e.to_dense()
        try:
            torch.testing.assert_close(a.detach().cpu(), e.detach(), equal_nan=True)
        except AssertionError as error:
            wide = exact()
            if wide is not None and i < len(wide) and is_as_near(a, e, wide[i]):
                continue
            return " ".join(str(error).split("\n\nTo")[0].split())[:160]
    return ""


class Row:
    """One operator with one dtype."""

    def __init__(self, op, dtype, mode):
        self.op, self.dtype, self.mode = op, dtype, mode
        self.undefined = bool(UNDEFINED.search(op.formatted_name))
        self.gradients = dtype.is_floating_point and op.supports_autograd
        self.counts = {"forward": [0, 0], "backward": [0, 0]}
        self.reasons = {"forward": "", "backward": ""}
        self.overloads = Overloads()

    def samples(self, most):
        torch.manual_seed(0)
        for sample in itertools.islice(self.op.sample_inputs("cpu", self.dtype, requires_grad=self.gradients), most):
            yield (sample.input, *sample.args), sample.kwargs

    def note(self, direction, wrong):
        self.counts[direction][1] += 1
        self.counts[direction][0] += not wrong
        self.reasons[direction] = self.reasons[direction] or wrong

    def attempt(self, direction, function, excuse=lambda: False):
        """The result of something on the device; None if it failed, which is noted unless there is an excuse."""
        try:
            return function()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a difference
            if not excuse():
                self.note(direction, f"{type(error).__name__}: {' '.join(str(error).split())}"[:200])
            return None

    def is_beyond_dynamo(self, call):
        """Whether PyTorch can't trace the operator for the CPU either."""
        if self.mode != "compile":
            return False
        torch._dynamo.reset()
        try:
            forward(torch.compile(lambda *args, **kwargs: self.op(*args, **kwargs), backend="aot_eager"), call)
        except Exception:  # noqa: BLE001
            return True
        return False

    def try_sample(self, call):
        try:
            expected = forward(self.op, call)
        except Exception:  # noqa: BLE001 - nothing to compare with
            return
        there = on_device(call)
        op = self.op
        if self.mode == "compile":
            torch._dynamo.reset()
            op = torch.compile(lambda *args, **kwargs: self.op(*args, **kwargs), backend="tpu")
        wide = {}

        def exact(direction):
            """Made when it is asked for; one computation serves both directions."""
            if not wide:
                wide.update(forward=None, backward=None)
                with contextlib.suppress(Exception):
                    call_wide = widened(call, self.dtype)
                    wide["forward"] = forward(self.op, call_wide)
                    wide["backward"] = backward(wide["forward"], call_wide)
            return wide[direction]

        with self.overloads if self.mode == "strict" and self.counts["forward"][1] < 2 else contextlib.nullcontext():
            actual = self.attempt("forward", lambda: forward(op, there), lambda: self.is_beyond_dynamo(call))
            if actual is None:
                return
            if self.undefined:
                expected = [e.detach().new_zeros(e.shape) if isinstance(e, torch.Tensor) else e for e in expected]
                actual = [torch.zeros_like(a) if isinstance(a, torch.Tensor) else a for a in actual]
            self.compare("forward", actual, expected, lambda: exact("forward"))
            if self.undefined or not self.gradients:
                return
            try:
                expected = backward(expected, call)
            except Exception:  # noqa: BLE001
                return
            if not expected:
                return
            actual = self.attempt("backward", lambda: backward(actual, there))
        if actual is not None:
            self.compare("backward", actual, expected, lambda: exact("backward"))

    def compare(self, direction, actual, expected, exact):
        wrong = self.attempt(direction, lambda: compare(actual, expected, exact))
        if wrong is not None:
            self.note(direction, wrong)

    def lines(self):
        met = {name: sorted(dtypes) for name, dtypes in sorted(self.overloads.met.items())}
        for direction, (right, count) in self.counts.items():
            if count:
                reason = self.reasons[direction]
                yield {"op": self.op.formatted_name, "dtype": name_of(self.dtype), "mode": self.mode, "direction": direction,
                       "right": right, "samples": count, "reason": reason, **({"overloads": met} if direction == "forward" and met else {})}  # fmt: skip


def jobs_of(o):
    """Operators and dtypes of this part, in a fixed order."""
    part, parts = map(int, o.part.split("/"))
    names = o.dtypes.split(",")
    chosen = [op for i, op in enumerate(op_db) if i % (parts * o.every) == part and re.search(o.only, op.formatted_name)]
    return [(op, getattr(torch, n)) for op in chosen for n in names if op.supports_dtype(getattr(torch, n), "cpu")]


def work(o):
    warnings.filterwarnings("ignore")
    torch.set_float32_matmul_precision("highest")
    with open(o.out, "a", buffering=1) as out:
        for n, (op, dtype) in enumerate(jobs_of(o)):
            if n < o.first:
                continue
            row = Row(op, dtype, o.mode)
            try:
                for call in row.samples(o.samples):
                    row.try_sample(call)
            except Exception as error:  # noqa: BLE001 - a sample that can't be made on this machine
                print(f"{op.formatted_name} {dtype}: no samples: {error}", file=sys.stderr)
            for line in row.lines():
                out.write(json.dumps(line) + "\n")
            out.write(json.dumps({"done": n}) + "\n")
        stats = torch.tpu.compile_cache_stats()
        out.write(json.dumps({"programs": stats.compilations, "compile_seconds": stats.compile_seconds}) + "\n")


def read(path):
    """The lines of a file; one that a killed process left unfinished is dropped."""
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [json.loads(line) for line in f if line.endswith("\n")]


def first_left(path):
    return max((line["done"] + 1 for line in read(path) if "done" in line), default=0)


def run(o):
    """Lets children do the work, each from where the one before it stopped."""
    jobs = jobs_of(o)
    forms = "tpu" if o.mode == "tpu" else "plugin"
    environment = {**os.environ, "TORCH_TPU_DEFER_AND_FUSE": str(int(o.mode == "fuse")), "TORCH_TPU_INTERNAL_FORMS": forms}
    environment.setdefault("TORCH_TPU_CPU_FALLBACK", "error")
    arguments = [o.out, "--mode", o.mode, "--dtypes", o.dtypes, "--samples", str(o.samples), "--part", o.part, "--only", o.only, "--every", str(o.every)]
    while (first := first_left(o.out)) < len(jobs):
        child = subprocess.Popen([sys.executable, __file__, *arguments, "--first", str(first)], env=environment)
        reached, since = first, time.monotonic()
        while child.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(2)
            if (now := first_left(o.out)) != reached:
                reached, since = now, time.monotonic()
            elif time.monotonic() - since > SECONDS:
                child.kill()
        if (at := first_left(o.out)) < len(jobs):
            op, dtype = jobs[at]
            reason = f"took longer than {SECONDS} s" if time.monotonic() - since > SECONDS else f"the process died ({child.returncode})"
            with open(o.out, "a") as out:
                out.write(json.dumps({"op": op.formatted_name, "dtype": name_of(dtype), "mode": o.mode, "direction": "forward", "right": 0, "samples": 1, "reason": reason}) + "\n")  # fmt: skip
                out.write(json.dumps({"done": at}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--mode", choices=MODES, default="strict")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--samples", type=int, default=2, help="at most so many of an operator")
    parser.add_argument("--part", default="0/1", help="i/n: every n-th operator, from the i-th on")
    parser.add_argument("--every", type=int, default=1, help="of these, one in so many")
    parser.add_argument("--only", default="", help="operators whose names match")
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.first is not None:
        work(o)
        return
    run(o)
    lines = [line for line in read(o.out) if "op" in line]
    wrong = [line for line in lines if line["right"] < line["samples"]]
    for line in wrong:
        print(f"{line['op']} {line['dtype']} {line['direction']}: {line['right']} of {line['samples']}: {line['reason']}")
    print(f"{len(lines) - len(wrong)} of {len(lines)} rows are right")


if __name__ == "__main__":
    main()

"""Plants faults in the sources one after another, and tells whether random programs (differential.py) find each of them.

    python tests/planted_faults.py [--only NAME] [--programs 4000] -- COMMAND THAT BUILDS

Sources are put back afterwards; build once more to have the sound ones.
"""

import argparse
import pathlib
import re
import subprocess
import sys

SECONDS = 600  # several times what sound sources take
ROOT = pathlib.Path(__file__).parent.parent
# name: file, what is there once, what is put there
FAULTS = {
    "swapped inverse transpose": ("csrc/view/emit.c", "return hlo_transpose(w->b, value, inverse);", "return hlo_transpose(w->b, value, s->map);"),
    "missed version bump": ("csrc/torch/kernel.cpp", "if (!t.toTensor().is_inference()) t.toTensor().unsafeGetTensorImpl()->bump_version();", "(void)t;"),
    "donation of what others hold": ("csrc/eager/dispatch.c", "r->donate[input] = tt_value_is_last(r->inputs[input]);", "r->donate[input] = true;"),
    "donation of what is read later": ("csrc/eager/region.c", "bool free_to_take = taken && tt_value_is_last(taken) &&", "bool free_to_take = taken || 0 &&"),
    "offset not in the key": ("csrc/eager/key.c", "key_add(k, (uint64_t)t->offset);", "key_add(k, 0);"),
    "strides not in the key": ("csrc/eager/key.c", "key_add(k, (uint64_t)t->strides[i]);", "key_add(k, 0);"),
    "compiled number not in the key": ("csrc/eager/key.c", "if (!baked) return;", "return;"),
    "negation forgotten": ("csrc/ops/lower.c", "return t->flags & TT_TENSOR_NEG ? hlo_neg(b, x) : x;", "return x;"),
    "result dropped that is held": ("csrc/eager/region.c", "memory_order_acquire) > 1;", "memory_order_acquire) > 2;"),
    "remainder of C": ("csrc/ops/pointwise.c", "rounds_down(l->b, rest, x[1]), hlo_add(l->b, rest, x[1]), rest);", "rounds_down(l->b, rest, x[1]), rest, rest);"),
    "overlap not refused": ("csrc/torch/call.cpp", "at::assert_no_overlap(written, argument);", "(void)argument;"),
}


def is_found(programs):
    """Whether programs differ, and how. Flaky: what differed did not when it was shrunk, as plans of programs before it count."""
    command = [sys.executable, str(ROOT / "tests/differential.py"), "--programs", str(programs), "--modes", "strict,fuse"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "tests", timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return True, "a program hangs"
    told = re.findall(r"Different: .*|Flaky.*|Fatal Python error.*", run.stderr)
    last = (run.stderr.strip().splitlines() or ["nothing told"])[-1]
    return run.returncode != 0, told[0] if told else f"exit code {run.returncode}, {last}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--programs", type=int, default=4000)
    parser.add_argument("build", nargs="+")
    o = parser.parse_args()
    missed = 0
    for name, (file, sound, fault) in FAULTS.items():
        if o.only not in name:
            continue
        path = ROOT / file
        text = path.read_text()
        assert text.count(sound) == 1, f"{name}: the sources have changed"
        try:
            path.write_text(text.replace(sound, fault))
            subprocess.run(o.build, check=True, capture_output=True)
            found, how = is_found(o.programs)
        finally:
            path.write_text(text)
        missed += not found
        print(f"{name}: {'found: ' + how if found else 'not found'}", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())

"""Random programs (programs.py) on the CPU and on the device, in every mode: all that PyTorch tells of their tensors must be the same.

    python tests/differential.py [--programs 1000] [--seed 0] [--modes strict,fuse,...] [--keep-going]

What differs is shrunk to few lines, which can be run as they stand. Programs that end with denormals are left out.
"""

import argparse
import re
import sys
import time
import warnings

import hypothesis
import torch
from hypothesis import HealthCheck
from programs import KINDS, Run, made, magnitude, programs

MODES = "strict", "fuse", "blocking", "compile"
RARE = {"blocking": 10, "compile": 5}  # one program in so many
TOLERANCE = {torch.bfloat16: 6e-2, torch.float16: 1e-2}
# Told before other mistakes in a call, where the CPU tells these first.
TOLD_EARLY = "unsupported operation: some elements", "Index put requires", "The shape of the mask"
# The CPU goes on: with products of tensors without elements (CUDA refuses them, too), and with a dtype that XLA has not.
TOLD_ALWAYS = "expected scalar type", "ComplexHalf"


def facts(tensors):
    """All that PyTorch tells of tensors, but their contents."""
    seen = {}
    for name, t in tensors.items():
        storage = seen.setdefault(t.untyped_storage()._cdata, name)
        version = None if t.is_inference() else told(lambda t=t: t._version)
        strides = [stride for stride, size in zip(t.stride(), t.shape, strict=True) if size != 1 and t.numel()]
        yield name, {"shape": tuple(t.shape), "dtype": t.dtype, "strides": strides, "offset": t.storage_offset(), "version": version,
                     "requires_grad": KINDS["f"](t) and t.requires_grad, "inference": t.is_inference(), "conj": t.is_conj(), "neg": t.is_neg(),
                     "grad_fn": told(lambda t=t: bool(KINDS["f"](t) and t.grad_fn)), "shares with": storage}  # fmt: skip


def told(question):
    """The answer, or the refusal: a view whose base was written in place, say, has no grad_fn."""
    try:
        return question()
    except RuntimeError as error:
        return text_of(error)


def has_denormals(t):
    """Whether numbers are there that are zero to some programs of XLA and not to others."""
    t = torch.view_as_real(t.resolve_conj()) if t.is_complex() else t
    return t.is_floating_point() and bool(((t != 0) & (t.abs() < torch.finfo(t.dtype).tiny)).any())


def value_difference(name, actual, expected, rounded):
    actual, expected = actual.detach().cpu().clone(), expected.detach().clone()
    if not rounded:
        same = torch.equal(actual, expected) or torch.allclose(actual.double(), expected.double(), 0, 0, equal_nan=True)
        return "" if same else f"{name} is {actual.tolist()}, not {expected.tolist()}"
    most = magnitude(expected.flatten()[expected.flatten().isfinite()])
    near = TOLERANCE.get(expected.dtype, 1e-4)
    wide = torch.complex128 if expected.is_complex() else torch.float64
    same = torch.allclose(actual.to(wide), expected.to(wide), near, near * max(1, most), equal_nan=True)
    return "" if same else f"{name} is about {actual.tolist()}, not {expected.tolist()}"


def text_of(error):
    """What it says, without what names a device."""
    return re.sub(r"tpu(:0)?|cpu|CPU|PrivateUse1", "DEVICE", str(error)).split("\n")[0]


def error_difference(line, actual, expected):
    if actual is None and expected is None:
        return ""
    kin = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
    if actual and expected and (kin or any(text in str(actual) for text in TOLD_EARLY)):
        return ""
    return f"`{line}` gave {actual!r}, not {expected!r}"


def difference(actual, expected, lines, rounded):
    """What is different, or an empty text."""
    for line, a, e in zip(lines, actual.errors, expected.errors, strict=True):
        if e is None and any(text in str(a) for text in TOLD_ALWAYS):
            return ""
        if found := error_difference(line, a, e):
            return found
    there, here = dict(facts(actual.tensors())), dict(facts(expected.tensors()))
    counted = not any("inference_mode" in line for line in lines)  # operators on such tensors count the writes that they are made of
    for name in here:
        for fact, value in here[name].items():
            if there[name][fact] != value and (counted or fact != "version"):
                return f"{name}'s {fact}: {there[name][fact]}, not {value}"
    dtypes = {}
    for t in expected.tensors().values():
        dtypes.setdefault(t.untyped_storage()._cdata, set()).add(t.dtype)
    for name, t in expected.tensors().items():
        if name in rounded and len(dtypes[t.untyped_storage()._cdata]) > 1:
            continue  # bits that may differ, seen as numbers
        if found := value_difference(name, actual.tensors()[name], t, name in rounded):
            return found
    return gradient_difference(actual.gradients, expected.gradients)


def gradient_difference(actual, expected):
    if isinstance(actual, Exception) or isinstance(expected, Exception):
        errors = [given if isinstance(given, Exception) else None for given in (actual, expected)]
        return error_difference("backward", *errors)
    for k, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if (a is None) != (e is None):
            return f"gradient {k} is {a}, not {e}"
        if e is not None and (found := value_difference(f"gradient {k}", a, e, True)):
            return found
    return ""


def in_mode(mode):
    m = torch.tpu.EagerMode
    return torch.tpu.set_eager_mode({"fuse": m.DEFER_AND_FUSE, "blocking": m.DEFER_NEVER_AND_LAUNCH_BLOCKING}.get(mode, m.DEFER_NEVER))


# What a compiled function can't do, or does at its end.
NOT_COMPILED = re.compile(
    r"set_\(|\.data\b|resize_|inference_mode|swap_tensors|detach_|requires_grad_|_storage|del |as_strided_|no_grad|checkpoint|vmap|item\(|numpy|tolist"
)


def compiled(device, backend, lines):
    """The results of the lines after the first tensors as one function, and the run that they belong to."""
    run, body = Run(device), [line for line in lines if "leaf(" not in line]
    for line in lines[: len(lines) - len(body)]:
        run.line(line)
    given = run.tensors()
    names = list(dict.fromkeys([*given, *re.findall(r"x\d+", "\n".join(body))]))
    source = "".join(f"  {line}\n" for line in [f"def program({', '.join(given)}):", *body, f"return {', '.join(names)},"])[2:]
    exec(source, run.names)
    torch._dynamo.reset()
    results = torch.compile(run.names["program"], backend=backend)(*given.values())
    run.names.update(zip(names, results, strict=True))
    return run


def results_difference(run, expected, rounded):
    for name, e in expected.tensors().items():
        result = run.names[name]
        if (result.shape, result.dtype, result.stride()) != (e.shape, e.dtype, e.stride()):
            return f"compiled {name}: {result.shape} {result.dtype} {result.stride()}, not {e.shape} {e.dtype} {e.stride()}"
        if found := value_difference("compiled " + name, result, e, name in rounded):
            return found
    return gradient_difference(run.gradients, expected.gradients)


def compiled_difference(lines, expected, rounded):
    if any(map(NOT_COMPILED.search, lines)) or any(expected.errors):
        return ""

    def with_backend(device, backend):
        try:
            return results_difference(compiled(device, backend, lines), expected, rounded)
        except Exception as error:  # noqa: BLE001
            return f"compiled: {error!r}"

    found = with_backend("tpu", "tpu")
    return found if found and not with_backend("cpu", "aot_eager") else ""  # else it is PyTorch that traces something else


def run_on(device, lines):
    run = Run(device)
    for line in lines:
        run.line(line)
    return run


def check(program, mode):
    """What a mode does differently from the CPU. Empty: nothing."""
    lines, rounded = program
    expected = run_on("cpu", lines)
    if any(has_denormals(t.detach().clone()) for t in expected.tensors().values()):
        return ""
    if mode == "compile":
        return compiled_difference(lines, expected, rounded)
    with in_mode(mode):
        actual = run_on("tpu", lines)
        try:
            return difference(actual, expected, lines, rounded)
        except Exception as error:  # noqa: BLE001 - what was run is looked at here first
            return f"looking at it: {error!r}"


class Different(AssertionError):
    pass


def explore(count, seed, modes, report=None):
    """Checks so many programs; in the modes that are slow fewer. Raises Different with the smallest one that is, or reports all."""
    count_of, failed = iter(range(10**9)), []

    @hypothesis.seed(seed)
    @hypothesis.settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @hypothesis.given(programs())
    def each(program):
        n = next(count_of)
        for mode in modes:
            if mode in RARE and n % RARE[mode] and not failed:
                continue
            if found := check(program, mode):
                failed.append(program)
                text = "\n".join([f"{mode}: {found}", *program[0]])
                if not report:
                    raise Different(text)
                report(text)

    each()
    return next(count_of)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--keep-going", action="store_true", help="print all that differ, unshrunk")
    o = parser.parse_args()
    warnings.filterwarnings("ignore")
    since, found = time.monotonic(), []

    def report(text):
        found.append(text)
        print(text, end="\n\n", flush=True)

    count = explore(o.programs, o.seed, o.modes.split(","), report if o.keep_going else None)
    print(f"{count} programs, {len(found)} differences, {time.monotonic() - since:.0f} s")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())

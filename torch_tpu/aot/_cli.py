"""``python -m torch_tpu aot``: compile a model or programs for a TPU that isn't there."""

import argparse
import importlib
import importlib.util
import json
import os
import re
import sys
from typing import Any


def add_parser(tools: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    aot = tools.add_parser(
        "aot",
        help="compile for a TPU that isn't there",
        description="Compile for a TPU that isn't there. Needs libtpu, no TPU.",
    )
    commands = aot.add_subparsers(metavar="COMMAND", required=True)
    c = commands.add_parser("compile", help="does a model compile, does it fit, how long would a step take")
    c.add_argument(
        "what",
        help="a Transformers config (.json), a StableHLO program (.mlir), or FILE.py:FUNCTION or MODULE:FUNCTION that "
        "returns (model, args, kwargs)",
    )
    c.add_argument("--topology", required=True, help="such as v5e:2x2, v6e:16x16, v5p:2x2x1, tpu7x:2x2x1")
    c.add_argument("--mode", default="forward", choices=("forward", "train_step"))
    c.add_argument("--sharding", default="replicated", choices=("replicated", "data", "fsdp"))
    c.add_argument("--recompute", action="store_true", help="repeated layers keep only their inputs for backward")
    c.add_argument("--effort", default="fast", choices=("fast", "normal", "full"), help="of the compiler (default: fast)")
    c.add_argument("--batch", type=int, help="of a Transformers model: sequences over all devices (default: one for each)")
    c.add_argument("--length", type=int, default=2048, help="of a Transformers model: tokens in a sequence (default: 2048)")
    c.add_argument("--dtype", default="bfloat16", help="of a Transformers model (default: bfloat16)")
    c.add_argument("--partitions", type=int, default=1, help="of a program: devices that it is split over")
    for name, what in (
        ("json", "report"),
        ("html", "report as one page"),
        ("hlo", "optimised program"),
        ("text", "StableHLO program"),
        ("store", "compiled program"),
    ):
        c.add_argument(f"--{name}", metavar="FILE", help=f"write the {what}")
    c.add_argument("--library", metavar="FILE", help="the compiler's plugin (default: libtpu of this environment)")
    c.set_defaults(run=_run_compile)
    k = commands.add_parser("check", help="does every program of a folder compile")
    k.add_argument("folder", help="with .mlir files, such as TORCH_TPU_DUMP_TO or `aot programs` writes")
    k.add_argument("--topology", action="append", help="may be given several times (default: v5e:1x1, v6e:1x1, tpu7x:2x2x1)")
    k.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at the same time")
    k.add_argument("--cache", metavar="FILE", help="remembers what compiled: a program is asked about once")
    k.add_argument("--library", metavar="FILE", help="the compiler's plugin (default: libtpu of this environment)")
    k.add_argument("--timeout", type=float, default=300, help="seconds for one program")
    k.set_defaults(run=_run_check)
    f = commands.add_parser(
        "fill",
        help="put a script's programs into a compile cache that a TPU's process then loads",
        description="Rehearses a script on a device without contents, compiles each program that it asks for, and stores it as a "
        "process on such a TPU would.",
    )
    f.add_argument("--topology", action="append", required=True, help="of the TPU host, such as v6e:1x1; may be given several times")
    f.add_argument("--cache", required=True, metavar="FOLDER", help="or an address: its TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT")
    f.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at the same time")
    f.add_argument("--library", metavar="FILE", help="the compiler's plugin (default: libtpu of this environment)")
    f.add_argument("--timeout", type=float, default=3600, help="seconds for one program")
    f.add_argument("script", help="a Python file")
    f.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    f.set_defaults(run=_run_fill)
    p = commands.add_parser("programs", help="write programs of every operator, from PyTorch's own samples")
    p.add_argument("folder")
    p.add_argument("--dtype", action="append", help="may be given several times (default: float32, int64)")
    p.add_argument("--samples", type=int, default=2, help="of each operator, at most (default: 2)")
    p.add_argument("--only", metavar="PATTERN", help="operators whose names match this regular expression")
    p.set_defaults(run=_run_programs)


def transformers_model(config: dict[str, Any], batch: int, length: int, dtype: str) -> tuple[Any, tuple, dict[str, Any]]:
    """A causal language model of a Transformers configuration on ``meta``, and arguments with labels."""
    import torch

    try:
        import transformers
    except ImportError:
        raise SystemExit("a Transformers config takes the package transformers: pip install transformers") from None
    from torch_tpu.aot import _experts

    config = dict(config)
    kind = transformers.CONFIG_MAPPING[config.pop("model_type")]
    made = kind(**{**config, "use_cache": False})
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(made, attn_implementation="sdpa")
        ids = torch.empty(batch, length, dtype=torch.int64)
    _experts.register()
    model.config._experts_implementation = _experts.NAME
    return model.to(getattr(torch, dtype)), (), {"input_ids": ids, "labels": ids}


def _named(what: str) -> tuple[Any, tuple, dict[str, Any]]:
    place, _, name = what.rpartition(":")
    if place.endswith(".py"):
        spec = importlib.util.spec_from_file_location("torch_tpu_aot_user", place)
        if spec is None or spec.loader is None:
            raise SystemExit(f"cannot read {place}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    made = getattr(module, name)()
    model, args, kwargs = (*made, (), {})[:3] if isinstance(made, tuple) else (made, (), {})
    return model, args, kwargs or {}


def _compile(o: argparse.Namespace):
    from torch_tpu import aot

    if o.what.endswith(".mlir"):
        with open(o.what) as f:
            return aot.compile_text(
                f.read(), topology=o.topology, partitions=o.partitions, effort=o.effort, store=o.store, library=o.library
            )
    if o.what.endswith(".json"):
        with open(o.what) as f:
            config = json.load(f)
        batch = o.batch
        if not batch:
            with aot.Compiler(o.topology, o.library) as compiler:
                batch = compiler.topology.devices
        model, args, kwargs = transformers_model(config, batch, o.length, o.dtype)
        if o.mode == "forward":
            kwargs.pop("labels")
    elif ":" in o.what:
        model, args, kwargs = _named(o.what)
    else:
        raise SystemExit(f"'{o.what}' is neither a .json, a .mlir, nor FILE.py:FUNCTION or MODULE:FUNCTION")
    return aot.compile(
        model,
        args,
        kwargs,
        topology=o.topology,
        mode=o.mode,
        sharding=o.sharding,
        recompute=o.recompute,
        effort=o.effort,
        store=o.store,
        library=o.library,
    )


def _write(path: str | None, text: str) -> None:
    if path:
        with open(path, "w") as f:
            f.write(text)


def _run_compile(o: argparse.Namespace) -> int:
    from torch_tpu import aot

    try:
        report = _compile(o)
    except (aot.AotError, ValueError) as error:
        print(f"aot: {error}", file=sys.stderr)
        return 2
    print(report)
    _write(o.json, report.to_json())
    _write(o.hlo, report.hlo)
    _write(o.text, report.text)
    if o.html:
        _write(o.html, report.to_html())
    return 0 if report.fits else 1


def _run_programs(o: argparse.Namespace) -> int:
    import torch

    from torch_tpu.aot import _programs

    dtypes = [getattr(torch, name) for name in o.dtype or ("float32", "int64")]
    wanted = re.compile(o.only or "")
    fates = _programs.emit(o.folder, dtypes, o.samples, lambda name: bool(wanted.search(name)))
    for what, count in fates.most_common():
        print(f"{count:>6}  {what}")
    return 0 if fates["written"] else 1


def _run_check(o: argparse.Namespace) -> int:
    from torch_tpu import aot
    from torch_tpu.aot import _check

    try:
        outcomes = _check.check_folder(o.folder, o.topology or list(_check.TOPOLOGIES), o.jobs, o.cache, o.library, o.timeout)
    except (aot.AotError, OSError) as error:
        print(f"aot: {error}", file=sys.stderr)
        return 2
    print(_check.summary(outcomes))
    return 0 if all(r.ok for r in outcomes) else 1


def _run_fill(o: argparse.Namespace) -> int:
    from torch_tpu import aot
    from torch_tpu.aot import _check, _fill

    def tell(f: _fill.Filled) -> None:
        what = f"refused: {_check.short(f.reason)}" if f.reason else "known" if f.known else f"{f.seconds:.2f} s"
        print(f"{f.topology}  {f.name}: {what}", flush=True)

    try:
        command = [sys.executable, o.script, *o.arguments]
        status, filled = _fill.fill(command, o.topology, o.cache, o.jobs, o.library, o.timeout, tell)
    except (aot.AotError, OSError) as error:
        print(f"aot: {error}", file=sys.stderr)
        return 2
    if status or not filled:
        print(f"aot: {o.script} " + (f"ended with status {status}" if status else "asked for no program"), file=sys.stderr)
    fresh = [f for f in filled if f.ok and not f.known]
    print(
        f"{sum(f.ok for f in filled)} of {len(filled)} programs are in {o.cache}: {len(fresh)} new, "
        f"{sum(f.seconds for f in fresh):.1f} s of compiling"
    )
    return 2 if status or not filled else 0 if all(f.ok for f in filled) else 1

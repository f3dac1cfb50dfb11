"""Compiling for a TPU that isn't there: does a model or a training step compile for it, does it fit, how long would it take.

    import torch_tpu.aot as aot
    report = aot.compile(model, (inputs,), topology="v6e:2x4", mode="train_step", sharding="fsdp")
    print(report)

Needs libtpu (``pip install libtpu``), which is only asked to compile, in a child process; a model on ``meta`` needs no memory.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_tpu.aot import _hlo, _report, _sharding, _trace
from torch_tpu.aot._chips import CHIPS, Chip
from torch_tpu.aot._compiler import (
    AotError,
    Compiler,
    CompilerDied,
    CompilerMissing,
    Options,
    OutOfHbm,
    ProgramRefused,
    Topology,
    find_library,
)
from torch_tpu.aot._fill import Filled, fill
from torch_tpu.aot._report import Report
from torch_tpu.aot._trace import Traced, repeated_modules

__all__ = [
    "CHIPS",
    "AotError",
    "Chip",
    "Compiler",
    "CompilerDied",
    "CompilerMissing",
    "Filled",
    "Options",
    "OutOfHbm",
    "ProgramRefused",
    "Report",
    "Topology",
    "Traced",
    "compile",
    "compile_text",
    "fill",
    "find_library",
    "repeated_modules",
    "trace",
]

MODES = ("forward", "train_step")


def trace(
    model: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    devices: int = 1,
    mode: str = "forward",
    sharding: str = "replicated",
    optimizer: _trace.Optimizer | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    recompute: bool | list[torch.nn.Module] = False,
) -> Traced:
    """The StableHLO program of a model, for ``devices`` devices, without compiling it. Arguments are those of :func:`compile`.

    The process's device ``tpu`` becomes an abstract one, on which nothing can be computed: raises RuntimeError if the
    device is in use already.
    """
    if mode not in MODES:
        raise ValueError(f"mode is one of {', '.join(MODES)}, got {mode!r}")
    if devices < 1:
        raise ValueError(f"a program runs on at least one device, got {devices}")
    if mode == "forward":
        return _trace.trace_forward(model, tuple(args), dict(kwargs or {}), sharding, devices)
    return _trace.trace_train_step(model, tuple(args), dict(kwargs or {}), sharding, devices, optimizer, loss, recompute)


def compile(
    model: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    topology: str,
    mode: str = "forward",
    sharding: str = "replicated",
    optimizer: _trace.Optimizer | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    recompute: bool | list[torch.nn.Module] = False,
    effort: str = "fast",
    xla: dict[str, Any] | None = None,
    store: str | None = None,
    library: str | None = None,
    timeout: float = 3600,
) -> Report:
    """Compiles a model or function for a TPU that isn't there.

    Args:
        model: a module or a function of tensors. Its tensors, and those in ``args`` and ``kwargs``, give shapes and dtypes
            alone; they may be on ``meta``, where they take no memory. Shapes are those of all devices together.
        topology: what to compile for, as libtpu calls it: ``v5e:2x2``, ``v6e:16x16``, ``v5p:2x2x1``, ``tpu7x:2x2x1``.
        mode: ``forward``, or ``train_step``: forward, backward and optimizer as one program, whose parameters and state
            are updated in place.
        sharding: ``replicated``; ``data``: tensors whose dimension 0 is the batch are split over all devices; ``fsdp``: also
            parameters and optimizer state, along their largest dimension that divides by the number of devices.
        optimizer: makes a torch optimizer for a list of parameters; AdamW by default.
        loss: from the model's output to a 0-dim tensor; by default the output's ``loss``, or the output itself.
        recompute: True: the members of the model's lists of layers keep only their inputs for backward. Or the modules.
        effort: ``fast``, ``normal`` or ``full``: how much the compiler optimises. Memory, flops and traffic hardly change.
        xla: further options of XLA.
        store: a file for the compiled program.

    Returns a :class:`Report`, also for a program that doesn't fit or that the compiler refuses. Raises
    :class:`CompilerMissing` without libtpu, :class:`CompilerDied` if it aborts, ValueError for what can't be split as asked.
    """
    begin = time.monotonic()
    with Compiler(topology, library) as compiler:
        devices = compiler.topology.devices
        traced = trace(
            model,
            args,
            kwargs,
            devices=devices,
            mode=mode,
            sharding=sharding,
            optimizer=optimizer,
            loss=loss,
            recompute=recompute,
        )
        took = time.monotonic() - begin
        report = _compile(compiler, traced, sharding, effort, xla, store, timeout)
    report.trace_seconds = took
    return report


def compile_text(
    text: str,
    *,
    topology: str,
    partitions: int = 1,
    effort: str = "full",
    xla: dict[str, Any] | None = None,
    store: str | None = None,
    library: str | None = None,
    timeout: float = 3600,
) -> Report:
    """Compiles a StableHLO program, split over ``partitions`` devices as its ``mhlo.sharding`` attributes say."""
    signature = _sharding.signature(text)
    inputs = []
    for p in signature.parameters:
        sharding = _sharding.sharding_of(p)
        inputs.append(_trace.Input(p.name.lstrip("%"), "argument", p.shape, p.element, sharding))
    with Compiler(topology, library) as compiler:
        traced = Traced("program", text, inputs, text.count("stablehlo."))
        return _compile(
            compiler, traced, "as annotated" if partitions > 1 else "replicated", effort, xla, store, timeout, partitions
        )


def _compile(
    compiler: Compiler,
    traced: Traced,
    sharding: str,
    effort: str,
    xla: dict[str, Any] | None,
    store: str | None,
    timeout: float,
    partitions: int | None = None,
) -> Report:
    topology = compiler.topology
    with tempfile.TemporaryDirectory(prefix="torch_tpu_aot_") as dump:
        options = Options(
            partitions=partitions or topology.devices, effort=effort, xla={**_hlo.dump_options(dump), **(xla or {})}
        )
        begin = time.monotonic()
        try:
            outcome: dict[str, Any] | ProgramRefused = compiler.compile(traced.text, options, store, timeout)
        except ProgramRefused as refusal:
            outcome = refusal
        report = _report.describe(traced, topology, sharding, effort, outcome, dump)
    report.compile_seconds = report.compile_seconds or time.monotonic() - begin
    report.stored = store if report.fits else None
    return report

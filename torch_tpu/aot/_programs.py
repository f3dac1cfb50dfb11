"""Programs for a TPU of every operator: PyTorch's own samples of its operators with their gradients, captured on an abstract
device."""

import contextlib
import json
import pathlib
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torch_tpu.aot import _check, _trace
from torch_tpu.aot._sharding import REPLICATED


OVERLOADS = "overloads.json"  # which overloads of ATen each file's program was made of


class _Overloads(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.met: set[str] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        if function.namespace == "aten":
            self.met.add(function.__name__.removesuffix(".default"))
        return function(*args, **(kwargs or {}))


def _samples(
    dtype: torch.dtype, most: int, wanted: Callable[[str], bool]
) -> Iterator[tuple[str, Callable, tuple, dict[str, Any]]]:
    """A name for each sample, the operator and its arguments: at most ``most`` of an operator."""
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if dtype not in op.dtypes or not wanted(name):
            continue
        gradients = dtype.is_floating_point and op.supports_autograd
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                for n, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=gradients)):
                    if n == most:
                        break
                    yield f"{name}.{str(dtype).removeprefix('torch.')}.{n}", op.op, (sample.input, *sample.args), sample.kwargs
            except Exception as error:  # a sample that can't be made on this machine
                warnings.warn(f"no samples of {name}: {error}", RuntimeWarning, stacklevel=2)


def _on_capture(capture: _trace._Capture, value: Any) -> Any:
    """The value with placeholders for its tensors; 0-dim ones stay numbers of the CPU, as in most programs."""
    count = 0

    def replace(v: Any) -> Any:
        nonlocal count
        if not isinstance(v, torch.Tensor):
            return v
        count += 1
        return capture.add(v, f"argument {count}", "other").requires_grad_(v.requires_grad)

    return pytree.tree_map(replace, value)


def _gradients(results: list[torch.Tensor], call: Any) -> list[torch.Tensor]:
    """Gradients of the sum of absolute values, by whatever asks for one."""
    ends = [r.abs().sum() for r in results if r.requires_grad]
    inputs = [t for t in pytree.tree_leaves(call) if isinstance(t, torch.Tensor) and t.requires_grad]
    found = torch.autograd.grad(ends, inputs, allow_unused=True) if ends and inputs else ()
    return [g for g in found if g is not None]


def _text(name: str, op: Callable, call: Any, gradients: bool) -> tuple[str, set[str]]:
    """The program of a call, and of its gradients too; the overloads that it is made of."""
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")
        capture = stack.enter_context(_trace._Capture("replicated", 1))
        args, kwargs = call = _on_capture(capture, call)
        overloads = stack.enter_context(_Overloads())
        results = _trace._tensors(op(*args, **kwargs))
        if gradients:
            results += _gradients(results, call)
        return capture.end(name, [r.detach() for r in results], [REPLICATED] * len(results)).text, overloads.met


def emit(folder: str, dtypes: list[torch.dtype], most: int = 2, wanted: Callable[[str], bool] = lambda name: True) -> Counter:
    """Writes a program for each sample into ``folder``, with the sample's gradients where it has some, and the overloads that
    each is made of into ``overloads.json``. Counts what became of them: "written", "same as another", "has no program" (views),
    and why others have none."""
    _trace._core()._aot_open()
    root = pathlib.Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    fates: Counter = Counter()
    seen: set[str] = set()
    overloads: dict[str, list[str]] = {}

    def attempt(name: str, op: Callable, call: Any, gradients: bool) -> tuple[str, set[str]] | None:
        try:
            return _text(name, op, call, gradients)
        except Exception as error:
            if isinstance(error, ValueError) and "nothing to compile" in str(error):
                fates["has no program"] += 1
            else:
                what = f"{name.rsplit('.', 2)[0]}{' with gradients' if gradients else ''}"
                fates[f"{what}: {type(error).__name__}: {_check.short(str(error))}"] += 1
            return None

    for dtype in dtypes:
        for name, op, args, kwargs in _samples(dtype, most, wanted):
            call = (args, kwargs)
            gradients = any(isinstance(t, torch.Tensor) and t.requires_grad for t in pytree.tree_leaves(call))
            made = attempt(name, op, call, gradients) or (attempt(name, op, call, False) if gradients else None)
            if made is None:
                continue
            text, met = made
            mark = _check.fingerprint(text)
            if mark in seen:
                fates["same as another"] += 1
                continue
            seen.add(mark)
            file = re.sub(r"[^\w.\-]", "_", name) + ".mlir"
            (root / file).write_text(text)
            overloads[file] = sorted(met)
            fates["written"] += 1
    (root / OVERLOADS).write_text(json.dumps(overloads, indent=0))
    return fates

"""Programs for a TPU of every operator: PyTorch's own samples of its operators, captured on an abstract device."""

import contextlib
import pathlib
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_tpu.aot import _check, _trace
from torch_tpu.aot._sharding import REPLICATED


def _samples(
    dtype: torch.dtype, most: int, wanted: Callable[[str], bool]
) -> Iterator[tuple[str, Callable, tuple, dict[str, Any]]]:
    """A name for each sample, the operator and its arguments: at most ``most`` of an operator."""
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if dtype not in op.dtypes or not wanted(name):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                for n, sample in enumerate(op.sample_inputs("cpu", dtype)):
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
        return capture.add(v, f"argument {count}", "other")

    return pytree.tree_map(replace, value)


def emit(folder: str, dtypes: list[torch.dtype], most: int = 2, wanted: Callable[[str], bool] = lambda name: True) -> Counter:
    """Writes a program for each sample into ``folder``. Counts what became of them: "written", "same as another", "has no
    program" (views), and why others have none."""
    _trace._core()._aot_open()
    root = pathlib.Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    fates: Counter = Counter()
    seen: set[str] = set()
    for dtype in dtypes:
        for name, op, args, kwargs in _samples(dtype, most, wanted):
            text = None
            with warnings.catch_warnings(), contextlib.ExitStack() as stack:
                warnings.simplefilter("ignore")
                capture = stack.enter_context(_trace._Capture("replicated", 1))
                try:
                    args, kwargs = _on_capture(capture, (args, kwargs))
                    results = _trace._tensors(op(*args, **kwargs))
                    text = capture.end(name, results, [REPLICATED] * len(results)).text
                except ValueError as error:
                    fates[
                        "has no program"
                        if "nothing to compile" in str(error)
                        else f"{name.rsplit('.', 2)[0]}: {_check.short(str(error))}"
                    ] += 1
                except Exception as error:
                    fates[f"{name.rsplit('.', 2)[0]}: {type(error).__name__}: {_check.short(str(error))}"] += 1
            if text is None:
                continue
            mark = _check.fingerprint(text)
            if mark in seen:
                fates["same as another"] += 1
                continue
            seen.add(mark)
            (root / (re.sub(r"[^\w.\-]", "_", name) + ".mlir")).write_text(text)
            fates["written"] += 1
    return fates

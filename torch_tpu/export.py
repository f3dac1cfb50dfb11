"""StableHLO modules from ``torch.export``: programs that need neither PyTorch nor this package.

    module = torch_tpu.export.to_stablehlo(model, (x,))
    module.save("model.mlir")
    y, = torch_tpu.export.load("model.mlir")(x.to("tpu"), *weights)
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from torch_tpu import _C

__all__ = ["ArraySpec", "StableHLO", "load", "to_stablehlo"]

_DTYPES = {
    "i1": torch.bool, "ui8": torch.uint8, "ui16": torch.uint16, "ui32": torch.uint32, "ui64": torch.uint64,
    "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "f16": torch.float16,
    "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "complex<f32>": torch.complex64,
    "complex<f64>": torch.complex128, "f8E4M3FN": torch.float8_e4m3fn, "f8E5M2": torch.float8_e5m2,
}  # fmt: skip


@dataclass(frozen=True)
class ArraySpec:
    """A parameter or a result of ``main``: a dense row-major array."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    kind: str = ""
    """Where it came from: "parameter", "buffer", "constant", "user_input"; "user_output", "buffer_mutation", "user_input_mutation"."""
    name: str = ""
    """The parameter's or buffer's name in the model, or the argument's."""


class StableHLO:
    """A StableHLO module whose ``main`` takes ``inputs`` and gives ``outputs``.

    Called with tensors on ``tpu`` it runs on this process's device; it is compiled at the first call.
    """

    def __init__(self, text: str, inputs: Sequence[ArraySpec] | None = None, outputs: Sequence[ArraySpec] | None = None):
        self.text = text
        parsed = _signature(text) if inputs is None or outputs is None else ((), ())
        self.inputs = tuple(parsed[0] if inputs is None else inputs)
        self.outputs = tuple(parsed[1] if outputs is None else outputs)
        self._loaded: Any = None

    def save(self, path: str | Path) -> None:
        """Writes the text."""
        Path(path).write_text(self.text)

    def bytecode(self, version: str | None = None) -> bytes:
        """Portable bytecode (VHLO), as PJRT plugins and StableHLO's tools read it.

        version: of StableHLO, such as "1.0.0"; the oldest that the writer knows if it isn't given. MLIR's own libraries write it, which
            no PJRT plugin offers: they come with jaxlib (without JAX). NotImplementedError if that isn't installed.
        """
        try:
            from torch_tpu import _bytecode
        except ImportError as error:
            raise NotImplementedError(
                "portable StableHLO bytecode is written by MLIR's libraries, which neither PJRT's interface nor this package has. "
                "Install those of jaxlib (pip install --no-deps jaxlib), or save the text and convert it: "
                "stablehlo-opt --chlo-legalize-to-stablehlo model.mlir | stablehlo-translate --serialize --target=1.0.0") from error
        return _bytecode.written(self.text, version)

    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """Runs ``main``. TypeError or ValueError if the tensors are not those of ``inputs``."""
        if len(inputs) != len(self.inputs):
            raise TypeError(f"the module takes {len(self.inputs)} arrays, got {len(inputs)}")
        for i, (given, spec) in enumerate(zip(inputs, self.inputs, strict=True)):
            if given.device.type != "tpu" or given.dtype != spec.dtype or tuple(given.shape) != spec.shape:
                raise ValueError(f"input {i} of the module is {spec.dtype}{list(spec.shape)} on tpu, "
                                 f"got {given.dtype}{list(given.shape)} on {given.device}")
        if self._loaded is None:
            self._loaded = _C._LoadedModule(self.text)
        return self._loaded.run([_whole(t.detach()) for t in inputs])


def _whole(t: torch.Tensor) -> torch.Tensor:
    """The tensor as the whole of a storage, in row-major order."""
    is_whole = t.is_contiguous() and t.untyped_storage().nbytes() == t.nbytes and not (t.is_conj() or t.is_neg())
    return t if is_whole else t.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def _specs(types: str) -> list[ArraySpec]:
    specs = []
    for text in re.findall(r"tensor<((?:[^<>]|<[^<>]*>)*)>", types):
        *dims, dtype = re.fullmatch(r"((?:\d+x)*)(.+)", text).groups()
        if dtype not in _DTYPES:
            raise ValueError(f"PyTorch has no type for tensor<{text}>")
        specs.append(ArraySpec(_DTYPES[dtype], tuple(int(d) for d in dims[0].split("x")[:-1])))
    return specs


def _signature(text: str) -> tuple[list[ArraySpec], list[ArraySpec]]:
    """The types of main's parameters and results. ValueError if there is no such function, or a size isn't static."""
    found = re.search(r"func\.func\s+(?:public\s+)?@main\((.*?)\)\s*->\s*(\([^{]*\)|[^{(]*)", text, re.S)
    if not found:
        raise ValueError("the module has no function main with results")
    return _specs(found[1]), _specs(found[2])


def load(path: str | Path) -> StableHLO:
    """A module that was saved as text, by this package or another one. ValueError if it has no ``main`` of static arrays."""
    return StableHLO(Path(path).read_text())


def to_stablehlo(program: ExportedProgram | torch.nn.Module, args: tuple[Any, ...] | None = None,
                 kwargs: dict[str, Any] | None = None, *, weights_as_constants: bool = False, name: str = "main") -> StableHLO:
    """Lowers an exported program, or a model with example arguments, to StableHLO text for any plugin.

    ``main`` takes the parameters, buffers and constants of the model and then its arguments, in ``torch.export``'s order; with
    ``weights_as_constants`` the arguments only, and the weights are in the text. It gives the new values of buffers and
    arguments that the model changes, then its results. Sizes are those of the example arguments, dynamic ones too. Floats are
    multiplied at the precision that holds here (see Precision). Indices out of range are not found by the module.

    ``name`` is the module's. Raises NotImplementedError for models that draw random numbers or whose operators have no lowering.
    """
    if isinstance(program, torch.nn.Module):
        program = torch.export.export(program, args or (), kwargs)
    elif args is not None or kwargs is not None:
        raise TypeError("to_stablehlo(): an ExportedProgram has its example arguments already")
    from torch.export.passes import move_to_device_pass

    from torch_tpu.compile_backend import _decompositions

    program = move_to_device_pass(program.run_decompositions(_decompositions(before_autograd=True)), "tpu")
    given = list(program._graph_module_flat_inputs(*program.example_inputs))
    signature = program.graph_signature
    flags = [weights_as_constants and spec.kind is not InputKind.USER_INPUT for spec in signature.input_specs]
    inputs = [ArraySpec(t.dtype, tuple(t.shape), spec.kind.name.lower().replace("_tensor", ""), spec.target or spec.arg.name)
              for t, spec, inside in zip(given, signature.input_specs, flags, strict=True)
              if isinstance(t, torch.Tensor) and not inside]
    outputs: list[ArraySpec] = []

    class Functional(torch.nn.Module):
        def forward(self, *values: Any) -> list[torch.Tensor]:
            results = []
            for value, spec in zip(torch.fx.Interpreter(program.graph_module).run(*values), signature.output_specs, strict=True):
                if isinstance(value, torch.Tensor):
                    results.append(value.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format))
                    kind = spec.kind.name.lower() if spec.kind is not OutputKind.LOSS_OUTPUT else "user_output"
                    outputs.append(ArraySpec(value.dtype, tuple(value.shape), kind, spec.target or spec.arg.name))
            return results

    captured = _capture(Functional(), given, flags)
    return StableHLO(captured.closed_text(name), inputs, outputs)


def _capture(module: torch.nn.Module, given: list[Any], inside: list[bool]) -> Any:
    """Runs the module on placeholders for all tensors but those that are to be inside."""
    outside = [_whole(t.detach()).clone() for t, is_inside in zip(given, inside, strict=True)
               if isinstance(t, torch.Tensor) and not is_inside]
    capture = _C._Capture(outside, portable=True)
    try:
        placeholders = iter(capture.placeholders)
        values = [next(placeholders) if isinstance(t, torch.Tensor) and not is_inside else t
                  for t, is_inside in zip(given, inside, strict=True)]
        with torch.no_grad(), torch._C._DisableAutocast():
            results = module(*values)
        return capture.end(results, "export")
    finally:
        capture.abort()

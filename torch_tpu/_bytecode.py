"""Portable StableHLO bytecode, by MLIR's libraries as jaxlib brings them. Nothing of JAX itself is used."""

from jaxlib.mlir import ir, passmanager
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, stablehlo

_registered = False


def _context() -> ir.Context:
    global _registered
    if not _registered:
        stablehlo.register_stablehlo_passes()
        _registered = True
    context = ir.Context()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)  # the dialect of functions among them
    context.append_dialect_registry(registry)
    stablehlo.register_dialect(context)
    chlo.register_dialect(context)
    return context


def written(text: str, version: str | None) -> bytes:
    """The module's bytecode for this version of StableHLO. What the text has of CHLO becomes StableHLO, since there is no bytecode of it."""
    with _context():
        module = ir.Module.parse(text)
        passmanager.PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))").run(module.operation)
        return stablehlo.serialize_portable_artifact_str(str(module), version or stablehlo.get_minimum_version())


def read(bytecode: bytes) -> str:
    """The text of a module."""
    with _context():
        return str(ir.Module.parse(stablehlo.deserialize_portable_artifact_str(bytecode)))

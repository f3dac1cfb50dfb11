"""Shapes of results, for tracing, where PyTorch's own rule is another device's."""

from typing import Any

import torch
from torch._subclasses.fake_impls import register_op_impl


def _grouped_mm(mode: Any, op: Any, mat_a: torch.Tensor, mat_b: torch.Tensor, offs: torch.Tensor | None = None,
                bias: torch.Tensor | None = None, out_dtype: torch.dtype | None = None) -> torch.Tensor:
    """PyTorch's takes bfloat16 only, as CUDA does."""
    if mat_a.device.type != "tpu":
        return NotImplemented
    groups = [] if mat_a.dim() != mat_b.dim() else [mat_a.shape[0]] if mat_a.dim() == 3 else [offs.shape[0]]
    with mode:
        return torch.empty([*groups, mat_a.shape[-2], mat_b.shape[-1]], dtype=out_dtype or mat_a.dtype, device=mat_a.device)


def register() -> None:
    register_op_impl(torch.ops.aten._grouped_mm.default)(_grouped_mm)

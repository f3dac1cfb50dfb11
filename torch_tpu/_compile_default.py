"""``torch.compile(model)`` without a backend: graphs that use the device go to the backend ``tpu``, all others to inductor.

Inductor has one entry, which PyTorch calls once for each graph. It is the least that can be put in its place: inductor's own
per-device backends begin after it has lowered the graph to its own form, too late for another compiler.
"""

import functools
from typing import Any

import torch


def _uses_tpu(module: Any, example_inputs: Any) -> bool:
    """True if an input, or what any node of the graph makes, is on the device."""
    values = list(example_inputs)
    for node in module.graph.nodes:
        values.append(node.meta.get("example_value"))
        values.append(node.kwargs.get("device"))
    leaves = torch.utils._pytree.tree_leaves(values)
    return any(torch.device(v).type == "tpu" if isinstance(v, str | torch.device) else
               isinstance(v, torch.Tensor) and v.device.type == "tpu" for v in leaves)


def patch() -> None:
    """Wraps inductor's entry. ``options={"tpu_backend": "pallas"}`` asks for inductor's own code for TPUs, and gets it."""
    wrapper = torch._TorchCompileInductorWrapper
    inductor = wrapper.__call__

    @functools.wraps(inductor)
    def call(self: Any, model_: Any, inputs_: Any, **kwargs: Any) -> Any:
        if self.config.get("tpu_backend") != "pallas" and _uses_tpu(model_, inputs_):
            from torch_tpu.compile_backend import tpu

            return tpu(model_, inputs_)
        return inductor(self, model_, inputs_, **kwargs)

    wrapper.__call__ = call

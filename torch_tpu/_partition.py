"""The joint graph of forward and backward, cut in two."""

from typing import Any

import torch
from torch import fx
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition

from torch_tpu._nodes import is_random, storages

_FRESH = (torch.ops.aten.empty.memory_format, torch.ops.aten.empty_strided.default)  # made to be written to


def _key(value: Any) -> Any:
    """Equal for arguments that can stand for each other: 1, 1.0, True and -0.0 can't."""
    if isinstance(value, list | tuple):
        return tuple(_key(v) for v in value)
    if isinstance(value, dict):
        return tuple((k, _key(v)) for k, v in value.items())
    return value if isinstance(value, fx.Node) else (type(value), repr(value) if isinstance(value, float) else value)


def share_equal_nodes(graph: fx.Graph) -> None:
    """Lets nodes that compute the same be one. Kept are results of the graph, which have arrays of their own in eager, and what
    draws random numbers; what was computed before a write is not used after it."""
    returned = storages(graph.output_node().all_input_nodes)
    seen: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        is_operator = isinstance(node.target, torch._ops.OpOverload)
        if node.op != "call_function" or not (is_operator or getattr(node.target, "__module__", "") == "_operator"):
            continue
        if is_operator and node.target._schema.is_mutable:
            seen.clear()
        elif node.target in _FRESH or storages([node]) & returned:
            continue
        elif is_operator and is_random(node):
            continue
        else:
            key = (node.target, _key(node.args), _key(node.kwargs))
            try:
                first = seen.setdefault(key, node)
            except TypeError:  # a size that is no node can't be hashed
                continue
            if first is not node:
                node.replace_all_uses_with(first)
                graph.erase_node(node)


def partition(joint: fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """PyTorch's partitioner, but for its own pass that joins equal nodes: that one imports inductor's lowerings, which takes
    as long as everything else that is done here for a model of some layers."""
    if config.cse:
        joint.graph.eliminate_dead_code()
        share_equal_nodes(joint.graph)
    with config.patch(cse=False):
        return min_cut_rematerialization_partition(joint, joint_inputs, **kwargs)

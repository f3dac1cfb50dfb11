"""Host parts of compiled graphs: an optimizer's arithmetic on its step counters, which are numbers in CPU memory.

Each parameter has a counter of its own, so PyTorch computes on lists of 0-dim tensors. Stacked into a vector they take one
operator for all of them.
"""

import operator
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten


def _over_vectors(op: Any) -> torch._ops.OpOverload | None:
    """What does for vectors what this operator does for lists of numbers."""
    if not isinstance(op, torch._ops.OpOverload) or op._schema.is_mutable:
        return None
    name, overload = op.overloadpacket.__name__, op._overloadname
    if name == "_foreach_pow":
        overload = {"ScalarAndTensor": "Scalar", "List": "Tensor_Tensor", "Scalar": "Tensor_Scalar"}.get(overload, "")
    elif overload == "List":
        overload = "Tensor"
    packet = getattr(aten, name.removeprefix("_foreach_"), None) if name.startswith("_foreach_") else None
    return getattr(packet, overload, None) if packet and overload in ("Tensor", "Scalar", "default", "Tensor_Tensor", "Tensor_Scalar") else None


def _numbers_in(value: Any) -> bool:
    """A list of 0-dim CPU tensors of one dtype."""
    if not isinstance(value, list | tuple) or not value:
        return False
    values = [n.meta.get("val") if isinstance(n, fx.Node) else None for n in value]
    return all(isinstance(v, torch.Tensor) and v.dim() == 0 and v.device.type == "cpu" and v.dtype == values[0].dtype for v in values)


class _Rewrite:
    """A copy of a graph with vectors in place of lists."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.env: dict[fx.Node, fx.Node] = {}
        self.vectors: dict[fx.Node, fx.Node] = {}  # by the foreach node of the old graph
        self.members: dict[fx.Node, fx.Node] = {}  # a vector, unbound
        self.copies: list[tuple[fx.Node, fx.Node]] = []

    def value(self, node: fx.Node) -> fx.Node:
        """In the new graph. A member of a vector is taken out when somebody asks for it."""
        if node not in self.env:
            vector = self.vectors[node.args[0]]
            if vector not in self.members:
                self.members[vector] = self.graph.call_function(aten.unbind.int, (vector,))
            self.env[node] = self.graph.call_function(operator.getitem, (self.members[vector], node.args[1]))
        return self.env[node]

    def vector(self, numbers: list[fx.Node]) -> fx.Node:
        makers = {n.args[0] if n.target is operator.getitem else None for n in numbers}
        maker = makers.pop()
        if not makers and maker in self.vectors and [n.args[1] for n in numbers] == list(range(len(maker.meta["val"]))):
            return self.vectors[maker]
        return self.graph.call_function(aten.stack.default, ([self.value(n) for n in numbers],))

    def add(self, node: fx.Node) -> None:
        op = _over_vectors(node.target)
        lists = [a for a in node.args if isinstance(a, list | tuple)]
        if node.target is aten.copy_.default and not node.users and all(_numbers_in([a]) for a in node.args[:2]):
            self.copies.append((node.args[0], node.args[1]))
        elif node.target is operator.getitem and node.args[0] in self.vectors:
            pass
        elif op is not None and all(_numbers_in(a) for a in lists) and not node.kwargs:
            args = [self.vector(a) if isinstance(a, list | tuple) else fx.node.map_arg(a, self.value) for a in node.args]
            self.vectors[node] = self.graph.call_function(op, tuple(args))
        elif node.op == "output":
            if self.copies:
                lists = [[self.value(n) for n in side] for side in zip(*self.copies)]
                self.graph.call_function(aten._foreach_copy_.default, tuple(lists))
            self.graph.output(fx.node.map_arg(node.args[0], self.value))
        else:
            self.env[node] = self.graph.node_copy(node, self.value)


def with_vectors(module: fx.GraphModule) -> fx.GraphModule:
    """The same function, with one operator where the graph has one over a list of 0-dim CPU tensors."""
    rewrite = _Rewrite()
    for node in module.graph.nodes:
        rewrite.add(node)
    return fx.GraphModule(module, rewrite.graph)

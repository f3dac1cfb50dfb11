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


def _is_number(node: fx.Node) -> bool:
    return isinstance(node, fx.Node) and _numbers_in([node])


def functional_numbers(graph: fx.Graph) -> None:
    """Writing to 0-dim CPU tensors comes last in the graph: operators that write in place return something new instead."""
    storages: dict[int, set[fx.Node]] = {}
    for node in graph.nodes:
        if _is_number(node):
            storages.setdefault(node.meta["val"].untyped_storage()._cdata, set()).add(node)
    now: dict[fx.Node, fx.Node] = {}  # what a number has become

    def is_alone(node: fx.Node) -> bool:  # or what wrote to it
        return all(n is node or n.args[:1] == (node,) for n in storages[node.meta["val"].untyped_storage()._cdata])

    for node in list(graph.nodes):
        written = list(node.args[0]) if node.args and isinstance(node.args[0], list | tuple) else list(node.args[:1])
        op = _out_of_place(node.target)
        is_ours = op is not None and written and all(_is_number(n) for n in written) and all(is_alone(n) for n in written)
        if node.op == "output":
            with graph.inserting_before(node):
                for number, value in now.items():
                    if number.op == "placeholder":
                        graph.call_function(aten.copy_.default, (number, value)).meta["val"] = number.meta["val"]
        node.args, node.kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: now.get(n, n))
        if not is_ours:
            continue
        with graph.inserting_before(node):
            result = graph.call_function(op, node.args, node.kwargs)
            if isinstance(node.args[0], list | tuple):
                result.meta["val"] = [n.meta["val"] for n in written]
                for i, n in enumerate(written):
                    now[n] = graph.call_function(operator.getitem, (result, i))
                    now[n].meta["val"] = n.meta["val"]
            else:
                result.meta["val"] = written[0].meta["val"]
                now[written[0]] = now[node] = result
        if not node.users:
            graph.erase_node(node)


def _out_of_place(op: Any) -> torch._ops.OpOverload | None:
    """The operator that returns what this one writes into its first argument."""
    if not isinstance(op, torch._ops.OpOverload) or not op._schema.is_mutable or not op.overloadpacket.__name__.endswith("_"):
        return None
    packet = getattr(aten, op.overloadpacket.__name__.removesuffix("_"), None)
    return getattr(packet, op._overloadname, None) if packet else None

"""What the nodes of an FX graph of ATen operators make, write to and share."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx


def tensors(value: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def storages(nodes: Iterable[fx.Node]) -> set[int]:
    """Of what the nodes make: nodes that share one are views of each other, or writes."""
    return {t.untyped_storage()._cdata for n in nodes for t in tensors(n.meta.get("val")) if t.layout is torch.strided}


def written_by(node: fx.Node) -> list[fx.Node]:
    """The arguments that an operator writes to."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    given = [(a, node.args[i] if i < len(node.args) else node.kwargs.get(a.name)) for i, a in enumerate(schema.arguments)]
    found = [value for a, value in given if a.alias_info and a.alias_info.is_write]
    return [n for n in torch.utils._pytree.tree_leaves(found) if isinstance(n, fx.Node)]


def is_random(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())

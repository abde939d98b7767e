"""Rewrite a traced graph so that no operation changes a tensor in place.

Other passes move and remove operations, which is right only if every operation just returns a result.
"""

from __future__ import annotations

import inspect
import operator

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves


class Untraceable(Exception):
    """A module cannot be traced into a graph."""


OPERATORS = {
    getattr(operator, f"i{name.rstrip('_')}"): getattr(operator, name)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor")
}
"""`operator.iadd` and so on, and the operators that return a new tensor instead."""


def write_out_of_place(traced: fx.GraphModule, example: Tensor) -> None:
    """Replace every operation in place by one that returns its result. The nodes of tensors get `meta["tensor"]`.

    Raises:
        Untraceable: A changed tensor shares its memory with another one, or an operation has no other form.
    """
    storages = _storages(traced, example)
    for node in list(traced.graph.nodes):
        if node.target in OPERATORS and node not in storages:  # `n += 1`, where n comes from a shape
            continue
        with traced.graph.inserting_before(node):
            new = _out_of_place(node)
        if new is None:
            continue
        nodes = list(traced.graph.nodes)
        later = set(nodes[nodes.index(node) + 1 :])
        _require_no_other_view(node, storages, later)
        new.meta, storages[new] = node.meta, storages.pop(node)
        node.args[0].replace_all_uses_with(new, delete_user_cb=later.__contains__)
        node.replace_all_uses_with(new)
        traced.graph.erase_node(node)


def _storages(traced: fx.GraphModule, example: Tensor) -> dict[fx.Node, set[int]]:
    """Where in memory the tensors of each result lie: one tensor or, after a split, several."""
    interpreter = fx.Interpreter(traced, garbage_collect_values=False)  # so that no memory is used twice
    interpreter.run(example)
    found: dict[fx.Node, set[int]] = {}
    for node, result in interpreter.env.items():
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        if tensors and node.op != "output":
            found[node] = {leaf.untyped_storage().data_ptr() if leaf.numel() else -id(node) for leaf in tensors}
            if isinstance(result, Tensor):
                node.meta["tensor"] = True
    return found


def _is_name_in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _asked_for_in_place(node: fx.Node) -> inspect.BoundArguments | None:
    """The arguments of a function that was called with `inplace=True`."""
    try:
        bound = inspect.signature(node.target).bind(*node.args, **node.kwargs)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # many functions of torch have no signature
        return None
    return bound if bound.arguments.get("inplace") else None


def _require_no_other_view(node: fx.Node, storages: dict[fx.Node, set[int]], later: set[fx.Node]) -> None:
    """Nobody may see the change through another tensor with the same memory: only the changed one is redirected."""
    x = node.args[0] if node.args else None
    if not isinstance(x, fx.Node) or node not in storages or storages.get(x) != storages[node]:
        raise Untraceable(f"{node.name} works in place in an unusual way")
    for other, storage in storages.items():
        if storage.isdisjoint(storages[node]) or other in later or other in (node, x):
            continue
        if other.op == "get_attr" or not later.isdisjoint(other.users):
            raise Untraceable(f"{node.name} works in place, and {other.name} shares its memory")
    if x.op == "get_attr":
        raise Untraceable(f"{node.name} changes the module itself")


def _out_of_place(node: fx.Node) -> fx.Node | None:
    """The same operation with a result of its own; None if the operation does not change its input."""
    graph, target = node.graph, node.target
    if node.op == "call_method":
        if not _is_name_in_place(str(target)):
            return None
        if callable(getattr(Tensor, name := str(target)[:-1], None)):
            return graph.call_method(name, node.args, node.kwargs)
    elif node.op != "call_function":
        return None
    elif isinstance(target, torch._ops.OpOverload):
        if not target._schema.is_mutable:
            return None
        name, overload = target._schema.name.split("::")[1].removesuffix("_"), target._overloadname
        new = getattr(getattr(torch.ops.aten, name, None), overload, None)
        if new is not None and not new._schema.is_mutable:
            return graph.call_function(new, node.args, node.kwargs)
    elif target in OPERATORS:
        return graph.call_function(OPERATORS[target], node.args, node.kwargs)
    elif (bound := _asked_for_in_place(node)) is not None:
        bound.arguments["inplace"] = False
        return graph.call_function(target, bound.args, bound.kwargs)  # type: ignore[arg-type]
    # Others, such as torch.relu_ and torch.ops.aten.relu_, have an overload that torch.export finds.
    elif not _is_name_in_place(getattr(target, "__name__", "")) and node.kwargs.get("out") is None:
        return None
    raise Untraceable(f"{node.name} works in place, and has no other form")

"""Replace operations in place by those that return their results.

Other passes move and remove operations, which is right only if each of them just returns a result.
"""

from __future__ import annotations

import inspect
import operator
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

OPERATORS = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
    operator.ifloordiv: operator.floordiv,
    operator.imod: operator.mod,
    operator.ipow: operator.pow,
    operator.imatmul: operator.matmul,
    operator.iand: operator.and_,
    operator.ior: operator.or_,
    operator.ixor: operator.xor,
}
"""Operators that work in place, and those that return a new tensor instead."""


class Untraceable(Exception):
    """A module cannot be traced into a graph."""


class _NoOtherForm(Untraceable):
    def __init__(self, node: fx.Node) -> None:
        super().__init__(f"{node.name} works in place, and has no other form")


def write_out_of_place(traced: fx.GraphModule, example: Tensor) -> None:
    """Replace every operation in place by one that returns its result.

    The nodes of tensors get `meta["tensor"]`.

    Raises:
        Untraceable: A changed tensor shares its memory with another one, or an operation has no
            other form.
    """
    storages = _storages(traced, example)
    for node in list(traced.graph.nodes):
        # `n += 1`, where n comes from a shape, stays as it is.
        if node.target in OPERATORS and node not in storages:
            continue
        with traced.graph.inserting_before(node):
            new = _out_of_place(node)
        if new is None:
            continue
        nodes = list(traced.graph.nodes)
        later = set(nodes[nodes.index(node) + 1 :])
        _require_no_other_view(node, storages, later)
        new.meta = node.meta
        storages[new] = storages.pop(node)
        node.args[0].replace_all_uses_with(new, delete_user_cb=later.__contains__)
        node.replace_all_uses_with(new)
        traced.graph.erase_node(node)


def _storages(traced: fx.GraphModule, example: Tensor) -> dict[fx.Node, set[int]]:
    """Where in memory the tensors of each result lie: one tensor or, after a split, several."""
    # No value is freed before the end, so that no memory is used twice.
    interpreter = fx.Interpreter(traced, garbage_collect_values=False)
    interpreter.run(example)
    storages: dict[fx.Node, set[int]] = {}
    for node, result in interpreter.env.items():
        if node.op == "output":
            continue
        addresses = {
            leaf.untyped_storage().data_ptr() if leaf.numel() else -id(node)
            for leaf in tree_leaves(result)
            if isinstance(leaf, Tensor)
        }
        if addresses:
            storages[node] = addresses
        if isinstance(result, Tensor):
            node.meta["tensor"] = True
    return storages


def _is_name_in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _in_place_arguments(node: fx.Node) -> inspect.BoundArguments | None:
    """The arguments of a function that was called with `inplace=True`; None for any other call."""
    target: Any = node.target
    try:
        bound = inspect.signature(target).bind(*node.args, **node.kwargs)
    except (TypeError, ValueError):  # many functions of torch have no signature
        return None
    return bound if bound.arguments.get("inplace") else None


def _require_no_other_view(
    node: fx.Node, storages: dict[fx.Node, set[int]], later: set[fx.Node]
) -> None:
    """Raise `Untraceable` if the change of a tensor is seen through another one with its memory.

    Only later uses of the changed tensor itself get the new result.
    """
    x = node.args[0] if node.args else None
    if not isinstance(x, fx.Node) or node not in storages or storages.get(x) != storages[node]:
        raise Untraceable(f"{node.name} works in place in an unusual way")
    for other, storage in storages.items():
        shares_memory = not storage.isdisjoint(storages[node])
        if not shares_memory or other in later or other in (node, x):
            continue
        if other.op == "get_attr" or not later.isdisjoint(other.users):
            raise Untraceable(f"{node.name} works in place, and {other.name} shares its memory")
    if x.op == "get_attr":
        raise Untraceable(f"{node.name} changes the module itself")


def _out_of_place(node: fx.Node) -> fx.Node | None:
    """The same operation with a result of its own; None if the operation does not change its input.

    Raises:
        Untraceable: The operation has no other form.
    """
    if node.op == "call_method":
        return _method_out_of_place(node)
    if node.op != "call_function":
        return None
    if isinstance(node.target, torch._ops.OpOverload):
        return _overload_out_of_place(node, node.target)
    return _function_out_of_place(node)


def _method_out_of_place(node: fx.Node) -> fx.Node | None:
    """`x.relu_()` as `x.relu()`."""
    name = str(node.target)
    if not _is_name_in_place(name):
        return None
    name = name.removesuffix("_")
    if not callable(getattr(Tensor, name, None)):
        raise _NoOtherForm(node)
    return node.graph.call_method(name, node.args, node.kwargs)


def _overload_out_of_place(node: fx.Node, target: torch._ops.OpOverload) -> fx.Node | None:
    """`aten.relu_.default` as `aten.relu.default`."""
    if not target._schema.is_mutable:
        return None
    name = target._schema.name.split("::")[1].removesuffix("_")
    overload = getattr(getattr(torch.ops.aten, name, None), target._overloadname, None)
    if overload is None or overload._schema.is_mutable:
        raise _NoOtherForm(node)
    return node.graph.call_function(overload, node.args, node.kwargs)


def _function_out_of_place(node: fx.Node) -> fx.Node | None:
    """`F.relu(x, inplace=True)` as `F.relu(x)`, and `operator.iadd` as `operator.add`.

    Others, such as torch.relu_ and torch.ops.aten.relu_, have an overload that torch.export finds.
    """
    target: Any = node.target
    if target in OPERATORS:
        return node.graph.call_function(OPERATORS[target], node.args, node.kwargs)
    bound = _in_place_arguments(node)
    if bound is not None:
        bound.arguments["inplace"] = False
        return node.graph.call_function(target, bound.args, bound.kwargs)
    if _is_name_in_place(getattr(target, "__name__", "")) or node.kwargs.get("out") is not None:
        raise _NoOtherForm(node)
    return None

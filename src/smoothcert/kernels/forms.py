"""One form of every operation that other modules look for.

The same layer can be written in many ways: `nn.ReLU()`, `F.relu(x)`, `x.relu_()`. After this pass,
there are only `torch.conv2d`, `torch.conv_transpose2d`, `torch.batch_norm`, `torch.relu`,
`torch.add`, `torch.mul`, `torch.max_pool2d`, and `linear`, `layer_norm`, `group_norm` and `silu` of
`torch.nn.functional`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from smoothcert.kernels.in_place import Untraceable


def write_in_one_form(traced: fx.GraphModule) -> None:
    """Replace every operation in `_FORMS` by its one form.

    Raises:
        Untraceable: There is an operation that other modules look for, but not in this form.
    """
    for node in list(traced.graph.nodes):
        is_call = node.op in ("call_function", "call_method") and "tensor" in node.meta
        if not is_call or node.target not in _FORMS:
            continue
        call = _FORMS[node.target](*node.args, **node.kwargs)
        if call is not None:
            replaced(node, *call).meta["written"] = True
    for node in traced.graph.nodes:
        if node.target in _WRITTEN and not node.meta.get("written"):
            raise Untraceable(f"{node.name} is written in an unusual way")
    traced.graph.lint()  # type: ignore[no-untyped-call]


_Call = tuple[Callable[..., Any], tuple[object, ...]]
_Size = int | Sequence[int]
"""A size in both directions, or one for each."""


def _relu(x: object, inplace: bool = False) -> _Call:
    return torch.relu, (x,)


def _silu(x: object, inplace: bool = False) -> _Call:
    return F.silu, (x,)


def _add(x: object, y: object, *, alpha: float = 1) -> _Call | None:
    if alpha != 1:
        return None
    return torch.add if _are_tensors(x, y) else operator.add, (x, y)


def _mul(x: object, y: object) -> _Call:
    return torch.mul if _are_tensors(x, y) else operator.mul, (x, y)


def _are_tensors(*values: object) -> bool:
    return all(isinstance(value, fx.Node) and "tensor" in value.meta for value in values)


def _conv2d(
    x: object,
    weight: object,
    bias: object = None,
    stride: _Size = 1,
    padding: _Size | str = 0,
    dilation: _Size = 1,
    groups: int = 1,
) -> _Call | None:
    if isinstance(padding, str):
        return None
    return torch.conv2d, (x, weight, bias, _pair(stride), _pair(padding), _pair(dilation), groups)


def _conv_transpose2d(
    x: object,
    weight: object,
    bias: object = None,
    stride: _Size = 1,
    padding: _Size = 0,
    output_padding: _Size = 0,
    groups: int = 1,
    dilation: _Size = 1,
) -> _Call:
    geometry = (_pair(stride), _pair(padding), _pair(output_padding), groups, _pair(dilation))
    return torch.conv_transpose2d, (x, weight, bias, *geometry)


def _batch_norm(
    x: object,
    weight: object,
    bias: object,
    mean: object,
    variance: object,
    training: object,
    momentum: object,
    eps: object,
    cudnn: object,
) -> _Call | None:
    if training is not False or mean is None or variance is None:
        return None
    return torch.batch_norm, (x, weight, bias, mean, variance, False, 0.0, eps, True)


def _linear(x: object, weight: object, bias: object = None) -> _Call:
    return F.linear, (x, weight, bias)


def _max_pool(
    x: object,
    size: _Size,
    stride: _Size | None = None,
    padding: _Size = 0,
    dilation: _Size = 1,
    ceil_mode: bool = False,
    **kwargs: object,
) -> _Call | None:
    if kwargs.get("return_indices"):
        return None
    geometry = (_pair(size), _pair(stride or size), _pair(padding), _pair(dilation))
    return torch.max_pool2d, (x, *geometry, ceil_mode)


def _layer_norm(
    x: object,
    shape: Sequence[int],
    weight: object = None,
    bias: object = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> _Call:
    return F.layer_norm, (x, tuple(shape), weight, bias, eps)


def _group_norm(
    x: object,
    groups: object,
    weight: object = None,
    bias: object = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> _Call:
    return F.group_norm, (x, groups, weight, bias, eps)


def _view(x: object, *shape: object, **kwargs: object) -> _Call | None:
    """A fused operation may store its result in another order, of which there is no view."""
    if kwargs or any(isinstance(length, torch.dtype) for length in shape):
        return None
    return Tensor.reshape, (x, *shape)


def _pair(value: _Size) -> tuple[int, ...]:
    if isinstance(value, int):
        return value, value
    return tuple(value) if len(value) > 1 else (value[0], value[0])


_aten = torch.ops.aten

_FORMS: dict[Any, Callable[..., _Call | None]] = {
    **dict.fromkeys((torch.relu, F.relu, "relu", _aten.relu.default), _relu),
    **dict.fromkeys((F.silu, _aten.silu.default), _silu),
    **dict.fromkeys((operator.add, torch.add, "add", _aten.add.Tensor), _add),
    **dict.fromkeys((operator.mul, torch.mul, "mul", _aten.mul.Tensor), _mul),
    **dict.fromkeys((torch.conv2d, F.conv2d, _aten.conv2d.default), _conv2d),
    torch.conv_transpose2d: _conv_transpose2d,
    **dict.fromkeys((torch.batch_norm, _aten.batch_norm.default), _batch_norm),
    **dict.fromkeys((F.linear, _aten.linear.default), _linear),
    **dict.fromkeys((F.max_pool2d, torch.max_pool2d, _aten.max_pool2d.default), _max_pool),
    **dict.fromkeys((F.layer_norm, torch.layer_norm, _aten.layer_norm.default), _layer_norm),
    **dict.fromkeys((F.group_norm, torch.group_norm, _aten.group_norm.default), _group_norm),
    **dict.fromkeys(("view", _aten.view.default), _view),
}
"""Functions and methods, and what writes each of them in its one form."""
_WRITTEN: set[Any] = {
    torch.conv2d,
    torch.conv_transpose2d,
    torch.batch_norm,
    torch.relu,
    torch.add,
    torch.mul,
    torch.max_pool2d,
    F.linear,
    F.layer_norm,
    F.group_norm,
    F.silu,
}
"""The operations that other modules look for."""


def replaced(node: fx.Node, target: Callable[..., Any], arguments: tuple[Any, ...]) -> fx.Node:
    """Call another function instead of a node."""
    with node.graph.inserting_before(node):
        new = node.graph.call_function(target, arguments)
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    node.graph.erase_node(node)
    return new

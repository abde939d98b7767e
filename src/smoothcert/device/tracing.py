"""Trace a module into a graph of operations, write each operation in one form, and fold batch normalisation.

The same layer can be written in many ways: `nn.ReLU()`, `F.relu(x)`, `x.relu_()`. After `trace`, a graph has one form
of every operation that other modules look for: `torch.conv2d`, `torch.conv_transpose2d`, `torch.batch_norm`,
`torch.relu`, `torch.add`, `torch.max_pool2d`, `torch.nn.functional.linear`, `torch.nn.functional.layer_norm`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn


class Untraceable(Exception):
    """A module cannot be traced into a graph."""


@torch.no_grad()
def trace(module: nn.Module, shape: tuple[int, ...]) -> fx.GraphModule:
    """The operations of a module in evaluation mode, with batch normalisation folded into convolutions.

    Args:
        module: The module. It stays unchanged, and the graph has its own copies of changed weights.
        shape: The shape of one input.

    Raises:
        Untraceable: The module depends on its inputs in a way that a graph cannot express.
    """
    try:
        traced = fx.symbolic_trace(module)
    except Exception as first:  # user code may raise any error on a symbolic input
        try:
            traced = _exported(module, shape)
        except Exception as second:
            raise Untraceable(f"{first}; {second}") from None
    if len(traced.graph.find_nodes(op="placeholder")) != 1:
        raise Untraceable("the module takes several inputs")
    _write_in_one_form(traced)
    _fold_batch_norms(traced)
    traced.graph.eliminate_dead_code()
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced


def constant(graph_module: fx.GraphModule, node: object) -> Tensor | None:
    """The tensor that a node reads from the module, such as a weight; None for any other argument.

    Args:
        graph_module: The graph.
        node: An argument of a node.
    """
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    value: Any = graph_module
    for name in str(node.target).split("."):
        value = getattr(value, name)
    return value if isinstance(value, Tensor) else None


def _exported(module: nn.Module, shape: tuple[int, ...]) -> fx.GraphModule:
    """A graph by torch.export, which follows Python code that symbolic tracing cannot follow."""
    from torch.export import Dim, export  # this import takes a second

    parameter = next(module.parameters(), torch.empty(0))
    example = torch.zeros((2, *shape), device=parameter.device, dtype=parameter.dtype)
    exported = export(module, (example,), dynamic_shapes=({0: Dim.DYNAMIC},)).module()
    assert isinstance(exported, fx.GraphModule)
    for node in exported.graph.find_nodes(op="call_module"):  # checks of the input's shape
        if not node.users:
            exported.graph.erase_node(node)
    return exported


def _write_in_one_form(traced: fx.GraphModule) -> None:
    modules = dict(traced.named_modules())
    for node in list(traced.graph.nodes):
        if node.op == "call_module":
            _replace_module(node, modules[str(node.target)])
        elif node.op in ("call_function", "call_method"):
            _replace_function(node)
    traced.graph.lint()  # type: ignore[no-untyped-call]


def _replace_module(node: fx.Node, module: nn.Module) -> None:
    """Replace a call of a torch layer by a function of its weights."""
    if len(node.args) != 1 or node.kwargs or any((module._forward_hooks, module._forward_pre_hooks, module.training)):
        return
    (x,) = node.args
    graph, kind = node.graph, type(module)

    def weight(name: str) -> fx.Node | None:
        return None if getattr(module, name) is None else graph.get_attr(f"{node.target}.{name}")

    with graph.inserting_before(node):
        if isinstance(module, nn.Conv2d) and kind is nn.Conv2d:
            if module.padding_mode != "zeros" or isinstance(module.padding, str):
                return
            geometry = (module.stride, module.padding, module.dilation, module.groups)
            new = graph.call_function(torch.conv2d, (x, weight("weight"), weight("bias"), *geometry))
        elif isinstance(module, nn.BatchNorm2d) and kind is nn.BatchNorm2d:
            if module.running_mean is None:
                return
            tensors = [weight(name) for name in ("weight", "bias", "running_mean", "running_var")]
            new = graph.call_function(torch.batch_norm, (x, *tensors, False, 0.0, module.eps, True))
        elif isinstance(module, nn.Linear) and kind is nn.Linear:
            new = graph.call_function(F.linear, (x, weight("weight"), weight("bias")))
        elif isinstance(module, nn.ConvTranspose2d) and kind is nn.ConvTranspose2d:
            shape = (module.stride, module.padding, module.output_padding, module.groups, module.dilation)
            new = graph.call_function(torch.conv_transpose2d, (x, weight("weight"), weight("bias"), *shape))
        elif isinstance(module, nn.LayerNorm):
            tensors = [weight(name) for name in ("weight", "bias")]
            new = graph.call_function(F.layer_norm, (x, module.normalized_shape, *tensors, module.eps))
        elif isinstance(module, nn.MaxPool2d) and not module.return_indices:
            pairs = (_pair(value) for value in (module.kernel_size, module.stride, module.padding, module.dilation))
            new = graph.call_function(torch.max_pool2d, (x, *pairs, module.ceil_mode))
        elif isinstance(module, nn.ReLU):
            new = graph.call_function(torch.relu, (x,))
            if module.inplace:
                _redirect_later_uses(x, new, node)
        elif kind in (nn.Identity, nn.Dropout, nn.Dropout2d):
            node.replace_all_uses_with(x)  # type: ignore[arg-type]
            graph.erase_node(node)
            return
        else:
            return
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _replace_function(node: fx.Node) -> None:
    """Replace one of the ways to write a ReLU, an addition, a convolution or a batch normalisation."""
    written, in_place = _FORMS.get(node.target, (None, False))
    if written is None:
        return
    arguments = written(*node.args, **node.kwargs)
    if arguments is None:
        return
    in_place = in_place or bool(node.kwargs.get("inplace", False))
    with node.graph.inserting_before(node):
        new = node.graph.call_function(*arguments)
    if in_place:
        _redirect_later_uses(node.args[0], new, node)
    node.replace_all_uses_with(new)
    node.graph.erase_node(node)


def _redirect_later_uses(x: object, new: fx.Node, node: fx.Node) -> None:
    """After an operation in place, its input has the result. `new` returns the result and leaves the input alone."""
    if isinstance(x, fx.Node):
        order = {n: i for i, n in enumerate(node.graph.nodes)}
        x.replace_all_uses_with(new, delete_user_cb=lambda user: order[user] > order[node])


_Call = tuple[Callable[..., Any], tuple[Any, ...]]


def _relu(x: Any, inplace: bool = False) -> _Call:
    return torch.relu, (x,)


def _add(x: Any, y: Any, *, alpha: float = 1) -> _Call | None:
    if alpha != 1 or not (isinstance(x, fx.Node) and isinstance(y, fx.Node)):
        return None
    return torch.add, (x, y)


def _conv2d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> _Call | None:
    if isinstance(padding, str):
        return None
    return torch.conv2d, (x, weight, bias, _pair(stride), _pair(padding), _pair(dilation), groups)


def _functional_batch_norm(
    x: Any,
    mean: Any,
    variance: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> _Call | None:
    return _batch_norm(x, weight, bias, mean, variance, training, momentum, eps, True)


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: Any, momentum: Any, eps: Any, cudnn: Any
) -> _Call | None:
    if training is not False or mean is None or variance is None:
        return None
    return torch.batch_norm, (x, weight, bias, mean, variance, False, 0.0, eps, True)


def _linear(x: Any, weight: Any, bias: Any = None) -> _Call:
    return F.linear, (x, weight, bias)


def _max_pool(
    x: Any, size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, **kwargs: Any
) -> _Call | None:
    if kwargs.get("return_indices"):
        return None
    return torch.max_pool2d, (x, *map(_pair, (size, stride or size, padding, dilation)), ceil_mode)


def _layer_norm(
    x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enable: bool = True
) -> _Call:
    return F.layer_norm, (x, tuple(shape), weight, bias, eps)


def _pair(value: Any) -> tuple[int, int]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * 2 if len(values) == 1 else values


_aten = torch.ops.aten

# What to write instead of each function or method, and whether it changes its first argument in place.
_FORMS: dict[Any, tuple[Callable[..., _Call | None], bool]] = {
    **dict.fromkeys((torch.relu, F.relu, "relu", _aten.relu.default), (_relu, False)),
    **dict.fromkeys((torch.relu_, F.relu_, "relu_", _aten.relu_.default), (_relu, True)),
    **dict.fromkeys((operator.add, torch.add, "add", _aten.add.Tensor), (_add, False)),
    **dict.fromkeys((operator.iadd, "add_", _aten.add_.Tensor), (_add, True)),
    **dict.fromkeys((torch.conv2d, F.conv2d, _aten.conv2d.default), (_conv2d, False)),
    F.batch_norm: (_functional_batch_norm, False),
    **dict.fromkeys((torch.batch_norm, _aten.batch_norm.default), (_batch_norm, False)),
    **dict.fromkeys((F.linear, _aten.linear.default), (_linear, False)),
    **dict.fromkeys((F.max_pool2d, torch.max_pool2d, _aten.max_pool2d.default), (_max_pool, False)),
    **dict.fromkeys((F.layer_norm, torch.layer_norm, _aten.layer_norm.default), (_layer_norm, False)),
}


def _fold_batch_norms(traced: fx.GraphModule) -> None:
    """Fold every batch normalisation into the convolution before it, in float64, rounded once."""
    for node in traced.graph.find_nodes(op="call_function", target=torch.batch_norm):
        convolution, *others = node.args
        if not isinstance(convolution, fx.Node) or convolution.target is not torch.conv2d or len(convolution.users) > 1:
            continue
        weight, bias = (constant(traced, argument) for argument in convolution.args[1:3])
        scale, shift, mean, variance = (constant(traced, argument) for argument in others[:4])
        if weight is None or mean is None or variance is None or (convolution.args[2] is not None and bias is None):
            continue
        factor = (variance.double() + float(others[6])).rsqrt()
        factor = factor if scale is None else factor * scale.double()
        offset = ((0 if bias is None else bias.double()) - mean.double()) * factor
        offset = offset if shift is None else offset + shift.double()
        folded = (weight.double() * factor.view(-1, 1, 1, 1)).to(weight.dtype)
        with traced.graph.inserting_before(convolution):
            names = [add_buffer(traced, tensor.detach()) for tensor in (folded, offset.to(weight.dtype))]
            x, geometry = convolution.args[0], convolution.args[3:]
            convolution.args = (x, *(traced.graph.get_attr(name) for name in names), *geometry)
        node.replace_all_uses_with(convolution)
        traced.graph.erase_node(node)


def add_buffer(traced: fx.GraphModule, tensor: Tensor) -> str:
    """Keep a tensor in a graph; returns the name of its attribute.

    Args:
        traced: The graph.
        tensor: The tensor.
    """
    name = f"_folded_{sum(1 for name, _ in traced.named_buffers(recurse=False) if name.startswith('_folded_'))}"
    traced.register_buffer(name, tensor)
    return name

"""Trace a module into a graph with one form of every operation, and fold batch normalisation.

The same layer can be written in many ways: `nn.ReLU()`, `F.relu(x)`, `x.relu_()`. After `trace`, a
graph has one form of every operation that other modules look for: `torch.conv2d`,
`torch.conv_transpose2d`, `torch.batch_norm`, `torch.relu`, `torch.add`, `torch.max_pool2d`,
`torch.nn.functional.linear`, `torch.nn.functional.layer_norm`. And no operation changes a tensor in
place: other passes move and remove operations, which is right only if each of them just returns a
result.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from threading import Lock, get_ident
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from smoothcert.errors import first_line
from smoothcert.models.base import copied

_OPERATORS = {
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


@torch.no_grad()
def trace(module: nn.Module, shape: tuple[int, ...]) -> fx.GraphModule:
    """The operations of a module in evaluation mode. Convolutions include batch normalisation.

    Raises:
        Untraceable: The module depends on its inputs in a way that a graph cannot express.
    """
    reasons = []
    for attempt in (_symbolic, _exported):
        try:
            # A copy for each attempt: a module may keep symbolic values in its attributes.
            traced = attempt(copied(module), _example(module, shape))
            if len(traced.graph.find_nodes(op="placeholder")) != 1:
                raise Untraceable("the module takes several inputs")
            _write_out_of_place(traced, _example(module, shape))
            _write_in_one_form(traced)
            _fold_batch_norms(traced)
            traced.graph.eliminate_dead_code()
            traced.delete_all_unused_submodules()
            traced.recompile()
            return traced
        except Exception as error:  # user code may raise any error on a symbolic input
            reasons.append(first_line(error))
    raise Untraceable(f"it cannot be traced: {'; '.join(reasons)}")


def constant(graph_module: fx.GraphModule, node: object) -> Tensor | None:
    """The tensor that a node reads from the module, such as a weight; None for other arguments."""
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    value = operator.attrgetter(str(node.target))(graph_module)
    return value if isinstance(value, Tensor) else None


def constants(graph_module: fx.GraphModule, arguments: Sequence[object]) -> list[Any] | None:
    """The tensor of each argument, where None stays None; no list if one of them is computed."""
    tensors = []
    for argument in arguments:
        tensor = constant(graph_module, argument)
        if tensor is None and argument is not None:
            return None
        tensors.append(tensor)
    return tensors


def _example(module: nn.Module, shape: tuple[int, ...]) -> Tensor:
    parameter = next(module.parameters(), torch.empty(0))
    return torch.zeros((2, *shape), device=parameter.device, dtype=parameter.dtype)


class _Proxy(fx.Proxy):
    """Records `x += y` as what it is. A proxy of torch would record `x = x + y`."""


def _recorded(target: Callable[..., Any]) -> Callable[..., Any]:
    """The method of a proxy that records a call of this operator."""

    def record(self: _Proxy, other: object) -> Any:
        return self.tracer.create_proxy("call_function", target, (self, other), {})

    return record


for _in_place in _OPERATORS:
    setattr(_Proxy, f"__{_in_place.__name__}__", _recorded(_in_place))


class _Tracer(fx.Tracer):
    """Records layers of torch as functions of their weights.

    While it traces, torch gives it the calls of all modules in the process. Those of other threads
    just run.
    """

    def __init__(self) -> None:
        super().__init__()
        self._thread = get_ident()

    def proxy(self, node: fx.Node) -> fx.Proxy:
        # A graph does not keep autocast.
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            raise Untraceable("it computes with torch.autocast")
        return _Proxy(node, self)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if get_ident() != self._thread:
            return forward(*args, **kwargs)
        if len(args) == 1 and not kwargs and not m.training:
            call = _layer(m, forward)
            if call is not None:
                return call(*args)
        # The function of a module that works in place says so, and has another form.
        if getattr(m, "inplace", False):
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)


def _layer(module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any] | None:
    """A layer of torch as a function of its weights; None for a module that stays a module."""
    kind = type(module)
    m = cast(Any, module)
    if kind in (nn.Identity, nn.Dropout, nn.Dropout2d):
        return lambda x: x
    if kind is nn.BatchNorm2d:  # its own code asks for the shape of its input
        mean = m.running_mean
        variance = m.running_var
        return lambda x: F.batch_norm(x, mean, variance, m.weight, m.bias, mean is None, eps=m.eps)
    is_plain = kind in (nn.ConvTranspose2d, nn.Linear, nn.LayerNorm, nn.ReLU)
    if kind is nn.Conv2d:
        is_plain = m.padding_mode == "zeros" and not isinstance(m.padding, str)
    elif kind is nn.MaxPool2d:
        is_plain = not m.return_indices
    return forward if is_plain else None


_one_at_a_time = Lock()


def _symbolic(module: nn.Module, _: Tensor) -> fx.GraphModule:
    """A graph by symbolic tracing.

    It sees neither hooks nor functions that replace the `forward` of a layer.
    """
    for part in module.modules():
        if part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part):
            raise Untraceable("it has hooks")
    if type(module).__call__ is not nn.Module.__call__ and not isinstance(module, fx.GraphModule):
        raise Untraceable("it does something before or after its forward function")
    with _one_at_a_time:
        return fx.GraphModule(module, _Tracer().trace(module))


def _exported(module: nn.Module, example: Tensor) -> fx.GraphModule:
    """A graph by torch.export, which follows Python code that symbolic tracing cannot follow."""
    from torch.export import Dim, export  # this import takes a second

    exported = export(module, (example,), dynamic_shapes=({0: Dim.DYNAMIC},)).module()
    assert isinstance(exported, fx.GraphModule)
    for node in exported.graph.find_nodes(op="call_module"):  # checks of the input's shape
        if not node.users:
            exported.graph.erase_node(node)
    return exported


def _write_out_of_place(traced: fx.GraphModule, example: Tensor) -> None:
    """Replace every operation in place by one that returns its result.

    The nodes of tensors get `meta["tensor"]`.

    Raises:
        Untraceable: A changed tensor shares its memory with another one, or an operation has no
            other form.
    """
    storages = _storages(traced, example)
    for node in list(traced.graph.nodes):
        # `n += 1`, where n comes from a shape, stays as it is.
        if node.target in _OPERATORS and node not in storages:
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
    if target in _OPERATORS:
        return node.graph.call_function(_OPERATORS[target], node.args, node.kwargs)
    bound = _in_place_arguments(node)
    if bound is not None:
        bound.arguments["inplace"] = False
        return node.graph.call_function(target, bound.args, bound.kwargs)
    if _is_name_in_place(getattr(target, "__name__", "")) or node.kwargs.get("out") is not None:
        raise _NoOtherForm(node)
    return None


def _write_in_one_form(traced: fx.GraphModule) -> None:
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


def _add(x: object, y: object, *, alpha: float = 1) -> _Call | None:
    if alpha != 1:
        return None
    are_tensors = all(isinstance(value, fx.Node) and "tensor" in value.meta for value in (x, y))
    add = torch.add if are_tensors else operator.add
    return add, (x, y)


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


def _functional_batch_norm(
    x: object,
    mean: object,
    variance: object,
    weight: object,
    bias: object,
    training: object,
    momentum: object,
    eps: object,
) -> _Call | None:
    return _batch_norm(x, weight, bias, mean, variance, training, momentum, eps, True)


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
    **dict.fromkeys((operator.add, torch.add, "add", _aten.add.Tensor), _add),
    **dict.fromkeys((torch.conv2d, F.conv2d, _aten.conv2d.default), _conv2d),
    torch.conv_transpose2d: _conv_transpose2d,
    F.batch_norm: _functional_batch_norm,
    **dict.fromkeys((torch.batch_norm, _aten.batch_norm.default), _batch_norm),
    **dict.fromkeys((F.linear, _aten.linear.default), _linear),
    **dict.fromkeys((F.max_pool2d, torch.max_pool2d, _aten.max_pool2d.default), _max_pool),
    **dict.fromkeys((F.layer_norm, torch.layer_norm, _aten.layer_norm.default), _layer_norm),
    **dict.fromkeys(("view", _aten.view.default), _view),
}
"""Functions and methods, and what writes each of them in its one form."""
_WRITTEN: set[Any] = {
    torch.conv2d,
    torch.conv_transpose2d,
    torch.batch_norm,
    torch.relu,
    torch.add,
    torch.max_pool2d,
    F.linear,
    F.layer_norm,
}
"""The operations that other modules look for."""


def _fold_batch_norms(traced: fx.GraphModule) -> None:
    """Fold every batch normalisation into the convolution before it, in float64, rounded once."""
    for node in traced.graph.find_nodes(op="call_function", target=torch.batch_norm):
        convolution = node.args[0]
        if not isinstance(convolution, fx.Node) or convolution.target is not torch.conv2d:
            continue
        tensors = constants(traced, (*convolution.args[1:3], *node.args[1:5]))
        if tensors is None or len(convolution.users) > 1:
            continue
        weight, bias = _folded(*tensors, epsilon=float(node.args[7]))
        weight_node = hold(traced, convolution, weight)
        bias_node = hold(traced, convolution, bias)
        convolution.args = (convolution.args[0], weight_node, bias_node, *convolution.args[3:])
        node.replace_all_uses_with(convolution)
        traced.graph.erase_node(node)


def _folded(
    weight: Tensor,
    bias: Tensor | None,
    scale: Tensor | None,
    shift: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    *,
    epsilon: float,
) -> tuple[Tensor, Tensor]:
    """Weight and bias of a convolution that includes the batch normalisation after it."""
    factor = (variance.double() + epsilon).rsqrt()
    if scale is not None:
        factor = factor * scale.double()
    offset = ((0 if bias is None else bias.double()) - mean.double()) * factor
    if shift is not None:
        offset = offset + shift.double()
    folded_weight = (weight.double() * factor.view(-1, 1, 1, 1)).to(weight.dtype)
    return folded_weight, offset.to(weight.dtype)


def hold(traced: fx.GraphModule, before: fx.Node, tensor: Tensor) -> fx.Node:
    """Keep a tensor in a graph, and read it before a node."""
    buffers = [name for name, _ in traced.named_buffers(recurse=False)]
    number = sum(name.startswith("_folded_") for name in buffers)
    name = f"_folded_{number}"
    traced.register_buffer(name, tensor.detach())
    with traced.graph.inserting_before(before):
        return traced.graph.get_attr(name)


def replaced(node: fx.Node, target: Callable[..., Any], arguments: tuple[Any, ...]) -> fx.Node:
    """Call another function instead of a node."""
    with node.graph.inserting_before(node):
        new = node.graph.call_function(target, arguments)
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    node.graph.erase_node(node)
    return new

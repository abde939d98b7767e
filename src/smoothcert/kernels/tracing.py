"""Trace a module into a graph of operations, write each operation in one form, and fold batch normalisation.

The same layer can be written in many ways: `nn.ReLU()`, `F.relu(x)`, `x.relu_()`. After `trace`, a graph has one form
of every operation that other modules look for: `torch.conv2d`, `torch.conv_transpose2d`, `torch.batch_norm`,
`torch.relu`, `torch.add`, `torch.max_pool2d`, `torch.nn.functional.linear`, `torch.nn.functional.layer_norm`. And no
operation changes a tensor in place: other passes move and remove operations, which is right only if each of them just
returns a result.
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
    getattr(operator, f"i{name.rstrip('_')}"): getattr(operator, name)
    for name in (
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "matmul",
        "and_",
        "or_",
        "xor",
    )
}
"""`operator.iadd` and so on, and the operators that return a new tensor instead."""


class Untraceable(Exception):
    """A module cannot be traced into a graph."""


@torch.no_grad()
def trace(module: nn.Module, shape: tuple[int, ...]) -> fx.GraphModule:
    """The operations of a module in evaluation mode, with batch normalisation folded into convolutions.

    Raises:
        Untraceable: The module depends on its inputs in a way that a graph cannot express.
    """
    reasons = []
    for attempt in (_symbolic, _exported):
        try:
            # A copy for each attempt: the code of a module may keep symbolic values in its attributes.
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
    """The tensor that a node reads from the module, such as a weight; None for any other argument."""
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    value = operator.attrgetter(str(node.target))(graph_module)
    return value if isinstance(value, Tensor) else None


def constants(graph_module: fx.GraphModule, arguments: Sequence[object]) -> list[Any] | None:
    """The tensor of each argument, where None stays None; no list if one of them is computed."""
    found = [constant(graph_module, argument) for argument in arguments]
    computed = (
        tensor is None and argument is not None
        for tensor, argument in zip(found, arguments, strict=True)
    )
    return None if any(computed) else found


def _example(module: nn.Module, shape: tuple[int, ...]) -> Tensor:
    parameter = next(module.parameters(), torch.empty(0))
    return torch.zeros((2, *shape), device=parameter.device, dtype=parameter.dtype)


class _Proxy(fx.Proxy):
    """Records `x += y` as what it is. A proxy of torch would record `x = x + y`."""


for _in_place in _OPERATORS:
    setattr(
        _Proxy,
        f"__{_in_place.__name__}__",
        lambda self, other, target=_in_place: self.tracer.create_proxy(
            "call_function", target, (self, other), {}
        ),
    )


class _Tracer(fx.Tracer):
    """Records layers of torch as functions of their weights.

    While it traces, torch gives it the calls of all modules in the process. Those of other threads just run.
    """

    def __init__(self) -> None:
        super().__init__()
        self._thread = get_ident()

    def proxy(self, node: fx.Node) -> fx.Proxy:
        if any(
            torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")
        ):  # a graph does not keep it
            raise Untraceable("it computes with torch.autocast")
        return _Proxy(node, self)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if get_ident() != self._thread:
            return forward(*args, **kwargs)
        call = _layer(m, forward) if len(args) == 1 and not kwargs and not m.training else None
        if call is None and getattr(
            m, "inplace", False
        ):  # its function says so, and has another form
            call = forward
        return (
            super().call_module(m, forward, args, kwargs) if call is None else call(*args, **kwargs)
        )


def _layer(module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any] | None:
    """A layer of torch as a function of its weights; None for a module that stays a module."""
    kind, m = type(module), cast(Any, module)
    if kind in (nn.Identity, nn.Dropout, nn.Dropout2d):
        return lambda x: x
    if kind is nn.BatchNorm2d:  # its own code asks for the shape of its input
        mean, variance, is_training = m.running_mean, m.running_var, m.running_mean is None
        return lambda x: F.batch_norm(x, mean, variance, m.weight, m.bias, is_training, eps=m.eps)
    plain = (
        kind in (nn.ConvTranspose2d, nn.Linear, nn.LayerNorm, nn.ReLU)
        or (kind is nn.Conv2d and m.padding_mode == "zeros" and not isinstance(m.padding, str))
        or (kind is nn.MaxPool2d and not m.return_indices)
    )
    return forward if plain else None


_one_at_a_time = Lock()


def _symbolic(module: nn.Module, _: Tensor) -> fx.GraphModule:
    """A graph by symbolic tracing, which knows neither hooks nor functions that replace the `forward` of a layer."""
    if any(
        part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part)
        for part in module.modules()
    ):
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
    """Replace every operation in place by one that returns its result. The nodes of tensors get `meta["tensor"]`.

    Raises:
        Untraceable: A changed tensor shares its memory with another one, or an operation has no other form.
    """
    storages = _storages(traced, example)
    for node in list(traced.graph.nodes):
        if (
            node.target in _OPERATORS and node not in storages
        ):  # `n += 1`, where n comes from a shape
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
    interpreter = fx.Interpreter(
        traced, garbage_collect_values=False
    )  # so that no memory is used twice
    interpreter.run(example)
    found: dict[fx.Node, set[int]] = {}
    for node, result in interpreter.env.items():
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        if tensors and node.op != "output":
            found[node] = {
                leaf.untyped_storage().data_ptr() if leaf.numel() else -id(node) for leaf in tensors
            }
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


def _require_no_other_view(
    node: fx.Node, storages: dict[fx.Node, set[int]], later: set[fx.Node]
) -> None:
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
    elif target in _OPERATORS:
        return graph.call_function(_OPERATORS[target], node.args, node.kwargs)
    elif (bound := _asked_for_in_place(node)) is not None:
        bound.arguments["inplace"] = False
        return graph.call_function(target, bound.args, bound.kwargs)  # type: ignore[arg-type]
    # Others, such as torch.relu_ and torch.ops.aten.relu_, have an overload that torch.export finds.
    elif not _is_name_in_place(getattr(target, "__name__", "")) and node.kwargs.get("out") is None:
        return None
    raise Untraceable(f"{node.name} works in place, and has no other form")


def _write_in_one_form(traced: fx.GraphModule) -> None:
    for node in list(traced.graph.nodes):
        is_call = node.op in ("call_function", "call_method") and "tensor" in node.meta
        form = _FORMS.get(node.target) if is_call else None
        call = None if form is None else form(*node.args, **node.kwargs)
        if call is not None:
            replaced(node, *call).meta["written"] = True
    for node in traced.graph.nodes:
        if node.target in _WRITTEN and not node.meta.get("written"):
            raise Untraceable(f"{node.name} is written in an unusual way")
    traced.graph.lint()  # type: ignore[no-untyped-call]


_Call = tuple[Callable[..., Any], tuple[Any, ...]]


def _relu(x: Any, inplace: bool = False) -> _Call:
    return torch.relu, (x,)


def _add(x: Any, y: Any, *, alpha: float = 1) -> _Call | None:
    if alpha != 1:
        return None
    are_tensors = all(isinstance(value, fx.Node) and "tensor" in value.meta for value in (x, y))
    return torch.add if are_tensors else operator.add, (x, y)


def _conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> _Call | None:
    if isinstance(padding, str):
        return None
    return torch.conv2d, (x, weight, bias, _pair(stride), _pair(padding), _pair(dilation), groups)


def _conv_transpose2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    more: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> _Call:
    stride, padding, more, dilation = map(_pair, (stride, padding, more, dilation))
    return torch.conv_transpose2d, (x, weight, bias, stride, padding, more, groups, dilation)


def _functional_batch_norm(
    x: Any, mean: Any, variance: Any, weight: Any, bias: Any, training: Any, momentum: Any, eps: Any
) -> _Call | None:
    return _batch_norm(x, weight, bias, mean, variance, training, momentum, eps, True)


def _batch_norm(
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    training: Any,
    momentum: Any,
    eps: Any,
    cudnn: Any,
) -> _Call | None:
    if training is not False or mean is None or variance is None:
        return None
    return torch.batch_norm, (x, weight, bias, mean, variance, False, 0.0, eps, True)


def _linear(x: Any, weight: Any, bias: Any = None) -> _Call:
    return F.linear, (x, weight, bias)


def _max_pool(
    x: Any,
    size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    **kwargs: Any,
) -> _Call | None:
    if kwargs.get("return_indices"):
        return None
    return torch.max_pool2d, (x, *map(_pair, (size, stride or size, padding, dilation)), ceil_mode)


def _layer_norm(
    x: Any,
    shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> _Call:
    return F.layer_norm, (x, tuple(shape), weight, bias, eps)


def _view(x: Any, *shape: Any, **kwargs: Any) -> _Call | None:
    """A fused operation may store its result in another order, of which there is no view."""
    if kwargs or any(isinstance(length, torch.dtype) for length in shape):
        return None
    return Tensor.reshape, (x, *shape)


def _pair(value: Any) -> tuple[int, int]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * 2 if len(values) == 1 else values


_aten = torch.ops.aten

# What to write instead of each function or method.
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
_WRITTEN: set[Any] = {torch.conv2d, torch.conv_transpose2d, torch.batch_norm, torch.relu, torch.add}
_WRITTEN |= {torch.max_pool2d, F.linear, F.layer_norm}


def _fold_batch_norms(traced: fx.GraphModule) -> None:
    """Fold every batch normalisation into the convolution before it, in float64, rounded once."""
    for node in traced.graph.find_nodes(op="call_function", target=torch.batch_norm):
        convolution, *others = node.args
        if (
            not isinstance(convolution, fx.Node)
            or convolution.target is not torch.conv2d
            or len(convolution.users) > 1
        ):
            continue
        found = constants(traced, (*convolution.args[1:3], *others[:4]))
        if found is None:
            continue
        weight, bias, scale, shift, mean, variance = found
        factor = (variance.double() + float(others[6])).rsqrt()
        factor = factor if scale is None else factor * scale.double()
        offset = ((0 if bias is None else bias.double()) - mean.double()) * factor
        offset = offset if shift is None else offset + shift.double()
        folded = (weight.double() * factor.view(-1, 1, 1, 1)).to(weight.dtype)
        held = (hold(traced, convolution, tensor) for tensor in (folded, offset.to(weight.dtype)))
        convolution.args = (convolution.args[0], *held, *convolution.args[3:])
        node.replace_all_uses_with(convolution)
        traced.graph.erase_node(node)


def hold(traced: fx.GraphModule, before: fx.Node, tensor: Tensor) -> fx.Node:
    """Keep a tensor in a graph, and read it before a node."""
    name = f"_folded_{sum(1 for name, _ in traced.named_buffers(recurse=False) if name.startswith('_folded_'))}"
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

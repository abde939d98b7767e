"""Trace a module into a graph with one form of every operation, and fold batch normalisation."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from threading import Lock, get_ident
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from smoothcert.errors import first_line
from smoothcert.kernels.forms import write_in_one_form
from smoothcert.kernels.in_place import OPERATORS, Untraceable, write_out_of_place
from smoothcert.models.base import copied
from smoothcert.noises.base import Shape


@torch.no_grad()
def trace(module: nn.Module, shape: Shape) -> fx.GraphModule:
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
            write_out_of_place(traced, _example(module, shape))
            write_in_one_form(traced)
            _fold_weights(traced)
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


def _example(module: nn.Module, shape: Shape) -> Tensor:
    parameter = next(module.parameters(), torch.empty(0))
    return torch.zeros((2, *shape), device=parameter.device, dtype=parameter.dtype)


class _Proxy(fx.Proxy):
    """Records `x += y` as what it is. A proxy of torch would record `x = x + y`."""


def _recorded(target: Callable[..., Any]) -> Callable[..., Any]:
    """The method of a proxy that records a call of this operator."""

    def record(self: _Proxy, other: object) -> Any:
        return self.tracer.create_proxy("call_function", target, (self, other), {})

    return record


for _in_place in OPERATORS:
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
        settings = (m.weight, m.bias, mean, m.running_var, mean is None, 0.0, m.eps, True)
        return lambda x: torch.batch_norm(x, *settings)
    is_plain = kind in (
        nn.ConvTranspose2d,
        nn.Linear,
        nn.LayerNorm,
        nn.GroupNorm,
        nn.ReLU,
        nn.SiLU,
    )
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


_FOLDED: set[Any] = {
    *(F.linear, F.silu, torch.relu, torch.add, torch.mul),
    *(operator.add, operator.mul, operator.getitem, "chunk", "squeeze", "unsqueeze"),
}
"""Operations whose results follow the number format of their weights."""


def _fold_weights(traced: fx.GraphModule) -> None:
    """Compute once what depends on weights alone, such as the embedding of a timestep."""
    values = _of_weights(traced)
    for node, value in values.items():
        is_used = any(user not in values for user in node.users)
        if is_used and node.op != "get_attr" and isinstance(value, Tensor):
            node.replace_all_uses_with(hold(traced, node, value))


def _of_weights(traced: fx.GraphModule) -> dict[fx.Node, Any]:
    """Weights, and what operations in `_FOLDED` compute of them alone."""
    values: dict[fx.Node, Any] = {}
    interpreter = fx.Interpreter(traced)
    interpreter.env = values
    for node in list(traced.graph.nodes):
        sources = set(node.all_input_nodes)
        value = constant(traced, node)
        if value is not None and value.is_floating_point():
            values[node] = value
        elif node.target in _FOLDED and sources and sources <= values.keys():
            values[node] = interpreter.run_node(node)
    return values


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
    name = f"_folded_{len(traced._buffers)}"
    traced.register_buffer(name, tensor.detach())
    with traced.graph.inserting_before(before):
        return traced.graph.get_attr(name)

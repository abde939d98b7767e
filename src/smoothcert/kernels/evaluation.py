"""Find out what a part of a graph computes, from the values that it computes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

_TOLERANCE = 1e-5  # relative; weights may be float32 numbers that were rounded once
_INPUTS = 4  # random inputs on which a part of a graph is compared with what it should compute
_SCALES = (
    4.0,
    1e2,
    1e4,
    1e6,
)  # of these inputs; data may have any unit, and a clamp acts only beyond its bounds


class Unexpected(Exception):
    """A part of a graph computes something else."""


class Evaluator:
    """Computes parts of a graph in float64.

    Args:
        traced: The graph, on the CPU.
        shape: The shape of one input.
    """

    def __init__(self, traced: fx.GraphModule, shape: tuple[int, ...]) -> None:
        self._traced, self.graph = traced, traced.graph
        self.shape = shape
        self._generator = torch.Generator().manual_seed(0)

    def require(
        self,
        start: fx.Node,
        end: object,
        shape: tuple[int, ...],
        expected: Callable[[Tensor], Tensor],
        message: str,
    ) -> None:
        """Raise `Unexpected` unless a part of the graph computes a certain function, on random values of all sizes.

        The part begins at the node `start`, which has values of this shape, and ends at the node `end`.
        """
        for scale in _SCALES:
            batch = scale * torch.randn(
                (_INPUTS, *shape), generator=self._generator, dtype=torch.float64
            )
            computed, wanted = self(start, end, batch.clone()), expected(batch)
            tolerance = _TOLERANCE * float(wanted.abs().max())
            if computed.shape != wanted.shape or not torch.allclose(
                computed, wanted, rtol=0, atol=tolerance
            ):
                raise Unexpected(message)
        for unusual in (torch.nan, torch.inf, -torch.inf):  # `nan_to_num` acts on nothing else
            batch = torch.full((1, *shape), unusual, dtype=torch.float64)
            if self(start, end, batch).isfinite().all():
                raise Unexpected(message)

    def __call__(self, start: fx.Node, end: object, value: Tensor) -> Tensor:
        """The value of the node `end`, which depends on no other input, if the node `start` has this value."""
        if not isinstance(end, fx.Node):
            raise Unexpected("the network returns something else than a tensor")
        interpreter = _Float64(self._traced)
        interpreter.env = {start: value}
        needed, waiting = set[fx.Node](), [end]
        while waiting:
            node = waiting.pop()
            if node in interpreter.env or node in needed:
                continue
            if node.op == "placeholder":  # only its shape may matter
                interpreter.env[node] = torch.zeros((len(value), *self.shape), dtype=torch.float64)
                continue
            if any(
                x.op == "placeholder" and x is not start for x in node.all_input_nodes
            ) and not _asks_for_shape(node):
                raise Unexpected("a part of the network sees the inputs once more")
            needed.add(node)
            waiting += node.all_input_nodes
        try:
            for node in self.graph.nodes:
                if node in needed:
                    interpreter.env[node] = interpreter.run_node(node)
        except Exception as error:  # operations of any kind
            raise Unexpected(f"a part of the network cannot be computed alone: {error}") from None
        result = interpreter.env[end]
        if not isinstance(result, Tensor):
            raise Unexpected("a part of the network does not compute a tensor")
        return result


def _asks_for_shape(node: fx.Node) -> bool:
    if node.op == "call_method":
        return node.target in ("size", "dim")
    if node.target is getattr:
        return node.args[1] in ("shape", "ndim", "device", "dtype")
    return node.target in (torch.ops.aten.sym_size.int, len)


class _Float64(fx.Interpreter):
    """Runs a graph with its tensors in float64."""

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        return (
            value.detach().double()
            if isinstance(value, Tensor) and value.is_floating_point()
            else value
        )

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        return copy.deepcopy(self.fetch_attr(target)).double()(*args, **kwargs)


def first_convolution(evaluate: Evaluator) -> tuple[fx.Node, Tensor, Tensor]:
    """The first convolution, and factor and offset per channel of what happens to the inputs before it.

    Raises:
        Unexpected: There is no convolution, or something else happens to the inputs.
    """
    node = next(iter(evaluate.graph.find_nodes(op="call_function", target=torch.conv2d)), None)
    if node is None or len(evaluate.shape) != 3:
        raise Unexpected("there is no convolution of images")
    (x,), result = evaluate.graph.find_nodes(op="placeholder"), node.args[0]
    zeros = torch.zeros((1, *evaluate.shape), dtype=torch.float64)
    offset = evaluate(x, result, zeros)
    if offset.shape != zeros.shape:
        raise Unexpected("the inputs are changed in shape before the first convolution")
    factor = evaluate(x, result, torch.ones_like(zeros)) - offset
    factor, offset = factor[0, :, :1, :1], offset[0, :, :1, :1]
    message = "the inputs are not normalised channel by channel"
    evaluate.require(x, result, evaluate.shape, lambda batch: batch * factor + offset, message)
    return node, factor.flatten().float(), offset.flatten().float()

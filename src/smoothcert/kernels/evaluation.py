"""Find out what a part of a graph computes, from the values that it computes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from smoothcert.noises.base import Shape

_TOLERANCE = 1e-5
"""Relative; weights may be float32 numbers that were rounded once."""
_INPUTS = 4
"""Random inputs on which a part of a graph is compared with what it should compute."""
_SCALES = (4.0, 1e2, 1e4, 1e6)
"""Scales of these inputs. Data may have any unit, and a clamp acts only beyond its bounds."""
_UNUSUAL = (torch.nan, torch.inf, -torch.inf)
"""Values on which alone `nan_to_num` acts."""
_SHAPE_METHODS = ("size", "dim")
_SHAPE_ATTRIBUTES = ("shape", "ndim", "device", "dtype")
_SHAPE_FUNCTIONS = (torch.ops.aten.sym_size.int, len)


class Unexpected(Exception):
    """A part of a graph computes something else."""


class Evaluator:
    """Computes parts of a graph in float64.

    Args:
        traced: The graph, on the CPU.
        shape: The shape of one input.
    """

    def __init__(self, traced: fx.GraphModule, shape: Shape) -> None:
        self.graph = traced.graph
        self.shape = shape
        self._traced = traced
        self._generator = torch.Generator().manual_seed(0)

    def require(
        self,
        start: fx.Node,
        end: object,
        shape: Shape,
        expected: Callable[[Tensor], Tensor],
        message: str,
    ) -> None:
        """Raise `Unexpected` unless a part of the graph computes a certain function.

        The part is compared with the function on random values of all sizes.

        Args:
            start: The node at which the part begins.
            end: The node at which it ends.
            shape: The shape of the values of `start`, without the batch.
            expected: The function.
            message: The message of the error.
        """
        for scale in _SCALES:
            batch = scale * torch.randn(
                (_INPUTS, *shape), generator=self._generator, dtype=torch.float64
            )
            computed = self(start, end, batch.clone())
            wanted = expected(batch)
            if computed.shape != wanted.shape:
                raise Unexpected(message)
            tolerance = _TOLERANCE * float(wanted.abs().max())
            if not torch.allclose(computed, wanted, rtol=0, atol=tolerance):
                raise Unexpected(message)
        for value in _UNUSUAL:
            batch = torch.full((1, *shape), value, dtype=torch.float64)
            if self(start, end, batch).isfinite().all():
                raise Unexpected(message)

    def __call__(self, start: fx.Node, end: object, value: Tensor) -> Tensor:
        """The value of the node `end` if the node `start` has this value.

        Raises:
            Unexpected: The node `end` also depends on the inputs in another way, or is no tensor.
        """
        if not isinstance(end, fx.Node):
            raise Unexpected("the network returns something else than a tensor")
        interpreter = _Float64(self._traced)
        interpreter.env = {start: value}
        needed = self._needed(start, end)
        for node in self.graph.find_nodes(op="placeholder"):  # only its shape may matter
            if node is not start:
                zeros = torch.zeros((len(value), *self.shape), dtype=torch.float64)
                interpreter.env[node] = zeros
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

    def _needed(self, start: fx.Node, end: fx.Node) -> set[fx.Node]:
        """The nodes after `start` that are computed for `end`."""
        needed = set[fx.Node]()
        waiting = [end]
        while waiting:
            node = waiting.pop()
            if node in needed or node is start or node.op == "placeholder":
                continue
            sees_inputs = any(
                argument.op == "placeholder" and argument is not start
                for argument in node.all_input_nodes
            )
            if sees_inputs and not _asks_for_shape(node):
                raise Unexpected("a part of the network sees the inputs once more")
            needed.add(node)
            waiting += node.all_input_nodes
        return needed


def _asks_for_shape(node: fx.Node) -> bool:
    if node.op == "call_method":
        return node.target in _SHAPE_METHODS
    if node.target is getattr:
        return node.args[1] in _SHAPE_ATTRIBUTES
    return node.target in _SHAPE_FUNCTIONS


class _Float64(fx.Interpreter):
    """Runs a graph with its tensors in float64."""

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        if isinstance(value, Tensor) and value.is_floating_point():
            return value.detach().double()
        return value

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        return copy.deepcopy(self.fetch_attr(target)).double()(*args, **kwargs)


def first_convolution(evaluate: Evaluator) -> tuple[fx.Node, Tensor, Tensor]:
    """The first convolution, and what happens to the inputs before it.

    Returns:
        The node of the convolution, and the factor and the offset of each input channel.

    Raises:
        Unexpected: There is no convolution, or something else happens to the inputs.
    """
    convolutions = evaluate.graph.find_nodes(op="call_function", target=torch.conv2d)
    node = next(iter(convolutions), None)
    if node is None or len(evaluate.shape) != 3:
        raise Unexpected("there is no convolution of images")
    (x,) = evaluate.graph.find_nodes(op="placeholder")
    result = node.args[0]
    zeros = torch.zeros((1, *evaluate.shape), dtype=torch.float64)
    at_zero = evaluate(x, result, zeros)
    if at_zero.shape != zeros.shape:
        raise Unexpected("the inputs are changed in shape before the first convolution")
    at_one = evaluate(x, result, torch.ones_like(zeros))
    factor = (at_one - at_zero)[0, :, :1, :1]
    offset = at_zero[0, :, :1, :1]
    message = "the inputs are not normalised channel by channel"
    evaluate.require(x, result, evaluate.shape, lambda batch: batch * factor + offset, message)
    return node, factor.flatten().float(), offset.flatten().float()

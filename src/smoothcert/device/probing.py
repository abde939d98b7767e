"""Find out what a part of a graph computes, from the values that it computes."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, fx

_TOLERANCE = 1e-5  # relative; weights may be float32 numbers that were rounded once
PROBES = 4
"""Random inputs on which a part of a graph is compared with what it should compute."""


class Unexpected(Exception):
    """A part of a graph computes something else."""


class Probe:
    """Computes parts of a graph in float64.

    Args:
        traced: The graph, on the CPU.
        shape: The shape of one input.
    """

    def __init__(self, traced: fx.GraphModule, shape: tuple[int, ...]) -> None:
        self._traced = traced
        self.shape = shape
        self._generator = torch.Generator().manual_seed(0)

    def random(self, *shape: int) -> Tensor:
        """Numbers of a size that would also show what clamps its inputs.

        Args:
            shape: The shape of the result.
        """
        return 4 * torch.randn(shape, generator=self._generator, dtype=torch.float64)

    def __call__(self, start: fx.Node, end: object, value: Tensor) -> Tensor:
        """The value of the node `end` if the node `start` has this value.

        Args:
            start: A node.
            end: A node that depends on no other input.
            value: The value of `start`.
        """
        if not isinstance(end, fx.Node):
            raise Unexpected("the network returns something else than a tensor")
        interpreter = _Float64(self._traced)
        interpreter.env = {start: value}
        needed, waiting = set[fx.Node](), [end]
        while waiting:
            node = waiting.pop()
            if node in interpreter.env or node in needed:
                continue
            if node.op == "placeholder":  # only its batch size can matter, or the values of the result differ
                interpreter.env[node] = torch.zeros((len(value), *self.shape), dtype=torch.float64)
                continue
            needed.add(node)
            waiting += node.all_input_nodes
        try:
            for node in self._traced.graph.nodes:
                if node in needed:
                    interpreter.env[node] = interpreter.run_node(node)
        except Exception as error:  # operations of any kind
            raise Unexpected(f"a part of the network cannot be computed alone: {error}") from None
        result = interpreter.env[end]
        if not isinstance(result, Tensor):
            raise Unexpected("a part of the network does not compute a tensor")
        return result


class _Float64(fx.Interpreter):
    """Runs a graph with its tensors in float64."""

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        return value.detach().double() if isinstance(value, Tensor) and value.is_floating_point() else value

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        return copy.deepcopy(self.fetch_attr(target)).double()(*args, **kwargs)


def channelwise(probe: Probe, x: fx.Node, result: object, channels: int) -> tuple[Tensor, Tensor]:
    """Factor and offset per channel of what happens to the inputs before the first convolution.

    Args:
        probe: Computes parts of the graph.
        x: The input of the graph.
        result: The input of the first convolution.
        channels: Channels of an input.

    Raises:
        Unexpected: Something else happens to the inputs.
    """
    batch = probe.random(PROBES, *probe.shape)
    if result is x:
        return torch.ones(channels), torch.zeros(channels)
    offset = probe(x, result, torch.zeros_like(batch[:1]))
    if offset.shape[1:] != batch.shape[1:]:
        raise Unexpected("the inputs are changed in shape before the first convolution")
    factor = probe(x, result, torch.ones_like(batch[:1])) - offset
    factor, offset = factor[0, :, 0, 0], offset[0, :, 0, 0]
    expected = batch * factor.view(-1, 1, 1) + offset.view(-1, 1, 1)
    require_equal(probe(x, result, batch.clone()), expected, "the inputs are not normalised channel by channel")
    return factor.float(), offset.float()


def require_equal(computed: Tensor, expected: Tensor, message: str) -> None:
    """Raise `Unexpected` unless two tensors are equal up to rounding.

    Args:
        computed: A tensor.
        expected: What it should be.
        message: The message of the exception.
    """
    if computed.shape != expected.shape or not torch.allclose(
        computed, expected, rtol=0, atol=_TOLERANCE * float(expected.abs().max())
    ):
        raise Unexpected(message)

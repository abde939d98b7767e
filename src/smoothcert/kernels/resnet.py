"""Recognise a CIFAR ResNet in a traced graph, whatever its modules are called.

The convolutions of the residual blocks are matched node by node. What comes before the first
convolution, after the last block, and in shortcuts without a convolution, is matched by what it
computes: each must be a linear function of a certain form, and its coefficients are read off its
values. So every way to normalise, to pool or to pad is recognised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from smoothcert.kernels.evaluation import Evaluator, Unexpected, first_convolution
from smoothcert.kernels.tracing import constant


@dataclass(frozen=True)
class Convolution:
    """A convolution with its bias; batch normalisation is folded into both.

    Args:
        weight: Float32, of shape (channels out, channels in, side, side).
        bias: Float32, of shape (channels out,).
        stride: The stride. The padding keeps the size, apart from the stride.
    """

    weight: Tensor
    bias: Tensor
    stride: int = 1

    @property
    def channels(self) -> int:
        """The number of output channels."""
        return len(self.weight)


@dataclass(frozen=True)
class Block:
    """A residual block: relu(second(relu(first(x))) + shortcut(x)).

    Args:
        first: A 3x3 convolution.
        second: A 3x3 convolution.
        shortcut: A 1x1 convolution where the shape changes, otherwise None.
    """

    first: Convolution
    second: Convolution
    shortcut: Convolution | None = None


@dataclass(frozen=True)
class Network:
    """A residual network for small images.

    Args:
        shape: The shape of one input: channels, height and width.
        factor: By which each input channel is multiplied.
        offset: What is added to each input channel afterwards.
        first: The 3x3 convolution before the blocks, followed by a ReLU.
        stages: The residual blocks by stage. Every stage but the first begins with a block that has
            a convolution as its shortcut.
        linear: Float32, from the means of the channels to the logits: (classes, channels).
        linear_bias: Float32, of shape (classes,).
    """

    shape: tuple[int, int, int]
    factor: Tensor
    offset: Tensor
    first: Convolution
    stages: tuple[tuple[Block, ...], ...]
    linear: Tensor
    linear_bias: Tensor

    @property
    def classes(self) -> int:
        """The number of logits."""
        return len(self.linear)


@torch.no_grad()
def match(traced: fx.GraphModule, shape: tuple[int, ...]) -> Network:
    """The weights of a CIFAR ResNet.

    Raises:
        Unexpected: The graph computes something else; the message says where it differs.
    """
    if len(shape) != 3 or shape[1] != shape[2]:
        raise Unexpected("the inputs are not square images")
    evaluate = Evaluator(traced, shape)
    (output,) = traced.graph.find_nodes(op="output")
    first_node, factor, offset = first_convolution(evaluate)
    first = _convolution(traced, first_node, side=3)
    hidden = _Activations(
        _only_user(first_node, torch.relu), first.channels, shape[1] // first.stride
    )
    stages: list[list[Block]] = [[]]
    convolution_node = _next_convolution(traced, hidden.node)
    while convolution_node is not None:
        block, hidden = _block(traced, evaluate, hidden, convolution_node)
        if block.shortcut is not None:
            stages.append([])
        stages[-1].append(block)
        convolution_node = _next_convolution(traced, hidden.node)
    if not any(stages):
        raise Unexpected("there is no residual block after the first convolution")
    linear, linear_bias = _linear_of_means(evaluate, hidden, output.args[0])
    return Network(
        (shape[0], shape[1], shape[2]),
        factor,
        offset,
        first,
        tuple(tuple(stage) for stage in stages),
        linear,
        linear_bias,
    )


class _Activations(NamedTuple):
    """Activations between two blocks."""

    node: fx.Node
    channels: int
    size: int
    """The side length."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of one row."""
        return self.channels, self.size, self.size

    def basis(self) -> Tensor:
        """One batch row for every channel, in which this channel is one and all others are zero."""
        identity = torch.eye(self.channels, dtype=torch.float64)
        return identity[:, :, None, None].expand(-1, -1, self.size, self.size).contiguous()


def _next_convolution(traced: fx.GraphModule, x: fx.Node) -> fx.Node | None:
    """The 3x3 convolution of `x` with which a residual block begins; None if there is none."""
    for node in x.users:
        is_convolution = node.target is torch.conv2d and node.args[0] is x
        if is_convolution and _weight(traced, node).shape[-1] == 3:
            return node
    return None


def _block(
    traced: fx.GraphModule, evaluate: Evaluator, x: _Activations, first_node: fx.Node
) -> tuple[Block, _Activations]:
    """The residual block that begins with a convolution of `x`, and its result."""
    first = _convolution(traced, first_node, side=3)
    second_node = _only_user(_only_user(first_node, torch.relu), torch.conv2d)
    second = _convolution(traced, second_node, side=3)
    addition = _only_user(second_node, torch.add)
    (added,) = (argument for argument in addition.all_input_nodes if argument is not second_node)
    result = _Activations(_only_user(addition, torch.relu), first.channels, x.size // first.stride)
    if second.stride != 1 or second.weight.shape[:2] != (first.channels, first.channels):
        raise Unexpected("the second convolution of a block changes the shape")
    return Block(first, second, _shortcut(traced, evaluate, x, added, first)), result


def _shortcut(
    traced: fx.GraphModule, evaluate: Evaluator, x: _Activations, added: fx.Node, first: Convolution
) -> Convolution | None:
    """What a block adds to its convolutions, as a function of `x`; None for `x` itself."""
    if added is x.node:
        return None
    if added.target is torch.conv2d and added.args[0] is x.node and len(added.users) == 1:
        shortcut = _convolution(traced, added, side=1)
        if shortcut.stride != first.stride:
            raise Unexpected("a shortcut has another stride than its block")
        return shortcut
    return _subsampling(evaluate, x, added, first)


def _convolution(traced: fx.GraphModule, node: fx.Node, *, side: int) -> Convolution:
    arguments: tuple[Any, ...] = node.args
    _, _, bias_node, stride, padding, dilation, groups = arguments
    weight = _weight(traced, node)
    bias = constant(traced, bias_node)
    geometry = (tuple(weight.shape[2:]), tuple(padding), tuple(dilation), groups)
    if geometry != ((side, side), (side // 2, side // 2), (1, 1), 1):
        raise Unexpected(f"a convolution is not a plain {side}x{side} one")
    if stride[0] != stride[1] or (bias is None and bias_node is not None):
        raise Unexpected("a convolution has an unusual stride or bias")
    if bias is None:
        bias = torch.zeros(len(weight))
    return Convolution(weight.detach().float(), bias.detach().float(), stride[0])


def _weight(traced: fx.GraphModule, node: fx.Node) -> Tensor:
    weight = constant(traced, node.args[1])
    if weight is None:
        raise Unexpected("a convolution computes its weights")
    return weight


def _only_user(node: fx.Node, target: object) -> fx.Node:
    """The operation that follows `node`. A block has no other use of its inner activations."""
    users = list(node.users)
    if len(users) == 1 and users[0].target is target:
        return users[0]
    if target is torch.relu and any(user.target is torch.relu for user in users):
        raise Unexpected("an activation is used before its ReLU")
    raise Unexpected(f"{node.name} is not followed by {getattr(target, '__name__', target)} alone")


def _subsampling(
    evaluate: Evaluator, x: _Activations, result: fx.Node, first: Convolution
) -> Convolution:
    """A shortcut that takes every second pixel and adds channels of zeros, as a 1x1 convolution."""
    columns = evaluate(x.node, result, x.basis())
    size = x.size // first.stride
    if columns.shape != (x.channels, first.channels, size, size):
        raise Unexpected("a shortcut has another shape than its block")
    weight = columns[:, :, 0, 0].T.contiguous()[:, :, None, None]

    def subsample(batch: Tensor) -> Tensor:
        return torch.conv2d(batch, weight, stride=first.stride)

    evaluate.require(x.node, result, x.shape, subsample, "a shortcut is not a subsampling")
    bias = torch.zeros(first.channels, dtype=torch.float32)
    return Convolution(weight.float(), bias, first.stride)


def _linear_of_means(evaluate: Evaluator, x: _Activations, result: object) -> tuple[Tensor, Tensor]:
    """Weight and bias of what happens after the last block: pooling and a linear layer."""
    basis = x.basis()
    bias = evaluate(x.node, result, torch.zeros_like(basis[:1]))
    if bias.ndim != 2:
        raise Unexpected("the network does not return logits")
    weight = (evaluate(x.node, result, basis) - bias).T.contiguous()

    def linear(batch: Tensor) -> Tensor:
        return batch.mean((2, 3)) @ weight.T + bias

    message = "the logits are not a linear function of the channels' means"
    evaluate.require(x.node, result, x.shape, linear, message)
    return weight.float(), bias[0].float()

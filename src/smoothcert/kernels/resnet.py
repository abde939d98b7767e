"""Recognise a CIFAR ResNet in a traced graph, whatever its modules are called and however they are written.

The convolutions of the residual blocks are matched node by node. What comes before the first convolution, after the
last block, and in shortcuts without a convolution, is matched by what it computes: each must be a linear function of a
certain form, and its coefficients are read off its values. So every way to normalise, to pool or to pad is recognised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
        stages: The residual blocks by stage. Every stage but the first begins with a block that has a convolution as
            its shortcut.
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
    hidden = _only_user(first_node, torch.relu)
    size, channels = shape[1] // first.stride, first.channels
    stages: list[tuple[Block, ...]] = [()]
    while (found := _block(traced, evaluate, hidden, channels, size)) is not None:
        block, hidden = found
        if block.shortcut is not None:
            stages.append(())
        stages[-1] += (block,)
        size, channels = size // block.first.stride, block.first.channels
    if not any(stages):
        raise Unexpected("there is no residual block after the first convolution")
    linear, bias = _linear_of_means(evaluate, hidden, output.args[0], channels, size)
    return Network(
        (shape[0], shape[1], shape[2]), factor, offset, first, tuple(stages), linear, bias
    )


def _block(
    traced: fx.GraphModule, evaluate: Evaluator, x: fx.Node, channels: int, size: int
) -> tuple[Block, fx.Node] | None:
    """The residual block after `x`, and its result; None if there is no block."""
    for node in x.users:
        if (
            node.target is not torch.conv2d
            or node.args[0] is not x
            or _weight(traced, node).shape[-1] != 3
        ):
            continue
        first = _convolution(traced, node, side=3)
        second_node = _only_user(_only_user(node, torch.relu), torch.conv2d)
        second = _convolution(traced, second_node, side=3)
        addition = _only_user(second_node, torch.add)
        (other,) = (
            argument for argument in addition.all_input_nodes if argument is not second_node
        )
        result = _only_user(addition, torch.relu)
        if (
            second.stride != 1
            or second.weight.shape[1] != first.channels
            or second.channels != first.channels
        ):
            raise Unexpected("the second convolution of a block changes the shape")
        if other is x:
            return Block(first, second), result
        if other.target is torch.conv2d and other.args[0] is x and len(other.users) == 1:
            shortcut = _convolution(traced, other, side=1)
            if shortcut.stride != first.stride:
                raise Unexpected("a shortcut has another stride than its block")
        else:
            shortcut = _subsampling(evaluate, x, other, channels, size, first)
        return Block(first, second, shortcut), result
    return None


def _convolution(traced: fx.GraphModule, node: fx.Node, *, side: int) -> Convolution:
    arguments: tuple[Any, ...] = node.args
    _, _, bias_node, stride, padding, dilation, groups = arguments
    weight, bias = _weight(traced, node), constant(traced, bias_node)
    geometry = tuple(weight.shape[2:]), tuple(padding), tuple(dilation), groups
    if geometry != ((side, side), (side // 2, side // 2), (1, 1), 1):
        raise Unexpected(f"a convolution is not a plain {side}x{side} one")
    if stride[0] != stride[1] or (bias is None and bias_node is not None):
        raise Unexpected("a convolution has an unusual stride or bias")
    bias = torch.zeros(len(weight)) if bias is None else bias
    return Convolution(weight.detach().float(), bias.detach().float(), stride[0])


def _weight(traced: fx.GraphModule, node: fx.Node) -> Tensor:
    weight = constant(traced, node.args[1])
    if weight is None:
        raise Unexpected("a convolution computes its weights")
    return weight


def _only_user(node: fx.Node, target: object) -> fx.Node:
    """The operation that follows `node`. A residual block has no other use of its inner activations."""
    if len(node.users) != 1 or (user := next(iter(node.users))).target is not target:
        if target is torch.relu and any(user.target is torch.relu for user in node.users):
            raise Unexpected("an activation is used before its ReLU")
        raise Unexpected(
            f"{node.name} is not followed by {getattr(target, '__name__', target)} alone"
        )
    return user


def _subsampling(
    evaluate: Evaluator, x: fx.Node, result: fx.Node, channels: int, size: int, first: Convolution
) -> Convolution:
    """A shortcut that takes every second pixel and adds channels of zeros, as a 1x1 convolution."""
    basis = (
        torch.eye(channels, dtype=torch.float64)
        .view(channels, channels, 1, 1)
        .expand(-1, -1, size, size)
    )
    columns = evaluate(x, result, basis.contiguous())
    if columns.shape != (channels, first.channels, size // first.stride, size // first.stride):
        raise Unexpected("a shortcut has another shape than its block")
    weight = columns[:, :, 0, 0].T.contiguous()
    kernel = weight[:, :, None, None]

    def subsample(batch: Tensor) -> Tensor:
        return torch.conv2d(batch, kernel, stride=first.stride)

    evaluate.require(
        x, result, (channels, size, size), subsample, "a shortcut is not a subsampling"
    )
    return Convolution(
        kernel.float(), torch.zeros(first.channels, dtype=torch.float32), first.stride
    )


def _linear_of_means(
    evaluate: Evaluator, x: fx.Node, result: object, channels: int, size: int
) -> tuple[Tensor, Tensor]:
    """Weight and bias of what happens after the last block: pooling and a linear layer."""
    basis = (
        torch.eye(channels, dtype=torch.float64)
        .view(channels, channels, 1, 1)
        .expand(-1, -1, size, size)
    )
    bias = evaluate(x, result, torch.zeros_like(basis[:1]))
    if bias.ndim != 2:
        raise Unexpected("the network does not return logits")
    weight = (evaluate(x, result, basis.contiguous()) - bias).T.contiguous()
    message = "the logits are not a linear function of the channels' means"
    evaluate.require(
        x,
        result,
        (channels, size, size),
        lambda batch: batch.mean((2, 3)) @ weight.T + bias,
        message,
    )
    return weight.float(), bias[0].float()

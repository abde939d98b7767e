"""A CIFAR ResNet as its weights, which is what the kernels compute."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


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
        blocks: The residual blocks.
        linear: Float32, from the means of the channels to the logits: (classes, channels).
        linear_bias: Float32, of shape (classes,).
    """

    shape: tuple[int, int, int]
    factor: Tensor
    offset: Tensor
    first: Convolution
    blocks: tuple[Block, ...]
    linear: Tensor
    linear_bias: Tensor

    @property
    def classes(self) -> int:
        """The number of logits."""
        return len(self.linear)

    def stages(self) -> list[list[Block]]:
        """The blocks by stage. Every stage but the first begins with a block that has a convolution as its shortcut."""
        stages: list[list[Block]] = [[]]
        for block in self.blocks:
            if block.shortcut is not None:
                stages.append([])
            stages[-1].append(block)
        return stages

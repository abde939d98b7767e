"""Diffusion networks with random weights, as improved-diffusion and guided-diffusion publish theirs."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor


@dataclass(frozen=True)
class Shape:
    """A network with a learned variance, whose timestep scales and shifts.

    Args:
        size: The edges of an image.
        channels: The channels of the first level.
        levels: The factors on them by level.
        blocks: Residual blocks of a level on the way down.
        attention: The edges at which blocks have attention.
        resamples_in_blocks: Whether residual blocks change the edges, or convolutions of their own.
    """

    size: int
    channels: int
    levels: tuple[int, ...]
    blocks: int
    attention: tuple[int, ...]
    resamples_in_blocks: bool


SHAPES = {
    "improved-diffusion, CIFAR-10": Shape(32, 128, (1, 2, 2, 2), 3, (16, 8), False),
    "guided-diffusion, ImageNet 256": Shape(256, 256, (1, 1, 2, 2, 4, 4), 2, (32, 16, 8), True),
    "tiny": Shape(32, 32, (1, 2), 1, (16,), False),
}
"""The unconditional networks of the published pipelines, and a small one to try this with."""


def random_weights(shape: Shape) -> dict[str, Tensor]:
    """Random weights by the names of a published checkpoint."""
    torch.manual_seed(0)
    return _Weights(shape).state


class _Weights:
    """Makes the tensors from the first layer to the last."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.state: dict[str, Tensor] = {}
        channels = shape.channels
        self.layer("time_embed.0", 4 * channels, channels)
        self.layer("time_embed.2", 4 * channels, 4 * channels)
        self.layer("input_blocks.0.0", channels, 3, 3, 3)
        self.width = channels
        self.skipped = [channels]
        for level in range(len(shape.levels)):
            self.way_down(level)
        self.residual("middle_block.0", self.width)
        self.attend("middle_block.1")
        self.residual("middle_block.2", self.width)
        self.outputs = 0
        for level in reversed(range(len(shape.levels))):
            self.way_up(level)
        self.layer("out.0", self.width)
        self.layer("out.2", 6, self.width, 3, 3)

    def way_down(self, level: int) -> None:
        for _ in range(self.shape.blocks):
            self.block(f"input_blocks.{len(self.skipped)}", level)
            self.skipped.append(self.width)
        if level + 1 < len(self.shape.levels):
            self.resample(f"input_blocks.{len(self.skipped)}.0", "op")
            self.skipped.append(self.width)

    def way_up(self, level: int) -> None:
        for number in range(self.shape.blocks + 1):
            name = f"output_blocks.{self.outputs}"
            self.outputs += 1
            parts = self.block(name, level, skipped=self.skipped.pop())
            if level and number == self.shape.blocks:
                self.resample(f"{name}.{parts}", "conv")

    def block(self, name: str, level: int, skipped: int = 0) -> int:
        """A residual block, with attention where the level has it; returns the number of parts."""
        self.width += skipped
        self.residual(f"{name}.0", self.shape.levels[level] * self.shape.channels)
        if self.shape.size >> level not in self.shape.attention:
            return 1
        self.attend(f"{name}.1")
        return 2

    def residual(self, name: str, width: int) -> None:
        self.layer(f"{name}.in_layers.0", self.width)
        self.layer(f"{name}.in_layers.2", width, self.width, 3, 3)
        self.layer(f"{name}.emb_layers.1", 2 * width, 4 * self.shape.channels)
        self.layer(f"{name}.out_layers.0", width)
        self.layer(f"{name}.out_layers.3", width, width, 3, 3)
        if self.width != width:
            self.layer(f"{name}.skip_connection", width, self.width, 1, 1)
        self.width = width

    def attend(self, name: str) -> None:
        self.layer(f"{name}.norm", self.width)
        self.layer(f"{name}.qkv", 3 * self.width, self.width, 1)
        self.layer(f"{name}.proj_out", self.width, self.width, 1)

    def resample(self, name: str, kind: str) -> None:
        if self.shape.resamples_in_blocks:
            self.residual(name, self.width)
        else:
            self.layer(f"{name}.{kind}", self.width, self.width, 3, 3)

    def layer(self, name: str, *shape: int) -> None:
        weight = torch.ones(shape)  # of a normalisation
        if len(shape) > 1:
            weight = torch.randn(shape) / prod(shape[1:]) ** 0.5
        self.state[f"{name}.weight"] = weight
        self.state[f"{name}.bias"] = torch.zeros(shape[0])

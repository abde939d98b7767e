"""The bundled networks. Each of them contains its normalisation.

A module from here takes inputs in [0, 1]. `module.network` holds the whole state, under the names
that the published checkpoints of Cohen et al. (2019) and later papers use (`conv1.weight`,
`layer2.0.downsample.0.weight`, ...).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from smoothcert import _check


class Normalize(nn.Module):
    """Computes `(x - mean) / deviation` per channel.

    Both are constants, so they are not in the state dict.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: tuple[float, ...], deviation: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("deviation", torch.tensor(deviation).view(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """The normalised batch."""
        # In place, because a second large buffer would cost more time.
        return (x - self.mean).div_(self.deviation)


class Normalized(nn.Module):
    """A network that normalises its inputs first."""

    def __init__(self, normalize: Normalize, network: nn.Module) -> None:
        super().__init__()
        self.normalize = normalize
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """The logits for a batch of inputs in [0, 1]."""
        logits: Tensor = self.network(self.normalize(x))
        return logits


class BasicBlock(nn.Module):
    """A residual block: two 3x3 convolutions and a shortcut around them.

    Where the shape changes, the shortcut is a strided 1x1 convolution.
    """

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride != 1 or channels_in != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """The output of the block."""
        shortcut = x if self.downsample is None else self.downsample(x)
        hidden = self.bn1(self.conv1(x)).relu()
        return torch.relu(self.bn2(self.conv2(hidden)) + shortcut)


class CifarResNet(nn.Module):
    """The residual network of He et al. (2016) for 32x32 images.

    Each stage after the first halves height and width.
    """

    def __init__(self, widths: tuple[int, ...], blocks: int, classes: int, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, widths[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        for number, (before, width) in enumerate(pairwise((widths[0], *widths)), 1):
            stride = 1 if number == 1 else 2
            self.add_module(f"layer{number}", _stage(before, width, blocks, stride=stride))
        self.stages = len(widths)
        self.fc = nn.Linear(widths[-1], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, x: Tensor) -> Tensor:
        """The logits for a batch of normalised inputs."""
        hidden = self.bn1(self.conv1(x)).relu()
        for number in range(1, self.stages + 1):
            hidden = getattr(self, f"layer{number}")(hidden)
        logits: Tensor = self.fc(hidden.mean((2, 3)))
        return logits


def _stage(channels_in: int, channels: int, blocks: int, *, stride: int) -> nn.Sequential:
    first = BasicBlock(channels_in, channels, stride)
    return nn.Sequential(first, *(BasicBlock(channels, channels, 1) for _ in range(blocks - 1)))


def _fashion_cnn(classes: int, channels: int) -> nn.Module:
    """A network that is small enough to certify on a laptop.

    Its first convolution uses wide patches with a large stride, which averages out noise. It has no
    batch normalisation, so it computes the same in training and in evaluation.
    """
    return nn.Sequential(
        nn.Conv2d(channels, 32, 6, stride=4, padding=1),  # 28x28 -> 7x7
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),  # 7x7 -> 4x4
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )


class Architecture(NamedTuple):
    """How to build a bundled network, and the inputs that it takes."""

    network: Callable[[int, int], nn.Module]
    input_shape: tuple[int, int, int]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]


def _cifar(widths: tuple[int, ...], blocks: int) -> Architecture:
    mean = (0.4914, 0.4822, 0.4465)
    deviation = (0.2023, 0.1994, 0.2010)
    return Architecture(partial(CifarResNet, widths, blocks), (3, 32, 32), mean, deviation)


ARCHITECTURES = {
    "fashion-cnn": Architecture(_fashion_cnn, (1, 28, 28), (0.2860,), (0.3530,)),
    "cifar-resnet18": _cifar((64, 128, 256, 512), 2),
    "cifar-resnet20": _cifar((16, 32, 64), 3),
    "cifar-resnet110": _cifar((16, 32, 64), 18),
}
"""The bundled architectures by name."""

NAMED_WEIGHTS = {"fashion-cnn-clean": "fashion-cnn"}
"""Bundled weights that are a model of their own, with their architecture. They were trained without
noise, and are for any sigma."""


def bundled_name(name: str) -> str:
    """The name of a bundled network as we write it.

    >>> bundled_name("CIFAR_ResNet20")
    'cifar-resnet20'
    """
    return name.replace("_", "-").lower()


def build(name: str, *, classes: int = 10, channels: int | None = None) -> Normalized:
    """A bundled architecture with random weights.

    >>> module = build("cifar-resnet20", classes=10)
    >>> module(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    bundled = _check.one_of("architecture", bundled_name(name), tuple(ARCHITECTURES))
    architecture = ARCHITECTURES[bundled]
    usual_channels = architecture.input_shape[0]
    classes = _check.whole("classes", classes, least=2)
    network = architecture.network(classes, channels or usual_channels)
    if channels not in (None, usual_channels):
        return Normalized(Normalize((0.0,), (1.0,)), network)
    return Normalized(Normalize(architecture.mean, architecture.deviation), network)

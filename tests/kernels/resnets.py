"""Networks for the tests of tracing and of the stage kernels."""

from copy import deepcopy
from functools import cache
from itertools import chain

import torch
from torch import nn

from smoothcert.kernels.resnet import Block, Convolution, Network
from smoothcert.models.architectures import build


def calibrated(name):
    """A bundled network with random weights that answers noisy inputs with several labels.

    It has the statistics of its activations, as after training, and logits whose means are equal.
    """
    module = deepcopy(_calibrated(name))
    torch.manual_seed(0)  # so that what a test draws does not depend on the tests before it
    return module


@cache
def _calibrated(name):
    torch.manual_seed(0)
    module = build(name, classes=10)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias, std=0.2)
            part.momentum = None  # the mean over all batches
        if isinstance(part, nn.Linear):  # logits that differ between inputs
            nn.init.normal_(part.weight, std=0.5)
    # In the second half of every block, as training from zero leaves it.
    for block_name, part in module.named_modules():
        if block_name.endswith("bn2"):
            nn.init.uniform_(part.weight, 0.1, 0.4)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    module.train().to(device)

    def noisy(count):
        return torch.rand(count, 3, 32, 32, device=device) + 0.5 * torch.randn(
            count, 3, 32, 32, device=device
        )

    with torch.no_grad():
        for _ in range(2):
            module(noisy(32))
        linear = [part for part in module.modules() if isinstance(part, nn.Linear)][-1]
        linear.bias -= module.eval()(noisy(256)).mean(0)
    return module.cpu()


def random_network(widths=(16, 32, 64), *, blocks=1, size=32, channels=3, classes=10, seed=0):
    """A network of random weights."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator)

    def convolution(outputs, inputs, side=3, stride=1, gain=1.0):
        weight = normal(outputs, inputs, side, side) * gain * (2 / (inputs * side * side)) ** 0.5
        return Convolution(weight, 0.1 * normal(outputs), stride)

    stages = [()]
    before = widths[0]
    for width in widths:
        for _ in range(blocks):
            changes = width != before
            first = convolution(width, before, stride=2 if changes else 1)
            shortcut = convolution(width, before, 1, 2) if changes else None
            stages += [()] if changes else []
            stages[-1] += (Block(first, convolution(width, width, gain=0.5), shortcut),)
            before = width
    return Network(
        (channels, size, size),
        4 + normal(channels).abs(),
        normal(channels),
        convolution(widths[0], channels),
        tuple(stages),
        normal(classes, before),
        normal(classes),
    )


def logits_of(network, x, dtype=None):
    """The logits in the number format of `x`, by the convolutions of torch.

    With a `dtype`, they are rounded as the kernels do it.
    """

    def rounded(tensor):
        return tensor if dtype is None else tensor.to(dtype).to(tensor.dtype)

    def convolve(x, convolution):
        weight, bias = convolution.weight.to(x), convolution.bias.to(x)
        return torch.conv2d(x, rounded(weight), bias, convolution.stride, weight.shape[-1] // 2)

    factor, offset = network.factor.to(x).view(-1, 1, 1), network.offset.to(x).view(-1, 1, 1)
    hidden = rounded(convolve(rounded(rounded(x) * factor + offset), network.first).relu())
    for block in chain(*network.stages):
        shortcut = hidden if block.shortcut is None else rounded(convolve(hidden, block.shortcut))
        inner = rounded(convolve(hidden, block.first).relu())
        hidden = rounded((convolve(inner, block.second) + shortcut).relu())
    return hidden.mean((2, 3)) @ network.linear.to(x).T + network.linear_bias.to(x)


def relative_error(computed, expected):
    """The norm of the difference, relative to the norm of what is expected."""
    return float((computed.double() - expected.double()).norm() / expected.double().norm())

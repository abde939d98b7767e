"""The interface of a training method: it turns a batch into the loss that training minimises."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn

from smoothcert.noises import Noise
from smoothcert.sampler.drawing import drawer_for


class Objective(NamedTuple):
    """What a method computes for a batch."""

    loss: Tensor
    """The loss, a scalar."""
    logits: Tensor
    """The logits for the noisy inputs, of shape (copies, batch, classes)."""


class Method(Protocol):
    """A training method: a frozen dataclass with the constants of the method.

    The record of a training run contains all of its fields. A CUDA graph may replay `objective`. So `objective` must
    not read values back from the device, and all shapes in it must depend on the shape of the batch alone.
    """

    name: ClassVar[str]
    """The name on the command line and in records."""
    learning_rate: ClassVar[float]
    """The highest learning rate in the method's paper."""
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise."""

    @classmethod
    def published(cls, sigma: float, **constants: Any) -> Self:
        """The method with the constants of its paper.

        Args:
            sigma: The standard deviation of the noise.
            constants: Constants that replace those of the paper.
        """

    def objective(self, module: nn.Module, x: Tensor, labels: Tensor, epoch: Tensor) -> Objective:
        """The loss for a batch.

        Args:
            module: The network.
            x: Inputs in [0, 1] without noise.
            labels: The class of each input.
            epoch: The number of the epoch from 0 on, as a scalar tensor.
        """


def draw_noise(x: Tensor, copies: int, sigma: float) -> Tensor:
    """Independent samples of N(0, sigma^2 I), of shape (copies, *x.shape).

    Args:
        x: A batch of inputs.
        copies: Noise samples per input.
        sigma: The standard deviation.
    """
    return sigma * torch.randn((copies, *x.shape), device=x.device)


def noisy_copies(x: Tensor, copies: int, *, sigma: float, noise: Noise | None = None) -> Tensor:
    """Noisy inputs of shape (copies, batch, ...).

    Args:
        x: A batch of inputs.
        copies: Noisy copies of each input.
        sigma: The standard deviation of Gaussian noise.
        noise: Another noise, which may change the shape of an input.
    """
    if noise is None:
        return x + draw_noise(x, copies, sigma)
    drawer = drawer_for(noise.draw, tuple(x.shape[1:]))
    low, high = (0, noise.outcomes) if noise.outcomes else (-(2**63), 2**63 - 1)
    words = torch.randint(low, high, (copies * len(x), drawer.words), device=x.device)
    noisy = drawer.noisy(words, x.repeat(copies, *[1] * (x.ndim - 1)))
    return noisy.view(copies, len(x), *noisy.shape[1:])


def logits_of(module: nn.Module, inputs: Tensor) -> Tensor:
    """The logits for all copies, of shape (copies, batch, classes), in one forward pass.

    Args:
        module: The network.
        inputs: Noisy inputs of shape (copies, batch, ...).
    """
    logits: Tensor = module(inputs.flatten(0, 1))
    return logits.float().view(*inputs.shape[:2], -1)


def log_mean_probability(logits: Tensor) -> Tensor:
    """The logarithm of the mean of softmax(logits) over the copies, of shape (batch, classes). It is never -inf.

    Args:
        logits: Logits of shape (copies, batch, classes).
    """
    return logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))

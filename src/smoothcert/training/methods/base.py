"""What a training method is: from a batch to the loss whose gradient trains the network."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn


class Objective(NamedTuple):
    """What a method makes of a batch."""

    loss: Tensor
    """A scalar."""
    logits: Tensor
    """(copies, batch, classes): the answers to the noisy inputs."""


class Method(Protocol):
    """A frozen dataclass with the method's constants; all of it enters the record of a training run.

    `objective` may be replayed from a recording, so it reads nothing back from the device and its shapes depend on
    the batch's shape alone.
    """

    name: ClassVar[str]
    learning_rate: ClassVar[float]
    """The highest that its paper trains with."""
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def sigma(self) -> float: ...

    @classmethod
    def published(cls, sigma: float, **constants: Any) -> Self:
        """The method with its paper's constants for this noise, save those that are given."""

    def objective(self, module: nn.Module, x: Tensor, labels: Tensor, epoch: Tensor) -> Objective:
        """`x` in [0, 1]; `epoch` counts from 0 and is a scalar tensor."""


def draw_noise(x: Tensor, copies: int, sigma: float) -> Tensor:
    """(copies, *x.shape) independent draws of N(0, sigma^2 I)."""
    return sigma * torch.randn((copies, *x.shape), device=x.device)


def logits_of(module: nn.Module, inputs: Tensor) -> Tensor:
    """(copies, batch, ...) -> (copies, batch, classes), all copies in one pass."""
    logits: Tensor = module(inputs.flatten(0, 1))
    return logits.float().view(*inputs.shape[:2], -1)


def log_mean_probability(logits: Tensor) -> Tensor:
    """log of the mean over copies of softmax(logits): (copies, batch, classes) -> (batch, classes), never -inf."""
    return logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))

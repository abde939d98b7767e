"""The interface of a training method: it turns a batch into the loss that training minimises."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from smoothcert.models.architectures import ARCHITECTURES
from smoothcert.noises import Noise
from smoothcert.sampling.drawing import drawer_for
from smoothcert.training.trainee import Start, Trainee, classifier_trainee


class Objective(NamedTuple):
    """What a method computes for a batch."""

    loss: Tensor
    """The loss, a scalar."""
    outputs: Tensor
    """The logits for the noisy inputs, of shape (copies, batch, classes), or the denoised inputs."""


class Method(ABC):
    """A training method: a frozen dataclass with the constants of the method.

    The record of a training run contains all of its fields. A CUDA graph may replay `objective`. So `objective` must
    not read values back from the device, and all shapes in it must depend on the shape of the batch alone.

    A method that trains a classifier with SGD only writes `objective`, and `published` if its constants depend on
    sigma. The other members are for methods that train something else.
    """

    name: ClassVar[str]
    """The name on the command line and in records."""
    learning_rate: ClassVar[float]
    """The highest learning rate in the method's paper."""
    schedule: ClassVar[str] = "cosine"
    """How the learning rate changes, by default."""
    input_range: ClassVar[tuple[float, float] | None] = None
    """The smallest and the largest value of an input that the method takes; None if it takes any."""
    measure: ClassVar[Literal["accuracy", "psnr"]] = "accuracy"
    """What `score` computes."""
    needs_labels: ClassVar[bool] = True
    """Whether the loss depends on the labels."""
    keeps_mean: ClassVar[bool] = False
    """Whether the result is the running mean of the weights instead of the last weights."""
    architectures: ClassVar[Collection[str]] = ARCHITECTURES
    """The bundled networks that it trains."""
    sigma: float
    """The standard deviation of the noise."""
    noise: Noise | None = None
    """Another noise than Gaussian noise."""
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @classmethod
    def published(cls, sigma: float, **constants: Any) -> Self:
        """The method with the constants of its paper.

        Args:
            sigma: The standard deviation of the noise.
            constants: Constants that replace those of the paper.
        """
        return cls(sigma, **constants)  # type: ignore[call-arg]

    @abstractmethod
    def objective(self, module: nn.Module, x: Tensor, labels: Tensor, epoch: Tensor) -> Objective:
        """The loss for a batch.

        Args:
            module: The network.
            x: Inputs in [0, 1] without noise.
            labels: The class of each input.
            epoch: The number of the epoch from 0 on, as a scalar tensor.
        """

    def trainee(self, start: Start) -> Trainee:
        """What is trained, before the first step.

        Args:
            start: What it is made from.
        """
        return classifier_trainee(start, self.sigma, self.noise)

    def optimizer(self, parameters: list[nn.Parameter], *, momentum: float, **settings: Any) -> Optimizer:
        """The optimizer: SGD with Nesterov momentum.

        Args:
            parameters: What is trained.
            momentum: The momentum.
            **settings: The learning rate, the weight decay, and whether the device has fused optimizers.
        """
        return SGD(parameters, momentum=momentum, nesterov=True, **settings)

    def outputs(self, module: nn.Module, x: Tensor) -> Tensor:
        """The outputs of a network in evaluation mode for one noisy copy of each input, to validate it.

        Args:
            module: The network.
            x: Inputs in [0, 1] without noise.
        """
        outputs: Tensor = module(noisy_copies(x, 1, sigma=self.sigma, noise=self.noise)[0])
        return outputs

    def noisy_logits(self, module: nn.Module, x: Tensor, copies: int = 1) -> Tensor:
        """The logits for noisy copies of a batch, of shape (copies, batch, classes)."""
        return logits_of(module, noisy_copies(x, copies, sigma=self.sigma, noise=self.noise))

    def score(self, outputs: Tensor, x: Tensor, labels: Tensor) -> Tensor:
        """How good each output is; the mean over all inputs is reported.

        Args:
            outputs: What the network computed.
            x: Inputs in [0, 1] without noise.
            labels: The class of each input.
        """
        return (outputs.argmax(-1) == labels).float()


def draw_noise(x: Tensor, copies: int, sigma: float) -> Tensor:
    """Independent samples of N(0, sigma^2 I), of shape (copies, *x.shape)."""
    return sigma * torch.randn((copies, *x.shape), device=x.device)


def noisy_copies(x: Tensor, copies: int, *, sigma: float, noise: Noise | None = None) -> Tensor:
    """Noisy inputs of shape (copies, batch, ...)."""
    if noise is None:
        return x + draw_noise(x, copies, sigma)
    noise, drawer = noise.for_shape(tuple(x.shape[1:])), drawer_for(noise.draw, tuple(x.shape[1:]))
    low, high = (0, noise.outcomes) if noise.outcomes else (-(2**63), 2**63 - 1)
    words = torch.randint(low, high, (copies * len(x), drawer.words), device=x.device)
    noisy = drawer.noisy(words, x.repeat(copies, *[1] * (x.ndim - 1)))
    return noisy.view(copies, len(x), *noisy.shape[1:])


def logits_of(module: nn.Module, inputs: Tensor) -> Tensor:
    """The logits for all copies, of shape (copies, batch, classes), in one forward pass."""
    logits: Tensor = module(inputs.flatten(0, 1))
    return logits.float().view(*inputs.shape[:2], -1)


def log_mean_probability(logits: Tensor) -> Tensor:
    """The logarithm of the mean of softmax(logits) over the copies, of shape (batch, classes). It is never -inf."""
    return logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))

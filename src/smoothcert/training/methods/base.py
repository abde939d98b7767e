"""The interface of a training method: what it trains, and the loss that training minimises."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Optimizer

from smoothcert._registry import Recorded
from smoothcert.errors import InvalidInput
from smoothcert.models.architectures import ARCHITECTURES, build
from smoothcert.models.base import Classifier
from smoothcert.models.denoisers import Denoised, Denoiser
from smoothcert.models.denoisers.base import check_noise
from smoothcert.noises import Gaussian, Noise
from smoothcert.noises.base import Shape
from smoothcert.sampling.drawing import drawer_for

BY_SIGMA: Any = None
"""The default of a constant whose published value depends on sigma."""
_INT64 = (-(2**63), 2**63 - 1)
"""The range of random words for a noise that does not number its outcomes."""


@dataclass(frozen=True)
class Start:
    """What a training run starts from.

    The classifier is the one to start from, and the denoiser is a fixed one in front of it. If a
    denoiser is trained, it is the other way round: the classifier is the fixed one of its stability
    loss.
    """

    architecture: str
    shape: Shape
    classes: int
    classifier: Classifier | None = None
    denoiser: Denoiser | None = None


class Trainee(NamedTuple):
    """A network that is trained, with the fixed networks around it."""

    module: nn.Module
    """What the training method calls."""
    trained: nn.Module
    """The part of it whose weights change. They are the result."""
    facts: dict[str, Any]
    """What the file of the weights says about the network."""


class Frozen(nn.Module):
    """A copy of a network in evaluation mode, whose weights training does not change."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = copy.deepcopy(module).requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode."""
        return super().train(False)

    def forward(self, *inputs: Tensor) -> Tensor:
        """What the network computes."""
        output: Tensor = self.module(*inputs)
        return output


class Objective(NamedTuple):
    """What a method computes for a batch."""

    loss: Tensor
    """The loss, a scalar."""
    outputs: Tensor
    """The logits for noisy inputs, of shape (copies, batch, classes), or the denoised inputs."""


class Method(Recorded, ABC):
    """A training method: a frozen dataclass with the constants of the method.

    The record of a training run contains all of its fields. A CUDA graph may replay `objective`. So
    `objective` must not read values back from the device, and all shapes in it must depend on the
    shape of the batch alone.

    A method that trains a classifier with SGD only writes `objective`. The other members are for
    methods that train something else.
    """

    name: ClassVar[str]
    """The name on the command line and in records."""
    learning_rate: ClassVar[float] = 0.1
    """The highest learning rate in the method's paper."""
    schedule: ClassVar[str] = "cosine"
    """How the learning rate changes, by default."""
    input_range: ClassVar[tuple[float, float] | None] = None
    """The smallest and the largest value of an input; None if the method takes any value."""
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
        """The method with the constants of its paper, which are the defaults of its fields.

        Args:
            sigma: The standard deviation of the noise.
            constants: Constants that replace those of the paper.
        """
        return cls(sigma, **constants)  # type: ignore[call-arg]

    def _by_sigma(self, **values: float) -> None:
        """Set constants that are not given, whose published values depend on sigma."""
        for name, value in values.items():
            if getattr(self, name) is BY_SIGMA:
                object.__setattr__(self, name, value)

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
        """What is trained, before the first step: a classifier, perhaps behind a fixed denoiser.

        Args:
            start: What it is made from.
        """
        network = _first_network(start, self.noise)
        facts = {"classes": start.classes}
        denoiser = start.denoiser
        if denoiser is None:
            return Trainee(network, network, facts)
        check_noise(denoiser, self.noise or Gaussian(self.sigma))
        if denoiser.shape is not None:
            _check_shape("the denoiser", denoiser.shape, start.shape)
        return Trainee(Denoised(Frozen(denoiser.at(self.sigma)), network), network, facts)

    def optimizer(
        self, parameters: list[nn.Parameter], *, momentum: float, **settings: Any
    ) -> Optimizer:
        """The optimizer: SGD with Nesterov momentum.

        Args:
            parameters: What is trained.
            momentum: The momentum.
            **settings: The learning rate, the weight decay, and whether the device has fused
                optimizers.
        """
        return SGD(parameters, momentum=momentum, nesterov=True, **settings)

    def outputs(self, module: nn.Module, x: Tensor) -> Tensor:
        """The outputs of a network in evaluation mode for one noisy copy of each input.

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


def _first_network(start: Start, noise: Noise | None) -> nn.Module:
    """A copy of the classifier to start from, or else a bundled network with random weights."""
    if start.classifier is not None:
        return _trainable_copy(start.classifier)
    if start.architecture not in ARCHITECTURES:
        raise InvalidInput(
            "not-bundled",
            "{architecture} is not bundled: give the classifier to start from, with "
            "`classifier=|--model {architecture}`",
            architecture=start.architecture,
        )
    expected: Shape = ARCHITECTURES[start.architecture].input_shape
    _check_shape(start.architecture, expected, start.shape)
    shape = expected
    if noise is not None:  # it may mark absent pixels in further channels
        shape = noise.draw.output_shape(expected)
    return build(start.architecture, classes=start.classes, channels=shape[0])


def _trainable_copy(classifier: Classifier) -> nn.Module:
    """A copy of a classifier. Layers that the user has frozen stay frozen, unless all are."""
    network = copy.deepcopy(module_of(classifier)).train()
    parameters = [parameter for parameter in network.parameters() if parameter.is_floating_point()]
    if not parameters:
        raise _cannot_train(classifier)
    if not any(parameter.requires_grad for parameter in parameters):
        for parameter in parameters:
            parameter.requires_grad_()
    return network


def _check_shape(network: str, expected: Shape, shape: Shape) -> None:
    """Refuse data of another shape than a network takes."""
    if shape != expected:
        raise InvalidInput(
            "other-shape",
            "{network} takes inputs of shape {expected}, the data has {shape}",
            network=network,
            expected=expected,
            shape=shape,
        )


def module_of(classifier: Classifier) -> nn.Module:
    """The module of a classifier. A function has no gradients."""
    if not isinstance(classifier.module, nn.Module):
        raise _cannot_train(classifier)
    return classifier.module


def _cannot_train(classifier: Classifier) -> InvalidInput:
    return InvalidInput(
        "no-parameters",
        "{model} has no parameters: training needs a torch module with weights",
        model=classifier.name,
    )


def draw_noise(x: Tensor, copies: int, sigma: float) -> Tensor:
    """Independent samples of N(0, sigma^2 I), of shape (copies, *x.shape)."""
    return sigma * torch.randn((copies, *x.shape), device=x.device)


def noisy_copies(x: Tensor, copies: int, *, sigma: float, noise: Noise | None = None) -> Tensor:
    """Noisy inputs of shape (copies, batch, ...)."""
    if noise is None:
        return x + draw_noise(x, copies, sigma)
    shape = tuple(x.shape[1:])
    drawer = drawer_for(noise.draw, shape)
    outcomes = noise.for_shape(shape).outcomes
    limits = (0, outcomes) if outcomes else _INT64
    words = torch.randint(*limits, (copies * len(x), drawer.words), device=x.device)
    noisy = drawer.noisy(words, x.repeat(copies, *[1] * (x.ndim - 1)))
    return noisy.view(copies, len(x), *noisy.shape[1:])


def logits_of(module: nn.Module, inputs: Tensor) -> Tensor:
    """The logits for all copies, of shape (copies, batch, classes), in one forward pass."""
    logits: Tensor = module(inputs.flatten(0, 1))
    return logits.float().view(*inputs.shape[:2], -1)


def log_mean_probability(logits: Tensor) -> Tensor:
    """The logarithm of the mean of softmax(logits) over the copies, of shape (batch, classes).

    It is never -inf.
    """
    return logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))


def natural_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy -log f_y(x + delta) of noisy inputs, averaged over copies and batch."""
    return functional.cross_entropy(logits.flatten(0, 1), labels.repeat(len(logits)))


def divergence(target: Tensor, logits: Tensor) -> Tensor:
    """KL(target || softmax(logits)) for each copy and input, of shape (copies, batch)."""
    log_each = logits.log_softmax(-1)
    return functional.kl_div(log_each, target.expand_as(log_each), reduction="none").sum(-1)

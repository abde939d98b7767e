"""What a training run trains, and the fixed networks around it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from torch import Tensor, nn

from smoothcert.errors import InvalidInput
from smoothcert.models.architectures import ARCHITECTURES, build
from smoothcert.models.base import Classifier
from smoothcert.models.denoisers import Denoised, Denoiser
from smoothcert.models.denoisers.denoised import check_noise
from smoothcert.noises import Gaussian, Noise


@dataclass(frozen=True)
class Start:
    """What a training run starts from.

    The classifier is the one to start from, and the denoiser is a fixed one in front of it. If a denoiser is trained,
    it is the other way round: the classifier is the fixed one of its stability loss.
    """

    architecture: str
    shape: tuple[int, ...]
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
    """A copy of a network that training leaves as it is: in evaluation mode, without gradients for its weights."""

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


def classifier_trainee(start: Start, sigma: float, noise: Noise | None) -> Trainee:
    """A classifier to train, behind a fixed denoiser if one is given."""
    network = _build(start, noise) if start.classifier is None else _continued(start.classifier)
    facts = {"classes": start.classes}
    if start.denoiser is None:
        return Trainee(network, network, facts)
    check_noise(start.denoiser, noise or Gaussian(sigma))
    if start.denoiser.shape not in (None, start.shape):
        raise InvalidInput(f"the denoiser takes inputs of shape {start.denoiser.shape}, the data has {start.shape}")
    return Trainee(Denoised(Frozen(start.denoiser.at(sigma)), network), network, facts)


def _build(start: Start, noise: Noise | None) -> nn.Module:
    if start.architecture not in ARCHITECTURES:
        raise InvalidInput(f"{start.architecture} is not bundled: give the classifier to start from")
    expected: tuple[int, ...] = ARCHITECTURES[start.architecture].input_shape
    if start.shape != expected:
        raise InvalidInput(f"{start.architecture} takes inputs of shape {expected}, the data has {start.shape}")
    # A noise may mark absent pixels in further channels.
    channels = (expected if noise is None else noise.draw.output_shape(expected))[0]
    return build(start.architecture, classes=start.classes, channels=channels)


def _continued(classifier: Classifier) -> nn.Module:
    network = copy.deepcopy(module_of(classifier)).train()
    parameters = [parameter for parameter in network.parameters() if parameter.is_floating_point()]
    if not parameters:
        raise InvalidInput(f"{classifier.name} has no parameters: there is nothing to train")
    if not any(parameter.requires_grad for parameter in parameters):  # otherwise, the user has frozen the others
        for parameter in parameters:
            parameter.requires_grad_()
    return network


def module_of(classifier: Classifier) -> nn.Module:
    """The module of a classifier. A function has no gradients."""
    if not isinstance(classifier.module, nn.Module):
        raise InvalidInput(f"{classifier.name} is a function: training needs a torch module")
    return classifier.module

"""A classifier behind a denoiser: classifier(denoiser(x + noise))."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.errors import InvalidInput, setting
from smoothcert.models.base import Classifier
from smoothcert.models.denoisers.base import Denoiser
from smoothcert.models.denoisers.check import check_noise
from smoothcert.models.identity import state_hash
from smoothcert.noises import Noise


class Denoised(nn.Module):
    """A classifier behind a denoiser.

    Args:
        denoiser: A module from noisy inputs to estimates of the clean ones, in the units of the classifier.
        classifier: The classifier.
    """

    def __init__(self, denoiser: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.denoiser = denoiser
        self.classifier = classifier
        self.own_dtype = getattr(classifier, "own_dtype", None)

    def forward(self, x: Tensor) -> Any:
        """What the classifier returns for the denoised inputs.

        Args:
            x: Noisy inputs.
        """
        return self.classifier(self.denoiser(x))


class DenoisedFunction:
    """A function behind a denoiser. The function may do anything, so this is not a module, which could be traced."""

    def __init__(self, denoiser: nn.Module, function: Callable[[Tensor], Any]) -> None:
        self.denoiser = denoiser
        self.function = function
        self._placed: dict[tuple[torch.device, torch.dtype], nn.Module] = {}

    def __call__(self, x: Tensor) -> Any:
        """What the function returns for the denoised inputs."""
        place = (x.device, x.dtype)
        if place not in self._placed:
            self._placed[place] = copy.deepcopy(self.denoiser).to(*place)
        return self.function(self._placed[place](x))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_placed": {}}  # another process makes its own copies


def denoised(classifier: Classifier, denoiser: Denoiser, noise: Noise) -> Classifier:
    """A classifier behind a denoiser, as one classifier.

    Args:
        classifier: The classifier, which takes clean inputs.
        denoiser: The denoiser.
        noise: The smoothing noise. The denoiser removes noise of its deviation.

    Raises:
        InvalidInput: The denoiser is for other noise, or the classifier has one already.
    """
    if classifier.denoiser is not None:
        raise InvalidInput(f"{classifier.name} is behind a denoiser already: leave out {setting('denoiser')}")
    own, identity, sigma = classifier.weights_hash, state_hash(denoiser), noise.deviation
    together = f"{own} behind {identity} for sigma {sigma}"
    return replace(
        classifier,
        module=compose(classifier.module, denoiser, noise),
        input_shape=classifier.input_shape or denoiser.shape,
        weights_hash=None if own is None else hashlib.sha256(together.encode()).hexdigest(),
        trained_sigma=None,
        trained_noise=None,
        values=denoiser.values,
        denoiser={"name": denoiser.name, "hash": identity, "description": denoiser.describe(sigma)},
    )


def compose(model: Callable[[Tensor], Any], denoiser: Denoiser, noise: Noise) -> Denoised | DenoisedFunction:
    """A module or function behind a denoiser.

    Args:
        model: A module or function from clean batches to logits or labels.
        denoiser: The denoiser.
        noise: The smoothing noise.
    """
    check_noise(denoiser, noise)
    front = denoiser.at(noise.deviation)
    if not isinstance(model, nn.Module):
        return DenoisedFunction(front, model)
    parameter, own = next(model.parameters(), None), next(front.parameters(), None)
    if parameter is not None and own is not None and parameter.device != own.device:
        front = copy.deepcopy(front).to(parameter.device)
    return Denoised(front, model)

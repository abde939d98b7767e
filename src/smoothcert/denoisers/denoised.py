"""A classifier behind a denoiser: classifier(denoiser(x + noise))."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from smoothcert.denoisers.base import Denoiser


class FixedSigma(nn.Module):
    """A denoiser for one noise level: a module from noisy inputs to estimates of the clean ones.

    Args:
        denoiser: The denoiser.
        sigma: The standard deviation of the noise.
    """

    sigma: Tensor

    def __init__(self, denoiser: Denoiser, sigma: float) -> None:
        super().__init__()
        self.denoiser = denoiser
        self.register_buffer("sigma", torch.tensor([sigma]))

    def forward(self, x: Tensor) -> Tensor:
        """Estimates of the clean inputs.

        Args:
            x: Noisy inputs.
        """
        estimate: Tensor = self.denoiser(x, self.sigma)
        return estimate


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

    def forward(self, x: Tensor) -> Tensor:
        """What the classifier returns for the denoised inputs.

        Args:
            x: Noisy inputs.
        """
        output: Tensor = self.classifier(self.denoiser(x))
        return output

"""A denoiser estimates clean inputs from noisy ones, so that a classifier that never saw noise can be smoothed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf

import torch
from torch import Tensor, nn

from smoothcert.errors import InvalidInput
from smoothcert.models.modules import import_path


class Denoiser(nn.Module, ABC):
    """Estimates clean inputs from noisy ones, for a range of noise.

    Noisy inputs are x + N(0, sigma^2 I), where x is in the units of the data ([0, 1] for images). A subclass does all
    conversion to its own units in `denoise`.

    Args:
        sigmas: The smallest and the largest standard deviation that it can remove.
        values: The smallest and the largest value of a clean input.
        shape: The shape of an input; None if it takes any.
    """

    def __init__(
        self,
        sigmas: tuple[float, float],
        values: tuple[float, float] = (0.0, 1.0),
        shape: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        self.sigmas = _range("sigmas", sigmas)
        self.values = _range("values", values)
        self.shape = shape
        self.name = import_path(self)
        """What the user gave as the denoiser."""

    @abstractmethod
    def denoise(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Estimates of the clean inputs.

        Args:
            x: Noisy inputs of shape (batch, channels, height, width).
            sigma: The standard deviation of the noise: one for all inputs, or one for each of them.
        """

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """See `denoise`."""
        return self.denoise(x, sigma)

    @property
    def span(self) -> str:
        """The range of sigma in words."""
        low, high = self.sigmas
        return f"sigma {low:g}" if low == high else f"sigma from {low:g} to {high:g}"

    def at(self, sigma: float) -> nn.Module:
        """This denoiser for one noise level: a module from noisy inputs to estimates of the clean ones.

        Args:
            sigma: The standard deviation of the noise.
        """
        return FixedSigma(self, sigma)

    def describe(self, sigma: float) -> str:
        """How it removes noise of one level, for the record of a run.

        Args:
            sigma: The standard deviation of the noise.
        """
        return f"for {self.span}"


def _range(name: str, given: tuple[float, float]) -> tuple[float, float]:
    low, high = map(float, given)
    if not low <= high:
        raise InvalidInput(f"{name} must be (LOW, HIGH) with LOW at most HIGH, got {given!r}")
    return low, high


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


class ModuleDenoiser(Denoiser):
    """A module from noisy inputs to estimates of the clean ones, of which nothing else is known."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(sigmas=(0.0, inf), values=(-inf, inf))
        self.module = module
        self.name = import_path(module)

    def denoise(self, x: Tensor, sigma: Tensor) -> Tensor:
        """What the module returns, which is not told the noise level; see `Denoiser.denoise`."""
        estimate: Tensor = self.module(x)
        return estimate

    def describe(self, sigma: float) -> str:
        """See `Denoiser.describe`."""
        return "a module that does not state its range of sigma"

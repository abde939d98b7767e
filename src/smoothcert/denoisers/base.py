"""A denoiser estimates clean inputs from noisy ones, so that a classifier that never saw noise can be smoothed."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn


class Denoiser(nn.Module, ABC):
    """Estimates clean inputs from noisy ones, for a range of noise.

    Noisy inputs are x + N(0, sigma^2 I), where x is in the units of the data ([0, 1] for images). A subclass does all
    conversion to its own units in `denoise`.

    Args:
        sigmas: The smallest and the largest standard deviation that it can remove.
        values: The smallest and the largest value of a clean input.
    """

    def __init__(self, sigmas: tuple[float, float], values: tuple[float, float] = (0.0, 1.0)) -> None:
        super().__init__()
        self.sigmas = sigmas
        self.values = values

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

"""Gaussian noise on the grid of 8-bit images, whose certificates hold exactly (Voracek & Hein 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smoothcert import _check
from smoothcert.noises.base import LARGEST_INPUT, Noise
from smoothcert.noises.draws import AdditiveGrid, Draw
from smoothcert.noises.gaussian import Gaussian, GaussianRadius
from smoothcert.noises.rounded_normal import thresholds


@dataclass(frozen=True)
class GridGaussian(GaussianRadius):
    """Add whole multiples of `step` with the probabilities of rounded Gaussian noise: R = sigma * Phi^-1(p) in l2.

    Inputs must lie on the grid. The noisy input is computed on integers, so it is exact, and rounding is part of the
    classifier. The certificate holds for every other input on the grid.

    Args:
        sigma: Standard deviation, in the units of the inputs.
        step: The step of the grid.
        size: How many numbers an input has. `certify` takes it from the data.

    >>> GridGaussian(0.5, size=3072).drawing_error < 1e-12
    True
    """

    sigma: float
    step: float = 1 / 255
    size: int | None = None
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "step", _check.between("step", self.step, 0))
        if self.size is not None:
            object.__setattr__(self, "size", _check.whole("size", self.size, least=1))

    @property
    def draw(self) -> Draw:
        return AdditiveGrid(self.sigma, self.step)

    @property
    def drawing_error(self) -> float:
        return (self.size or LARGEST_INPUT) * thresholds(self.sigma / self.step).error

    @property
    def grid(self) -> tuple[float, float | None] | None:
        return self.step, None


def is_gaussian(noise: Noise | None, sigma: float) -> bool:
    """Whether a noise is Gaussian with this standard deviation, on a grid or not.

    >>> is_gaussian(GridGaussian(0.5, size=784), 0.5)
    True
    """
    return isinstance(noise, (Gaussian, GridGaussian)) and noise.sigma == sigma

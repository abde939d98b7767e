"""Gaussian noise and the l2 radius of Cohen et al. (2019), also on a grid (Voracek & Hein 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from smoothcert import _check
from smoothcert.noises.base import (
    CELL,
    LARGEST_INPUT,
    Additive,
    AdditiveGrid,
    Draw,
    Noise,
    Numbers,
    Shape,
    checked_size,
    down,
    half_difference,
)
from smoothcert.noises.rounded_normal import thresholds

_TAIL_CUT = 2.0**-65
"""The probability of the tails that are cut off, for each coordinate."""


@dataclass(frozen=True)
class GaussianRadius(Noise):
    """Base of noises with a normal parameter: R = sigma * Phi^-1(p) in l2 of the parameter.

    With an upper bound b on every other class, R = sigma / 2 * (Phi^-1(a) - Phi^-1(b)).
    """

    sigma: float
    # Checked numerically for 100,000 samples and others: an absolute decline never decreases, a
    # relative one decreases and then increases.
    map_peaks_at_ends: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check.fields(self, _check.between, "sigma", low=0)

    @property
    def deviation(self) -> float:
        return self.sigma

    def other_radii(self, radius: ArrayLike, shape: Shape) -> dict[str, Numbers]:
        """From a radius R in l2 of the input follows R / sqrt(d) in l-infinity, rounded down."""
        if self.norm != "l2":
            return {}
        return {"linf": down(np.asarray(radius, float) / np.sqrt(prod(shape)))}

    def radius(self, p: ArrayLike) -> Numbers:
        return down(self.sigma * ndtri(_check.probabilities("p", p)))

    def probability(self, radius: ArrayLike) -> Numbers:
        return ndtr(np.asarray(radius, float) / self.sigma)[()]

    def radius_between(self, lower: ArrayLike, upper: ArrayLike) -> Numbers:
        a = ndtri(_check.probabilities("p", lower))
        b = ndtri(_check.probabilities("p", upper))
        return half_difference(self.sigma, a, b)

    def largest_probability(self, radius: ArrayLike, q: ArrayLike) -> Numbers:
        """U_r(q) = Phi(Phi^-1(q) + r / sigma)."""
        z = ndtri(_check.probabilities("q", q))
        return ndtr(z + np.asarray(radius, float) / self.sigma)

    def trade_off(self, radius: Numbers, b: ArrayLike) -> tuple[Numbers, Numbers]:
        """h(b) = Phi(Phi^-1(b) + c) with c = 2 r / sigma: A may lose half of c, and B gain half."""
        z = ndtri(_check.probabilities("b", b))
        c = 2 * radius / self.sigma
        return ndtr(z + c), np.exp(-c * (z + c / 2))


@dataclass(frozen=True)
class Gaussian(GaussianRadius):
    """Isotropic Gaussian noise: R = sigma * Phi^-1(p) in l2.

    With an upper bound b on every other class, R = sigma / 2 * (Phi^-1(a) - Phi^-1(b)).

    Args:
        sigma: Standard deviation, in the units of the inputs.

    >>> float(Gaussian(0.5).radius(0.99))
    1.16317393...
    """

    norm: ClassVar[str] = "l2"
    drawing_error = LARGEST_INPUT * _TAIL_CUT + CELL

    @property
    def draw(self) -> Additive:
        return Additive("normal", self.sigma)


@dataclass(frozen=True)
class GridGaussian(GaussianRadius):
    """Add whole multiples of `step`, drawn as rounded Gaussian noise: R = sigma * Phi^-1(p) in l2.

    Inputs must lie on the grid. The noisy input is computed on integers, so it is exact, and
    rounding is part of the classifier. The certificate holds for every other input on the grid.

    Args:
        sigma: Standard deviation, in the units of the inputs.
        step: The step of the grid.
        size: How many numbers an input has. `certify` takes it from the data.

    >>> GridGaussian(0.5, size=3072).drawing_error < 1e-12
    True
    """

    step: float = 1 / 255
    size: int | None = None
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.fields(self, _check.between, "step", low=0)
        _check.fields(self, checked_size, "size")

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

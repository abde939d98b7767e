"""Gaussian noise and the l2 radius of Cohen et al. (2019), also on a grid (Voracek & Hein 2023).

And normal noise in the parameter of a transformation: brightness and circular translation. Their
certificates hold because two transformations in a row are the one whose parameter is the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noises.base import (
    CELL,
    LARGEST_INPUT,
    Additive,
    AdditiveGrid,
    Draw,
    Noise,
    OwnDraw,
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

    def other_radii(self, radius: ArrayLike, shape: tuple[int, ...]) -> dict[str, Any]:
        """From a radius R in l2 of the input follows R / sqrt(d) in l-infinity, rounded down."""
        if self.norm != "l2":
            return {}
        return {"linf": down(np.asarray(radius, float) / np.sqrt(prod(shape)))}

    def radius(self, p: ArrayLike) -> Any:
        return down(self.sigma * ndtri(_check.probabilities("p", p)))

    def probability(self, radius: ArrayLike) -> Any:
        return ndtr(np.asarray(radius, float) / self.sigma)[()]

    def radius_between(self, lower: ArrayLike, upper: ArrayLike) -> Any:
        a = ndtri(_check.probabilities("p", lower))
        b = ndtri(_check.probabilities("p", upper))
        return half_difference(self.sigma, a, b)

    def trade_off(self, radius: Any, b: ArrayLike) -> tuple[Any, Any]:
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


@dataclass(frozen=True)
class Brightness(OwnDraw, GaussianRadius):
    """Add one normal number to all values, without clipping: R = sigma * Phi^-1(p) of intensity.

    No number of absolute value below R that is added to all values changes the answer.

    Args:
        sigma: The standard deviation, in the units of the inputs.
    """

    norm: ClassVar[str] = "brightness"
    drawing_error = 2.0**-53  # float64 holds this many bits of the uniform number

    def certified_change(self, limit: str) -> str:
        change = "change of all values by the same number, without clipping,"
        return f"{change} that is smaller than {limit}"


@dataclass(frozen=True)
class Translation(OwnDraw, GaussianRadius):
    """Shift images circularly by two rounded normal numbers: R = sigma * Phi^-1(p) in pixels.

    A shift by whole pixels followed by another one is the shift by their sum, and rounding commutes
    with adding whole numbers. So no circular shift by whole pixels of a Euclidean length below R
    changes the answer.

    Args:
        sigma: The standard deviation of the shift along each axis, in pixels.
    """

    norm: ClassVar[str] = "l2 of the shift in pixels"
    deviation = 0.0

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) < 2:
            raise InvalidInput(
                "not-images",
                "only images can be shifted, but the inputs have the shape {shape}",
                shape=shape,
            )
        return shape

    @property
    def drawing_error(self) -> float:
        return 2 * thresholds(self.sigma).error

    def certified_change(self, limit: str) -> str:
        return f"circular shift by whole pixels that is shorter than {limit} pixels"


def is_gaussian(noise: Noise | None, sigma: float) -> bool:
    """Whether a noise is Gaussian with this standard deviation, on a grid or not.

    >>> is_gaussian(GridGaussian(0.5, size=784), 0.5)
    True
    """
    return isinstance(noise, (Gaussian, GridGaussian)) and noise.sigma == sigma

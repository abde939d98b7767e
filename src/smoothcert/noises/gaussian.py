"""Isotropic Gaussian noise and the l2 radius of Cohen et al. (2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from smoothcert import _check
from smoothcert.noises.base import Additive, Noise

# `ndtri` and the arithmetic are exact to a few units in the last place. A margin of sixteen keeps the radius below.
_MARGIN = 16 * float(np.finfo(float).eps)


@dataclass(frozen=True)
class Gaussian(Noise):
    """Isotropic Gaussian noise: R = sigma * Phi^-1(p) in l2.

    With an upper bound b on every other class, R = sigma / 2 * (Phi^-1(a) - Phi^-1(b)).

    Args:
        sigma: Standard deviation, in the units of inputs in [0, 1].

    >>> float(Gaussian(0.5).radius(0.99))
    1.16317393...
    """

    sigma: float
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", _check.between("sigma", self.sigma, 0))

    @property
    def draw(self) -> Additive:
        return Additive("normal", self.sigma)

    @property
    def deviation(self) -> float:
        return self.sigma

    def radius(self, p: ArrayLike) -> Any:
        z = ndtri(_check.probabilities("p", p))
        return (self.sigma * z * (1 - np.copysign(_MARGIN, z)))[()]

    def probability(self, radius: ArrayLike) -> Any:
        return ndtr(np.asarray(radius, float) / self.sigma)[()]

    def radius_between(self, lower: ArrayLike, upper: ArrayLike) -> Any:
        a, b = (ndtri(_check.probabilities("p", p)) for p in (lower, upper))
        rounding = _MARGIN * (np.abs(a) + np.abs(b))  # both terms round on their own, also where they nearly cancel
        with np.errstate(invalid="ignore"):  # infinity minus infinity proves nothing
            difference = a - b
            return (self.sigma / 2 * np.where(np.isinf(difference), difference, difference - rounding))[()]

"""Laplace noise and its l1 radius (Teng et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from smoothcert import _check
from smoothcert.noises.base import LARGEST_INPUT, Noise
from smoothcert.noises.draws import Additive, Draw
from smoothcert.noises.rounding import MARGIN, down

_TAIL_CUT = 2.0**-63  # of each coordinate, by both streams


@dataclass(frozen=True)
class Laplace(Noise):
    """Every coordinate is moved by a Laplace number of this scale: R = -scale * ln(2 (1 - p)) in l1.

    With an upper bound b on every other class, R = scale * max(-ln(1 - a + b), ln(a / b) / 2).

    Args:
        scale: The mean of the absolute noise, in the units of inputs in [0, 1].

    >>> round(float(Laplace(1.0).radius(0.99)), 6)
    3.912023
    """

    scale: float
    norm: ClassVar[str] = "l1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _check.between("scale", self.scale, 0))

    @property
    def draw(self) -> Draw:
        return Additive("laplace", self.scale)

    @property
    def deviation(self) -> float:
        return sqrt(2) * self.scale

    @property
    def drawing_error(self) -> float:
        return LARGEST_INPUT * _TAIL_CUT

    def radius(self, p: ArrayLike) -> Any:
        q = 1 - _check.probabilities("p", p)
        with np.errstate(divide="ignore"):
            # 2 (1 - p) is exact for p >= 1/2. Near p = 1/2, log1p keeps the relative accuracy.
            log = np.where(q > 0.25, np.log1p(2 * q - 1), np.log(2 * q))
        return down(-self.scale * log)

    def probability(self, radius: ArrayLike) -> Any:
        return (1 - np.exp(-np.asarray(radius, float) / self.scale) / 2)[()]

    def radius_between(self, lower: ArrayLike, upper: ArrayLike) -> Any:
        a, b = (_check.probabilities("p", p) for p in (lower, upper))
        with np.errstate(divide="ignore", invalid="ignore"):  # infinity minus infinity proves nothing
            # The argument of each logarithm is off by a few units, which matters where the logarithm is near 0.
            difference = down(-np.log((1 - a + b) * (1 + MARGIN)))
            ratio = down((np.log(a) - np.log(b)) / 2 - MARGIN * (np.abs(np.log(a)) + np.abs(np.log(b))))
        return (self.scale * np.fmax(difference, ratio))[()]

"""Noises whose radius is in l1: uniform, splitting and Laplace.

The theorems are those of Yang et al. (2020) and Lee et al. (2019), Levine & Feizi (2021), and Teng
et al. (2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noises.base import (
    CELL,
    LARGEST_INPUT,
    Additive,
    Draw,
    Noise,
    Numbers,
    OwnDraw,
    down,
    half_difference,
)


@dataclass(frozen=True)
class LipschitzNoise(Noise):
    """Base of noises whose probabilities are 1 / (2 scale)-Lipschitz in l1: R = scale * (2p - 1).

    With an upper bound b on every other class, R = scale * (a - b).
    """

    scale: float
    norm: ClassVar[str] = "l1"

    def __post_init__(self) -> None:
        _check.fields(self, _check.between, "scale", low=0)

    @property
    def deviation(self) -> float:
        return self.scale / sqrt(3)

    @property
    def drawing_error(self) -> float:
        # float32 holds 24 bits of the noise or of the offset, and rounds them up to three times.
        return 2.0**-22

    def radius(self, p: ArrayLike) -> Numbers:
        return down(self.scale * (2 * _check.probabilities("p", p) - 1))

    def probability(self, radius: ArrayLike) -> Numbers:
        return np.minimum((1 + np.asarray(radius, float) / self.scale) / 2, 1.0)[()]

    def radius_between(self, lower: ArrayLike, upper: ArrayLike) -> Numbers:
        a = _check.probabilities("p", lower)
        b = _check.probabilities("p", upper)
        return down(self.scale * (a - b))

    def largest_probability(self, radius: ArrayLike, q: ArrayLike) -> Numbers:
        """U_r(q) = min(q + r / (2 scale), 1)."""
        grown = _check.probabilities("q", q) + np.asarray(radius, float) / (2 * self.scale)
        return np.minimum(grown, 1.0)

    def trade_off(self, radius: float, b: ArrayLike) -> tuple[Numbers, Numbers]:
        """h(b) = min(b + r / scale, 1): A may lose half of r / scale, and B may gain half."""
        h = _check.probabilities("b", b) + radius / self.scale
        return np.minimum(h, 1.0), np.where(h < 1, 1.0, 0.0)[()]


@dataclass(frozen=True)
class Uniform(LipschitzNoise):
    """Add an independent uniform number in [-scale, scale] to every coordinate.

    The radius is R = scale * (2p - 1) in l1.

    Args:
        scale: The largest noise, in the units of the inputs.

    >>> round(float(Uniform(1.0).radius(0.99)), 6)
    0.98
    """

    @property
    def draw(self) -> Draw:
        return Additive("uniform", self.scale)


@dataclass(frozen=True)
class Splitting(OwnDraw, LipschitzNoise):
    """Replace every coordinate by the centre of its cell in a randomly placed partition.

    The radius is R = scale * (2p - 1) in l1. The cells have the width 2 * scale, cut at 0 and 1.
    With `levels`, inputs must be multiples of 1 / levels. One offset then places the partitions of
    all coordinates, and only 2 * scale * levels offsets differ. The plan `Exact` counts all of
    them, so its certificates hold without alpha.

    Args:
        scale: Half of the width of a cell, in the units of the inputs.
        levels: 0 for random splitting; 255 to enumerate the offsets for 8-bit images.

    >>> Splitting(0.5, levels=255).outcomes
    255
    """

    levels: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.fields(self, _check.whole, "levels")
        if not self.levels:
            return
        offsets = 2 * self.scale * self.levels
        exact_scale = self._offsets / (2 * self.levels)
        if abs(offsets - self._offsets) > 1e-6 * self._offsets:
            raise InvalidInput(
                "partial-offset",
                "2 * scale * levels must be a whole number, got {offsets:g}: the nearest scale is "
                "{nearest:.10g}",
                offsets=offsets,
                nearest=exact_scale,
            )
        object.__setattr__(self, "scale", exact_scale)

    @property
    def _offsets(self) -> int:
        return max(round(2 * self.scale * self.levels), 1)

    @property
    def drawing_error(self) -> float:
        return 0.0 if self.levels else super().drawing_error

    @property
    def outcomes(self) -> int | None:
        return self._offsets if self.levels else None

    @property
    def grid(self) -> tuple[float, float | None] | None:
        return (1 / self.levels, 1.0) if self.levels else None


_TAIL_CUT = 2.0**-63
"""The probability of the tails that are cut off, for each coordinate."""


@dataclass(frozen=True)
class LogarithmicRadius(Noise):
    """Base of noises with an exponential tail: R = -scale * ln(2 (1 - p))."""

    scale: float

    def __post_init__(self) -> None:
        _check.fields(self, _check.between, "scale", low=0)

    def radius(self, p: ArrayLike) -> Numbers:
        q = 1 - _check.probabilities("p", p)
        with np.errstate(divide="ignore"):
            # 2 (1 - p) is exact for p >= 1/2. Near p = 1/2, log1p keeps the relative accuracy.
            log = np.where(q > 0.25, np.log1p(2 * q - 1), np.log(2 * q))
        return down(-self.scale * log)

    def probability(self, radius: ArrayLike) -> Numbers:
        return (1 - np.exp(-np.asarray(radius, float) / self.scale) / 2)[()]


@dataclass(frozen=True)
class Laplace(LogarithmicRadius):
    """Add an independent Laplace number to every coordinate: R = -scale * ln(2 (1 - p)) in l1.

    With an upper bound b on every other class, R = scale / 2 * (u(a) - u(b)), where u(p) is ln(2 p)
    up to p = 1/2 and -ln(2 (1 - p)) above.

    Args:
        scale: The mean of the absolute noise, in the units of the inputs.

    >>> round(float(Laplace(1.0).radius(0.99)), 6)
    3.912023
    """

    norm: ClassVar[str] = "l1"
    drawing_error = LARGEST_INPUT * _TAIL_CUT + CELL

    @property
    def draw(self) -> Draw:
        return Additive("laplace", self.scale)

    @property
    def deviation(self) -> float:
        return sqrt(2) * self.scale

    def radius_between(self, lower: ArrayLike, upper: ArrayLike) -> Numbers:
        a = _distance(_check.probabilities("p", lower))
        b = _distance(_check.probabilities("p", upper))
        return half_difference(self.scale, a, b)

    def largest_probability(self, radius: ArrayLike, q: ArrayLike) -> Numbers:
        """U_r(q) = u^-1(u(q) + r / scale); `trade_off` says why."""
        u = _distance(_check.probabilities("q", q)) + np.asarray(radius, float) / self.scale
        return np.where(u > 0, 1 - np.exp(-u) / 2, np.exp(np.minimum(u, 0)) / 2)

    def trade_off(self, radius: float, b: ArrayLike) -> tuple[Numbers, Numbers]:
        """h = g(g(b)) = u^-1(u(b) + c) with c = 2 r / scale; a shift of r raises b to g(b) at most.

        The derivative of a probability p by one coordinate is E[vote * sign(z)] / scale, so its
        absolute value is at most min(p, 1 - p) / scale in any dimension. Along a path of l1 length
        r, p grows at most as the solution of p' = min(p, 1 - p) / scale, which is the exact curve g
        of a one-dimensional shift and moves u(p) by r / scale.
        """
        b = _check.probabilities("b", b)
        grown = np.exp(min(2 * radius / self.scale, 700))  # h is 1 long before the limit of exp
        small = b * grown <= 0.5
        middle = b <= 0.5
        with np.errstate(divide="ignore"):
            h = np.where(small, grown * b, 1 - np.where(middle, 1 / (4 * b), 1 - b) / grown)
            slope = np.where(small, grown, np.where(middle, 1 / (2 * b) ** 2, 1.0) / grown)
        return h[()], slope[()]


def _distance(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """u(p): how far a shift must go to turn 1/2 into p; negative below 1/2."""
    with np.errstate(divide="ignore"):
        smaller = np.minimum(p, 1 - p)  # 1 - p is exact where it is the smaller one
        log: NDArray[np.float64] = np.log(2 * smaller)
    return np.where(p > 0.5, -log, log)

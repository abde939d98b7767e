"""Laplace noise and its l1 radius (Teng et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert.noises.base import CELL, LARGEST_INPUT, Noise
from smoothcert.noises.draws import Additive, Draw
from smoothcert.noises.rounding import MARGIN, down

_TAIL_CUT = 2.0**-63  # of each coordinate


@dataclass(frozen=True)
class Laplace(Noise):
    """Every coordinate is moved by a Laplace number of this scale: R = -scale * ln(2 (1 - p)) in l1.

    With an upper bound b on every other class, R = scale / 2 * (u(a) - u(b)), where u(p) is ln(2 p) up to p = 1/2 and
    -ln(2 (1 - p)) above.

    Args:
        scale: The mean of the absolute noise, in the units of the inputs.

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
        return LARGEST_INPUT * _TAIL_CUT + CELL

    def radius(self, p: ArrayLike) -> Any:
        q = 1 - _check.probabilities("p", p)
        with np.errstate(divide="ignore"):
            # 2 (1 - p) is exact for p >= 1/2. Near p = 1/2, log1p keeps the relative accuracy.
            log = np.where(q > 0.25, np.log1p(2 * q - 1), np.log(2 * q))
        return down(-self.scale * log)

    def probability(self, radius: ArrayLike) -> Any:
        return (1 - np.exp(-np.asarray(radius, float) / self.scale) / 2)[()]

    def radius_between(self, lower: ArrayLike, upper: ArrayLike) -> Any:
        a, b = (_distance(_check.probabilities("p", p)) for p in (lower, upper))
        with np.errstate(invalid="ignore"):  # infinity minus infinity proves nothing
            difference = a - b
            rounding = MARGIN * (np.abs(a) + np.abs(b))  # both terms round on their own
            return (self.scale / 2 * np.where(np.isinf(difference), difference, difference - rounding))[()]

    def tie_curve(self, radius: float, b: ArrayLike) -> tuple[Any, Any]:
        """h = g(g(b)) = u^-1(u(b) + c) with c = 2 r / scale; g(b) is the most that b can become by a shift of r.

        The derivative of a probability p by one coordinate is E[vote * sign(z)] / scale, so its absolute value is at
        most min(p, 1 - p) / scale in any dimension. Along a path of l1 length r, p grows at most as the solution of
        p' = min(p, 1 - p) / scale, which is the exact curve g of a one-dimensional shift and moves u(p) by r / scale.
        """
        b, grown = _check.probabilities("b", b), np.exp(min(2 * radius / self.scale, 700))  # h is 1 long before
        small, middle = b * grown <= 0.5, b <= 0.5
        with np.errstate(divide="ignore"):
            h = np.where(small, grown * b, 1 - np.where(middle, 1 / (4 * b), 1 - b) / grown)
            slope = np.where(small, grown, np.where(middle, 1 / (2 * b) ** 2, 1.0) / grown)
        return h[()], slope[()]


def _distance(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """u(p): how far a shift must go to turn 1/2 into p; negative below 1/2."""
    with np.errstate(divide="ignore"):
        log: NDArray[np.float64] = np.log(2 * np.minimum(p, 1 - p))  # 1 - p is exact where it is the smaller one
    return np.where(p > 0.5, -log, log)

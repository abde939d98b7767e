"""Uniform noise and its l1 radius (Yang et al. 2020; Lee et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from smoothcert import _check
from smoothcert.noises.base import Noise
from smoothcert.noises.draws import Additive, Draw
from smoothcert.noises.rounding import down


class LipschitzNoise(Noise):
    """Base of noises for which every probability is 1 / (2 scale)-Lipschitz in l1: R = scale * (2p - 1).

    With an upper bound b on every other class, R = scale * (a - b).
    """

    scale: float
    norm: ClassVar[str] = "l1"

    @property
    def deviation(self) -> float:
        return self.scale / sqrt(3)

    @property
    def drawing_error(self) -> float:
        # float32 has numbers of 24 bits for the noise or the offset, and rounds it up to three times on the way.
        return 2.0**-22

    def radius(self, p: ArrayLike) -> Any:
        return down(self.scale * (2 * _check.probabilities("p", p) - 1))

    def probability(self, radius: ArrayLike) -> Any:
        return np.minimum((1 + np.asarray(radius, float) / self.scale) / 2, 1.0)[()]

    def radius_between(self, lower: ArrayLike, upper: ArrayLike) -> Any:
        a, b = (_check.probabilities("p", p) for p in (lower, upper))
        return down(self.scale * (a - b))

    def tie_curve(self, radius: float, b: ArrayLike) -> tuple[Any, Any]:
        """h(b) = min(b + r / scale, 1): A may lose half of r / scale, and B may gain the other half."""
        h = _check.probabilities("b", b) + radius / self.scale
        return np.minimum(h, 1.0), np.where(h < 1, 1.0, 0.0)[()]


@dataclass(frozen=True)
class Uniform(LipschitzNoise):
    """Every coordinate is moved by a number that is uniform on [-scale, scale]: R = scale * (2p - 1) in l1.

    Args:
        scale: The largest noise, in the units of the inputs.

    >>> round(float(Uniform(1.0).radius(0.99)), 6)
    0.98
    """

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _check.between("scale", self.scale, 0))

    @property
    def draw(self) -> Draw:
        return Additive("uniform", self.scale)

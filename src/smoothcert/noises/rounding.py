"""Rounding in the safe direction, and radii that have steps.

A formula of a few floating-point operations is exact to a few units in the last place. A margin of sixteen covers it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert.noises.base import Noise

MARGIN = 16 * float(np.finfo(float).eps)


def down(value: ArrayLike) -> Any:
    """A computed value, rounded down by more than its rounding error."""
    value = np.asarray(value, float)
    return (value * (1 - np.copysign(MARGIN, value)))[()]


def next_above(value: Fraction) -> float:
    """The smallest floating-point number that is larger than an exact value.

    >>> next_above(Fraction(1, 2)) > 0.5
    True
    """
    number = float(value)
    while Fraction(number) > value:
        number = float(np.nextafter(number, -np.inf))
    while Fraction(number) <= value:
        number = float(np.nextafter(number, np.inf))
    return number


class SteppedNoise(Noise):
    """Base of noises whose radius is a whole number: radius r needs a probability above a threshold."""

    @property
    @abstractmethod
    def thresholds(self) -> Sequence[Fraction]:
        """The exact probability that must be exceeded for each radius 0, 1, 2, ...

        The values never decrease, and the first one is 1/2.
        """

    def radius(self, p: ArrayLike) -> Any:
        steps = np.searchsorted(_needed(self), _check.probabilities("p", p), side="right")
        return np.asarray(steps - 1.0)[()]

    def probability(self, radius: ArrayLike) -> Any:
        """The smallest p that proves this radius; 1 for a radius that no probability proves."""
        needed = np.append(_needed(self), 1.0)
        steps = np.ceil(np.maximum(np.asarray(radius, float), 0))
        return needed[np.minimum(steps, len(needed) - 1).astype(int)][()]


@lru_cache(maxsize=64)
def _needed(noise: SteppedNoise) -> NDArray[np.float64]:
    """The smallest probability that proves each radius."""
    return np.array([next_above(threshold) for threshold in noise.thresholds])

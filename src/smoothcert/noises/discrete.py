"""Discrete noise on categorical inputs and its l0 radius (Lee et al. 2019), by exact rational arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import sqrt
from typing import ClassVar

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noises.base import LARGEST_INPUT
from smoothcert.noises.draws import Draw, Replace
from smoothcert.noises.rounding import SteppedNoise

_LARGEST_RADIUS = 256
_SMALLEST_REST = Fraction(1, 10**10)  # nobody proves more than 1 - 1e-10


@dataclass(frozen=True)
class Discrete(SteppedNoise):
    """Keep each value with probability `keep`, else replace it by one of the other values, all equally likely.

    Inputs consist of the values 0, 1 / (values - 1), ..., 1: bits for two values, 8-bit images for 256.

    Args:
        keep: The probability to keep a value. It is taken as the decimal number that is written.
        values: How many values K a coordinate can have.
        size: How many coordinates an input has. `certify` takes it from the data.

    >>> Discrete(0.8).thresholds[:4]
    (Fraction(1, 2), Fraction(7, 8), Fraction(31, 32), Fraction(127, 128))
    """

    keep: float
    values: int = 2
    size: int | None = None
    norm: ClassVar[str] = "l0"

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _check.whole("values", self.values, least=2))
        object.__setattr__(self, "keep", _check.between("keep", self.keep, 0, 1))
        if self.share <= Fraction(1, self.values):
            raise InvalidInput(f"keep must be above 1 / values ({1 / self.values:g}), got {self.keep:g}")
        if self.size is not None:
            object.__setattr__(self, "size", _check.whole("size", self.size, least=1))

    @property
    def share(self) -> Fraction:
        """`keep` as an exact fraction."""
        return Fraction(repr(self.keep))

    @property
    def draw(self) -> Draw:
        return Replace(int(self.share * 2**64), self.values)

    @property
    def deviation(self) -> float:
        return sqrt((1 - self.keep) / 6)

    @property
    def drawing_error(self) -> float:
        """64 random bits meet `keep` up to 2^-64, and each of the other values up to 2^-64."""
        return (self.size or LARGEST_INPUT) * self.values * 2.0**-64

    @property
    def grid(self) -> tuple[float, float | None] | None:
        return 1 / (self.values - 1), 1.0

    @property
    def thresholds(self) -> Sequence[Fraction]:
        return _thresholds(self.share, self.values, min(self.size or _LARGEST_RADIUS, _LARGEST_RADIUS))


@lru_cache(maxsize=16)
def _thresholds(keep: Fraction, values: int, largest: int) -> tuple[Fraction, ...]:
    """The probability p* that must be exceeded for each radius, by the Neyman-Pearson lemma.

    Let x and x' differ in r coordinates. A noisy point z that agrees with x in i of them and with x' in j of them is
    (keep / other) ** (i - j) times as likely under x as under x'. So only t = i - j matters, and its distribution under
    x' is that of -t under x. The worst classifier gives the class to the largest t first. p* is the probability under x
    that it has given to the class when the class reaches 1/2 under x'.
    """
    other = (1 - keep) / (values - 1)
    scale = keep.denominator * other.denominator
    step = [int(part * scale) for part in (other, (values - 2) * other, keep)]  # t = -1, 0, 1, all times `scale`
    distribution, total = [1], 1  # of t = -r, ..., r, times `total`
    found = [Fraction(1, 2)]
    for r in range(1, largest + 1):
        longer = [0] * (2 * r + 1)
        for shift, weight in enumerate(step):
            for t, mass in enumerate(distribution):
                longer[t + shift] += weight * mass
        distribution, total = longer, total * scale
        p, left = Fraction(0), Fraction(total, 2)
        for there, here in zip(distribution, reversed(distribution), strict=True):  # from t = r down
            if there >= left:
                p += here * left / there
                break
            p, left = p + here, left - there
        threshold = max(p / total, found[-1])
        if 1 - threshold < _SMALLEST_REST:
            break
        found.append(threshold)
    return tuple(found)

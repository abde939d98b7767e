"""Noises whose radius is a number of changes (l0).

Ablation (Levine & Feizi 2020) and discrete noise (Lee et al. 2019). Their thresholds are exact
fractions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import prod, sqrt
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noises.base import (
    LARGEST_INPUT,
    Marked,
    Noise,
    Numbers,
    OwnDraw,
    Shape,
    checked_size,
)


def next_above(value: Fraction) -> float:
    """The smallest floating-point number that is larger than an exact value.

    >>> next_above(Fraction(1, 2)) > 0.5
    True
    """
    number = float(value)  # the nearest one, so no other number lies between the two
    return number if Fraction(number) > value else float(np.nextafter(number, np.inf))


class SteppedNoise(Noise):
    """Base of noises whose radius is a whole number with a threshold for the probability."""

    @property
    @abstractmethod
    def thresholds(self) -> Sequence[Fraction]:
        """The exact probability that must be exceeded for each radius 0, 1, 2, ...

        The values never decrease, and the first one is 1/2.
        """

    def radius(self, p: ArrayLike) -> Numbers:
        steps = np.searchsorted(_needed(self), _check.probabilities("p", p), side="right")
        return np.asarray(steps - 1.0)[()]

    def probability(self, radius: ArrayLike) -> Numbers:
        """The smallest p that proves this radius; 1 for a radius that no probability proves."""
        needed = np.append(_needed(self), 1.0)
        steps = np.ceil(np.maximum(np.asarray(radius, float), 0))
        return needed[np.minimum(steps, len(needed) - 1).astype(int)][()]


@lru_cache(maxsize=64)
def _needed(noise: SteppedNoise) -> NDArray[np.float64]:
    """The smallest probability that proves each radius."""
    return np.array([next_above(threshold) for threshold in noise.thresholds])


@dataclass(frozen=True)
class Ablation(Marked, SteppedNoise):
    """Keep some random pixels and mark all others as absent.

    No change of rho pixels matters if p > 3/2 - C(d - rho, k) / C(d, k). The fraction is the
    probability that none of the changed pixels is kept. The classifier gets twice the channels: x
    and 1 - x for a kept pixel, 0 and 0 for an absent one.

    Args:
        keep: How many pixels k are kept.
        size: How many pixels d an input has. `certify` takes it from the data.

    >>> noise = Ablation(45, size=784)
    >>> float(noise.radius(1.0)), round(float(noise.probability(1)), 6)
    (11.0, 0.557398)
    """

    keep: int
    size: int | None = None
    norm: ClassVar[str] = "l0 of pixels"
    deviation = 0.0

    def __post_init__(self) -> None:
        _check.fields(self, _check.whole, "keep", least=1)
        _check.fields(self, checked_size, "size")
        if self.size is not None and self.size < self.keep:
            raise InvalidInput(
                "keep-too-large",
                "keep must be at most the number of pixels ({size}), got {keep}",
                size=self.size,
                keep=self.keep,
            )

    @property
    def drawing_error(self) -> float:
        """Two of the 64-bit keys that choose the pixels are equal with at most this probability."""
        return self.known_size**2 / 2.0**65

    @property
    def thresholds(self) -> Sequence[Fraction]:
        d = self.known_size
        k = self.keep
        values = [Fraction(1, 2)]
        untouched = Fraction(1)  # C(d - rho, k) / C(d, k)
        for rho in range(1, d + 1):
            untouched *= Fraction(max(d - rho + 1 - k, 0), d - rho + 1)
            if untouched <= Fraction(1, 2):
                break
            values.append(Fraction(3, 2) - untouched)
        return values

    def largest_probability(self, radius: ArrayLike, q: ArrayLike) -> Numbers:
        """U_r(q) = q + 1 - C(d - r, k) / C(d, k): a set changes only where a changed pixel is
        kept.
        """
        kept_out = _kept_out(self.known_size, self.keep)
        changed = np.ceil(np.minimum(np.asarray(radius, float), self.known_size)).astype(int)
        return np.minimum(_check.probabilities("q", q) + 1 - kept_out[changed], 1.0)

    def certified_change(self, limit: str) -> str:
        return f"change of at most {limit} pixels"

    def for_shape(self, shape: Shape) -> Self:
        return self.for_size(prod(shape[1:] if len(shape) >= 3 else shape))


@lru_cache(maxsize=64)
def _kept_out(pixels: int, keep: int) -> NDArray[np.float64]:
    """C(d - r, k) / C(d, k) for r = 0 ... d: the probability that no changed pixel is kept."""
    left = np.arange(pixels, 0, -1)  # d, d - 1, ..., 1
    return np.cumprod(np.append(1.0, np.maximum(left - keep, 0) / left))


_LARGEST_RADIUS = 256
"""Radii with thresholds of their own."""
_LARGEST_PROVABLE = 1 - Fraction(1, 10**10)
"""Nobody draws enough samples to prove a larger probability."""


@dataclass(frozen=True)
class Discrete(OwnDraw, SteppedNoise):
    """Keep each value with probability `keep`, else replace it by another value at random.

    All other values are equally likely. Inputs consist of the values 0, 1 / (values - 1), ..., 1:
    bits for two values, 8-bit images for 256.

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
        _check.fields(self, _check.whole, "values", least=2)
        _check.fields(self, _check.between, "keep", low=0, high=1)
        _check.fields(self, checked_size, "size")
        if self.share <= Fraction(1, self.values):
            raise InvalidInput(
                "keep-too-small",
                "keep must be above 1 / values ({least:g}), got {keep:g}",
                least=1 / self.values,
                keep=self.keep,
            )

    @property
    def share(self) -> Fraction:
        """`keep` as an exact fraction."""
        return Fraction(repr(self.keep))

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
        largest = min(self.size or _LARGEST_RADIUS, _LARGEST_RADIUS)
        return _thresholds(self.share, self.values, largest)


@lru_cache(maxsize=16)
def _thresholds(keep: Fraction, values: int, largest: int) -> tuple[Fraction, ...]:
    """The probability p* that must be exceeded for each radius, by the Neyman-Pearson lemma.

    Let x and x' differ in r coordinates. A noisy point z that agrees with x in i of them and with
    x' in j of them is (keep / other) ** (i - j) times as likely under x as under x'. So only the
    difference t = i - j matters, and its distribution under x' is that of -t under x. The worst
    classifier gives the class to the largest t first. p* is the probability under x that it has
    given to the class when the class reaches 1/2 under x'.
    """
    other = (1 - keep) / (values - 1)
    scale = keep.denominator * other.denominator
    # One coordinate changes t by -1, 0 or 1 with these probabilities, times `scale`.
    steps = [int(p * scale) for p in (other, (values - 2) * other, keep)]
    distribution = np.array([1], object)  # of t = -r, ..., r, times `total`; exact integers
    total = 1
    thresholds = [Fraction(1, 2)]
    for _ in range(largest):
        distribution = np.convolve(distribution, np.array(steps, object))
        total *= scale
        threshold = max(_threshold(distribution, total), thresholds[-1])
        if threshold > _LARGEST_PROVABLE:
            break
        thresholds.append(threshold)
    return tuple(thresholds)


def _threshold(distribution: NDArray[np.object_], total: int) -> Fraction:
    """p* for one radius, from the distribution of t under x; both are counts out of `total`."""
    p = Fraction(0)
    rest = Fraction(total, 2)  # what the class lacks to reach 1/2 under x'
    # From the largest t down: its counts under x' and under x.
    for under_changed, under_x in zip(distribution, reversed(distribution), strict=True):
        if under_changed >= rest:
            crossing: Fraction = p + under_x * rest / under_changed
            return crossing / total
        p += under_x
        rest -= under_changed
    raise AssertionError("the counts add up to the total")

"""What a noise is: how an input is randomised, and which radius a probability proves.

Everything else (sample map, plans, coverage, replay, certificates) needs of a noise only `radius`, `probability` and
`norm`. The sampler needs only `draw`, a description without torch that every stream knows how to draw.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from smoothcert import _check
from smoothcert._registry import Recorded
from smoothcert.errors import InvalidInput

LARGEST_INPUT = 2**22
"""Numbers of an input up to which `drawing_error` holds for a noise that is not bound to a size."""
CELL = 2.0**-31
"""How far the probability beyond a threshold in one coordinate is from that of the theorem, at most, for numbers that
are made of 31 random bits or more and are rounded away from 0."""
MARGIN = 16 * float(np.finfo(float).eps)
"""A formula of a few floating-point operations is exact to a few units in the last place. Sixteen cover it."""


def dashed(name: str) -> str:
    """The name of a class for the command line.

    >>> dashed("GridGaussian")
    'grid-gaussian'
    """
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")


def down(value: ArrayLike) -> Any:
    """A computed value, rounded down by more than its rounding error."""
    value = np.asarray(value, float)
    return (value * (1 - np.copysign(MARGIN, value)))[()]


def half_difference(scale: float, a: Any, b: Any) -> Any:
    """scale / 2 * (a - b), rounded down. Both terms round on their own, also where they nearly cancel."""
    with np.errstate(invalid="ignore"):  # infinity minus infinity proves nothing
        difference = a - b
        rounding = MARGIN * (np.abs(a) + np.abs(b))
        return (scale / 2 * np.where(np.isinf(difference), difference, difference - rounding))[()]


def checked_size(name: str, size: Any) -> int | None:
    """The size that a noise is bound to; None for a noise that gets it from the data."""
    return None if size is None else _check.whole(name, size, least=1)


Law = Literal["normal", "uniform", "laplace"]
LAWS: tuple[Law, ...] = ("normal", "uniform", "laplace")

VERSION = 2
"""Counts up with every change of what the streams draw for the same seed. A run is only continued with its own."""
OUTWARD = 1 + 2.0**-20
"""Normal and Laplace noise is drawn with a scale that is larger by this factor.

It is more than float32 can lose on the way from random bits to a number, so noise is never smaller than it is said to
be: a class whose votes are on one side of a threshold is not made more likely by rounding.
"""


class Draw:
    """Base of all descriptions of drawing."""

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a noisy input.

        Args:
            shape: The shape of an input.
        """
        return shape


@dataclass(frozen=True)
class Additive(Draw):
    """x + scale * z, where every coordinate of z is drawn independently from `law`.

    normal: mean 0, variance 1. uniform: on [-1, 1]. laplace: density exp(-|z|) / 2.
    """

    law: Law
    scale: float

    def __post_init__(self) -> None:
        _check.one_of("law", self.law, LAWS)
        _check.fields(self, _check.between, "scale", low=0)

    @property
    def drawn_scale(self) -> float:
        """The scale in float32 arithmetic; see `OUTWARD`. Uniform noise stays in its cube."""
        return self.scale * (1 if self.law == "uniform" else OUTWARD)


@dataclass(frozen=True)
class AdditiveGrid(Draw):
    """step * (x / step + k), where every coordinate of k is an independent, rounded normal number.

    k is an integer with the probabilities of round(deviation / step * z). The sum is computed on integers, so it is
    exact.
    """

    deviation: float
    step: float


class OwnDraw(Draw):
    """Base of noises that describe their drawing themselves, because no other noise is drawn like them."""

    @property
    def draw(self) -> Self:
        return self


class Marked(OwnDraw):
    """Base of noises that keep some pixels: a kept value x becomes the pair (x, 1 - x), an absent one (0, 0).

    The first axis is twice as long. A pixel is a position of the last axes; the first axis of an input with three axes
    holds its channels.
    """

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (2 * (shape[0] if shape else 1), *shape[1:])


class Noise(Recorded, ABC):
    """Base of all smoothing noises. A subclass is a frozen dataclass, so that it can be recorded and compared."""

    norm: ClassVar[str]
    """What the radius measures, in a word or two, as in "l2"; shown on axes and in tables. See `certified_change`."""
    breaks_ties: ClassVar[bool] = False
    """Whether its radius counts votes one by one, so that it matters which of two classes with equal votes wins."""
    map_peaks_at_ends: ClassVar[bool] = False
    """Whether the sample map has its maximum over every interval of p at one of its ends, once it is above 0."""

    @property
    def short(self) -> str:
        """The noise as on the command line, as in "grid-gaussian:0.25"; its full name if it has other settings.

        The size comes from the data, so it is left out. Default values at the end are left out, too.
        """
        settings = [field for field in fields(self) if field.name != "size"]  # type: ignore[arg-type]
        while settings and getattr(self, settings[-1].name) == settings[-1].default:
            settings.pop()
        values = [getattr(self, field.name) for field in settings]
        if not values or not all(type(value) in (int, float) for value in values):
            return str(self)
        return f"{dashed(type(self).__name__)}:{','.join(str(value).removesuffix('.0') for value in values)}"

    @property
    @abstractmethod
    def draw(self) -> Draw:
        """How the noise is drawn."""

    @property
    @abstractmethod
    def deviation(self) -> float:
        """The standard deviation of each coordinate: which trained weights fit, and how strong the noise is."""

    @abstractmethod
    def radius(self, p: ArrayLike) -> Any:
        """The radius that is proved when the class has a probability of at least p, rounded down.

        A negative value (or NaN) means that nothing is proved. The function never decreases; it may have steps.

        Args:
            p: Lower bounds on the probability of the class, between 0 and 1.
        """

    @abstractmethod
    def probability(self, radius: ArrayLike) -> Any:
        """The smallest p that proves this radius.

        Args:
            radius: Radii of at least 0.
        """

    def radius_between(self, lower: ArrayLike, upper: ArrayLike) -> Any:
        """The radius that is proved by bounds on two probabilities, rounded down.

        A noise that has no such theorem keeps this default, which does not use `upper`.

        Args:
            lower: Lower bounds on the probability of the class.
            upper: Upper bounds on the probability of every other class.
        """
        return self.radius(lower)

    def trade_off(self, radius: float, b: ArrayLike) -> tuple[Any, Any]:
        """A concave bound h(b) on how likely a class A may be that does not beat B everywhere within a radius.

        Let A and B have the probabilities a and b at the input. If A does not beat B after some change of at most
        this radius, then a <= h(b). Bets on the runner-up need this curve. A noise without one keeps this default.

        Args:
            radius: A radius of at least 0.
            b: Probabilities of B, above 0 and below 1.

        Returns:
            h(b), which never decreases, and its slope h'(b), both to a relative accuracy of 1e-13.
        """
        raise InvalidInput(
            f"there are no bets on the runner-up under {self}, because this noise supplies no trade-off curve"
        )

    def other_radii(self, radius: ArrayLike, shape: tuple[int, ...]) -> dict[str, Any]:
        """Radii in other norms that follow from a radius, by norm.

        Args:
            radius: Certified radii.
            shape: The shape of an input.
        """
        return {}

    @property
    def drawing_error(self) -> float:
        """The largest distance between the probability of a class and that under the noise of the theorem.

        For noises that are drawn on a grid, this holds for every classifier. For noises in floating point, it holds
        for a threshold in one coordinate: a classifier that looks at the last bits sees more (`docs/soundness.md`).
        `certified_radius` and `needed_probability` charge it to the bounds.
        """
        return 0.0

    @property
    def outcomes(self) -> int | None:
        """How many samples there are in all, where they can be enumerated; sample i is then outcome i. Else None."""
        return None

    @property
    def grid(self) -> tuple[float, float | None] | None:
        """Inputs must be multiples of the first number, from 0 up to the second one; None if they may be anything."""
        return None

    def certified_change(self, limit: str) -> str:
        """Which changes of an input cannot alter the answer, in words that follow "no".

        The default is about any change of the input, measured in an lp norm; in l0, the limit itself is allowed. If
        `norm` is no lp norm, only one kind of change is certified, and the default can only name it. A noise of this
        kind should say it in its own words.

        Args:
            limit: The radius in words, as in "r" or "0.25".
        """
        if not re.fullmatch(r"l(\d+|inf)", self.norm):
            return f"change of one kind ({self.norm}) that is smaller than {limit}"
        steps = "" if self.grid is None else f" in steps of {_step_in_words(self.grid[0])}"
        if self.norm == "l0":
            return f"change of at most {limit} values{steps}"
        return f"change of the input{steps} that is smaller than {limit} in {self.norm}"

    def certified_radius(self, lower: ArrayLike, upper: ArrayLike | None = None) -> Any:
        """The radius that proved bounds give after `drawing_error` is charged to them.

        Args:
            lower: Lower bounds on the probability of the class, as it was drawn.
            upper: Upper bounds on the probability of every other class, where the plan has them.
        """
        # A bound may be a rounded quotient (plan `Exact`), and charging the error rounds again. One step outward covers
        # both; near p = 1/2, the margin of the radius alone would not.
        low = np.maximum(np.nextafter(np.asarray(lower, float) - self.drawing_error, -1), 0)
        radius = np.asarray(self.radius(low), float)
        if upper is not None:
            high = np.minimum(np.nextafter(np.asarray(upper, float) + self.drawing_error, 2), 1)
            radius = np.fmax(radius, self.radius_between(low, high))
        return radius[()]

    def needed_probability(self, radius: float) -> float:
        """The probability, as it is drawn, from which on more than a radius is proved, with `drawing_error` charged.

        It is rounded up. For radii with steps, it is where the next step begins; 1 if there is none.

        Args:
            radius: A radius of at least 0.
        """
        low = min(float(self.probability(radius)) + self.drawing_error, 1.0)
        if float(self.certified_radius(low)) > radius:
            return low
        high, step = low, float(np.finfo(float).eps)
        while high < 1 and not float(self.certified_radius(high)) > radius:
            low, high, step = high, min(high * (1 + step), 1.0), 2 * step
        if not float(self.certified_radius(high)) > radius:
            return 1.0
        while low < (middle := (low + high) / 2) < high:
            low, high = (
                (low, middle) if float(self.certified_radius(middle)) > radius else (middle, high)
            )
        return high

    def for_shape(self, shape: tuple[int, ...]) -> Self:
        """This noise for inputs of one shape. A noise that does not depend on the size returns itself.

        Args:
            shape: The shape of an input.
        """
        return self.for_size(prod(shape))

    def for_size(self, size: int) -> Self:
        """This noise for inputs of one size.

        Args:
            size: How many numbers (for `Ablation`: pixels) an input has.

        Raises:
            InvalidInput: The noise is bound to another size.
        """
        if "size" not in {field.name for field in fields(self)}:  # type: ignore[arg-type]
            if size > LARGEST_INPUT:
                raise InvalidInput(
                    f"inputs may have at most {LARGEST_INPUT:,} numbers, got {size:,}"
                )
            return self
        if self.size not in (None, size):  # type: ignore[attr-defined]
            raise InvalidInput(f"{self} is for inputs of size {self.size}, got {size}")  # type: ignore[attr-defined]
        return replace(self, size=size)  # type: ignore[type-var]

    def same_kind(self, other: Noise) -> bool:
        """Whether two noises are the same apart from the size that they are bound to.

        Args:
            other: Another noise.
        """
        return type(self) is type(other) and vars(self) | {"size": None} == vars(other) | {
            "size": None
        }


def _step_in_words(step: float) -> str:
    """The step of a grid, as in "1/255 (8-bit images in [0, 1])"."""
    parts = round(1 / step)
    if parts < 2 or abs(parts * step - 1) > 1e-9:
        return f"{step:g}"
    return f"1/{parts} (8-bit images in [0, 1])" if parts == 255 else f"1/{parts}"

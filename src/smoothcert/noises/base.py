"""What a noise is: how an input is randomised, and which radius a probability proves.

Everything else (sample map, plans, coverage, replay, certificates) needs of a noise only `radius`,
`probability` and `norm`. The sampler needs only `draw`, a description without torch that every
stream knows how to draw.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import Field, dataclass, fields, replace
from math import prod
from typing import Any, ClassVar, Literal, Self, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from smoothcert import _check
from smoothcert._registry import Recorded
from smoothcert.errors import InvalidInput

Numbers: TypeAlias = Any
"""A number, or an array of numbers: one for each of many inputs."""
Shape: TypeAlias = tuple[int, ...]
"""The shape of an input."""

LARGEST_INPUT = 2**22
"""Numbers of an input up to which `drawing_error` holds for a noise that is not bound to a size."""
CELL = 2.0**-31
"""The largest error of the probability beyond a threshold in one coordinate, for numbers that are
made of 31 random bits or more and are rounded away from 0."""
MARGIN = 16 * float(np.finfo(float).eps)
"""Sixteen units in the last place cover the error of a formula of a few operations."""


def dashed(name: str) -> str:
    """The name of a class for the command line.

    >>> dashed("GridGaussian")
    'grid-gaussian'
    """
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")


def down(value: ArrayLike) -> Numbers:
    """A computed value, rounded down by more than its rounding error."""
    value = np.asarray(value, float)
    return (value * (1 - np.copysign(MARGIN, value)))[()]


def bisect(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Two neighbouring floating-point numbers: something does not hold at the first, and holds at
    the second.
    """
    while True:
        middle = (low + high) / 2
        if not low < middle < high:
            return low, high
        if holds(middle):
            high = middle
        else:
            low = middle


def bisect_each(
    holds: Callable[[Numbers], Numbers], low: Numbers, high: Numbers, *, halvings: int
) -> Numbers:
    """The largest numbers between `low` and `high` up to which something holds, rounded down.

    Args:
        holds: Whether it holds for each of these numbers.
        low: Where it holds.
        high: Where it need not hold.
        halvings: How often each interval is halved.
    """
    for _ in range(halvings):
        middle = (low + high) / 2
        held = holds(middle)
        low = np.where(held, middle, low)
        high = np.where(held, high, middle)
    return low


def half_difference(scale: float, a: Numbers, b: Numbers) -> Numbers:
    """scale / 2 * (a - b), rounded down.

    Each term has a rounding error of its own, which matters where they nearly cancel.
    """
    with np.errstate(invalid="ignore"):  # infinity minus infinity proves nothing
        difference = a - b
        rounding = MARGIN * (np.abs(a) + np.abs(b))
        return (scale / 2 * np.where(np.isinf(difference), difference, difference - rounding))[()]


def checked_size(name: str, size: Any) -> int | None:
    """The size that a noise is bound to; None for a noise that gets it from the data."""
    return None if size is None else _check.whole(name, size, least=1)


Law = Literal["normal", "uniform", "laplace"]

VERSION = 2
"""The version of what the streams draw for a seed. A run is only continued with its own version."""
OUTWARD = 1 + 2.0**-20
"""Normal and Laplace noise is drawn with a scale that is larger by this factor.

It is more than float32 can lose on the way from random bits to a number, so noise is never smaller
than it is said to be: a class whose votes are on one side of a threshold is not made more likely by
rounding.
"""


class Draw:
    """Base of all descriptions of drawing."""

    def output_shape(self, shape: Shape) -> Shape:
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
        _check.one_of("law", self.law, get_args(Law))
        _check.fields(self, _check.between, "scale", low=0)

    @property
    def drawn_scale(self) -> float:
        """The scale in float32 arithmetic; see `OUTWARD`. Uniform noise stays in its cube."""
        return self.scale * (1 if self.law == "uniform" else OUTWARD)


@dataclass(frozen=True)
class AdditiveGrid(Draw):
    """step * (x / step + k), where every coordinate of k is an independent, rounded normal number.

    k is an integer with the probabilities of round(deviation / step * z). The sum is computed on
    integers, so it is exact.
    """

    deviation: float
    step: float


class OwnDraw(Draw):
    """Base of noises that are their own description, because no other noise is drawn like them."""

    @property
    def draw(self) -> Self:
        return self


class Marked(OwnDraw):
    """Base of noises that keep some pixels and mark the others as absent.

    A kept value x becomes the pair (x, 1 - x), an absent one becomes (0, 0). The first axis is
    twice as long. A pixel is a position of the last axes; the first axis of an input with three
    axes holds its channels.
    """

    size: int | None

    @property
    def known_size(self) -> int:
        """The size that the data has, or that the user gave."""
        if self.size is None:
            raise InvalidInput(
                "no-size",
                "{noise} needs the size of an input: give size, as in size=784",
                noise=self,
            )
        return self.size

    def output_shape(self, shape: Shape) -> Shape:
        return (2 * (shape[0] if shape else 1), *shape[1:])


class Noise(Recorded, ABC):
    """Base of all smoothing noises.

    A subclass is a frozen dataclass, so that it can be recorded and compared.
    """

    norm: ClassVar[str]
    """What the radius measures, in a word or two for tables, as in "l2"; see `certified_change`."""
    breaks_ties: ClassVar[bool] = False
    """Whether it matters which of two classes with equal votes wins, because votes are counted."""
    map_peaks_at_ends: ClassVar[bool] = False
    """Whether a sample map above 0 has its maximum over every interval of p at one of its ends."""

    @property
    def short(self) -> str:
        """The noise as on the command line, as in "grid-gaussian:0.25".

        The size comes from the data, so it is left out, and so are default values at the end. A
        noise whose other settings are not numbers is shown with its full name.
        """
        settings = [field for field in _fields(self) if field.name != "size"]
        while settings and getattr(self, settings[-1].name) == settings[-1].default:
            settings.pop()
        values = [getattr(self, field.name) for field in settings]
        if not values or not all(type(value) in (int, float) for value in values):
            return str(self)
        numbers = ",".join(str(value).removesuffix(".0") for value in values)
        return f"{dashed(type(self).__name__)}:{numbers}"

    @property
    @abstractmethod
    def draw(self) -> Draw:
        """How the noise is drawn."""

    @property
    @abstractmethod
    def deviation(self) -> float:
        """The standard deviation of each coordinate, by which trained weights are chosen."""

    @abstractmethod
    def radius(self, p: ArrayLike) -> Numbers:
        """The radius that is proved when the class has a probability of at least p, rounded down.

        A negative value (or NaN) means that nothing is proved. The function never decreases; it may
        have steps.

        Args:
            p: Lower bounds on the probability of the class, between 0 and 1.
        """

    @abstractmethod
    def probability(self, radius: ArrayLike) -> Numbers:
        """The smallest p that proves this radius.

        Args:
            radius: Radii of at least 0.
        """

    def radius_between(self, lower: ArrayLike, upper: ArrayLike) -> Numbers:
        """The radius that is proved by bounds on two probabilities, rounded down.

        A noise that has no such theorem keeps this default, which does not use `upper`.

        Args:
            lower: Lower bounds on the probability of the class.
            upper: Upper bounds on the probability of every other class.
        """
        return self.radius(lower)

    def trade_off(self, radius: Numbers, b: ArrayLike) -> tuple[Numbers, Numbers]:
        """The trade-off curve h between the probabilities of two classes, which is concave.

        Let A and B have the probabilities a and b at the input. If A does not beat B after some
        change of at most this radius, then a <= h(b). Bets on the runner-up need this curve. A
        noise without one keeps this default.

        Args:
            radius: A radius of at least 0, or an array of them.
            b: Probabilities of B, above 0 and below 1.

        Returns:
            h(b), which never decreases, and its slope h'(b), both to a relative accuracy of 1e-13.
        """
        raise InvalidInput(
            "no-trade-off",
            "there are no bets on the runner-up under {noise}, because this noise supplies no "
            "trade-off curve",
            noise=self,
        )

    def largest_probability(self, radius: ArrayLike, q: ArrayLike) -> Numbers:
        """U_r(q): the most that any set of probability q can get by a change of size r.

        Questions about the top k need it. It bounds one set under one change; `trade_off` bounds
        two classes together. A noise without it keeps this default.

        Args:
            radius: Radii r of at least 0.
            q: Probabilities at the input, from 0 to 1.

        Returns:
            U_r(q), to a relative accuracy of 1e-12. It never decreases in q or r.
        """
        raise InvalidInput(
            "no-largest-probability",
            "{noise} answers no question about the top k, because it does not say how probable a "
            "set can become by a change: ask for groups",
            noise=self,
        )

    def other_radii(self, radius: ArrayLike, shape: Shape) -> dict[str, Numbers]:
        """Radii in other norms that follow from a radius, by norm.

        Args:
            radius: Certified radii.
            shape: The shape of an input.
        """
        return {}

    @property
    def drawing_error(self) -> float:
        """How far the probability of a class can be from that under the noise of the theorem.

        For noises that are drawn on a grid, this holds for every classifier. For noises in floating
        point, it holds for a threshold in one coordinate: a classifier that looks at the last bits
        sees more (`docs/soundness.md`). `certified_radius` and `needed_probability` charge it to
        the bounds.
        """
        return 0.0

    @property
    def outcomes(self) -> int | None:
        """The number of possible samples, if sample i is outcome i of an enumeration; else None."""
        return None

    @property
    def grid(self) -> tuple[float, float | None] | None:
        """Which inputs are allowed: multiples of the first number, from 0 up to the second one.

        None if inputs may have any values.
        """
        return None

    def certified_change(self, limit: str) -> str:
        """Which changes of an input cannot alter the answer, in words that follow "no".

        The default is about any change of the input, measured in an lp norm; in l0, the limit
        itself is allowed. If `norm` is no lp norm, only one kind of change is certified, and the
        default can only name it. A noise of this kind should say it in its own words.

        Args:
            limit: The radius in words, as in "r" or "0.25".
        """
        if not re.fullmatch(r"l(\d+|inf)", self.norm):
            return f"change of one kind ({self.norm}) that is smaller than {limit}"
        steps = "" if self.grid is None else f" in steps of {_step_in_words(self.grid[0])}"
        if self.norm == "l0":
            return f"change of at most {limit} values{steps}"
        return f"change of the input{steps} that is smaller than {limit} in {self.norm}"

    def certified_radius(self, lower: ArrayLike, upper: ArrayLike | None = None) -> Numbers:
        """The radius that proved bounds give after `drawing_error` is charged to them.

        Args:
            lower: Lower bounds on the probability of the class, as it was drawn.
            upper: Upper bounds on the probability of every other class, where the plan has them.
        """
        # A bound may be a rounded quotient (plan `Exact`), and charging the error rounds again. One
        # step outward covers both; near p = 1/2, the margin of the radius alone would not.
        low = np.maximum(np.nextafter(np.asarray(lower, float) - self.drawing_error, -1), 0)
        radius = np.asarray(self.radius(low), float)
        if upper is not None:
            high = np.minimum(np.nextafter(np.asarray(upper, float) + self.drawing_error, 2), 1)
            radius = np.fmax(radius, self.radius_between(low, high))
        return radius[()]

    def needed_probability(self, radius: float) -> float:
        """The smallest probability that proves more than a radius, rounded up.

        It is the probability under the noise as it is drawn, so `drawing_error` is charged. For a
        radius with steps, it is where the next step begins; 1 if there is none.

        Args:
            radius: A radius of at least 0.
        """

        def proves_more(p: float) -> bool:
            return float(self.certified_radius(p)) > radius

        low = min(float(self.probability(radius)) + self.drawing_error, 1.0)
        if proves_more(low):
            return low
        high = low
        step = float(np.finfo(float).eps)
        while high < 1 and not proves_more(high):
            low = high
            high = min(high * (1 + step), 1.0)
            step *= 2
        if not proves_more(high):
            return 1.0
        return bisect(proves_more, low, high)[1]

    def for_shape(self, shape: Shape) -> Self:
        """This noise for inputs of one shape; itself if it does not depend on the size.

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
        if "size" not in {field.name for field in _fields(self)}:
            if size > LARGEST_INPUT:
                raise InvalidInput(
                    "input-too-large",
                    "inputs may have at most {most:,} numbers, got {size:,}",
                    most=LARGEST_INPUT,
                    size=size,
                )
            return self
        bound: int | None = self.size  # type: ignore[attr-defined]
        if bound not in (None, size):
            raise InvalidInput(
                "other-size",
                "{noise} is for inputs of size {bound}, got {size}",
                noise=self,
                bound=bound,
                size=size,
            )
        return replace(self, size=size)  # type: ignore[type-var]

    def same_kind(self, other: Noise) -> bool:
        """Whether two noises are the same apart from the size that they are bound to.

        Args:
            other: Another noise.
        """
        if type(self) is not type(other):
            return False
        return vars(self) | {"size": None} == vars(other) | {"size": None}


def _fields(noise: Noise) -> tuple[Field[Any], ...]:
    return fields(noise)  # type: ignore[arg-type]


def _step_in_words(step: float) -> str:
    """The step of a grid, as in "1/255 (8-bit images in [0, 1])"."""
    parts = round(1 / step)
    if parts < 2 or abs(parts * step - 1) > 1e-9:
        return f"{step:g}"
    if parts == 255:
        return "1/255 (8-bit images in [0, 1])"
    return f"1/{parts}"

"""Descriptions of drawing, without torch: what a stream needs to know to make noisy inputs.

`smoothcert.sampling.drawing` has one class per description that carries it out. A description of your own needs such a
class, too: see `smoothcert.sampling.drawing.draws`. A noise can be its own description (`OwnDraw`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from smoothcert import _check

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
        object.__setattr__(self, "scale", _check.between("scale", self.scale, 0))

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

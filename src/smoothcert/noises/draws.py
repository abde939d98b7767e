"""Descriptions of drawing, without torch: what a stream needs to know to make noisy inputs.

`smoothcert.sampling.drawing` has one class per description that carries it out. A description of your own needs such a
class, too: see `smoothcert.sampling.drawing.draws`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from smoothcert import _check
from smoothcert.errors import InvalidInput

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


@dataclass(frozen=True)
class CommonShift(Draw):
    """x + scale * z with one normal number z for all coordinates."""

    scale: float

    @property
    def drawn_scale(self) -> float:
        """The scale in float32 arithmetic; see `OUTWARD`."""
        return self.scale * OUTWARD


@dataclass(frozen=True)
class CircularShift(Draw):
    """The last two axes are shifted circularly by two independent, rounded normal numbers of this deviation."""

    deviation: float

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) < 2:
            raise InvalidInput(f"only images can be shifted, but the inputs have the shape {shape}")
        return shape


@dataclass(frozen=True)
class Split(Draw):
    """Each coordinate becomes the centre of its cell in a partition of [0, 1] with a random offset.

    The cells have the width 2 * scale. Their offsets are independent and uniform on [0, 2 * scale].

    Args:
        scale: Half of the width of a cell.
        levels: If it is above 0, sample i uses offset i of the 2 * scale * levels offsets that multiples of 1 / levels
            can tell apart, shifted by a constant for each coordinate. Nothing is random then.
    """

    scale: float
    levels: int = 0


class Marked(Draw):
    """Base of descriptions that keep some pixels: a kept value x becomes the pair (x, 1 - x), an absent one (0, 0).

    The first axis is twice as long.
    """

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (2 * (shape[0] if shape else 1), *shape[1:])


@dataclass(frozen=True)
class Keep(Marked):
    """Keep `keep` random pixels and mark the others as absent.

    A pixel is a position of the last axes; the first axis of an input with three axes holds its channels.
    """

    keep: int


@dataclass(frozen=True)
class Window(Marked):
    """Keep the pixels of one window and mark the others as absent. Nothing is random: sample i has place i.

    Windows that reach beyond the edge go on at the other side. Places are numbered row by row.

    Args:
        height: The height of the window; 0 for that of the picture, and then only its columns count as places.
        width: The width of the window.
    """

    height: int
    width: int


@dataclass(frozen=True)
class Replace(Draw):
    """Replace each value with probability 1 - keep by one of the other values 0, 1/(values - 1), ..., 1.

    Args:
        threshold: A value is kept if 64 random bits, as an integer, are below this.
        values: How many values there are.
    """

    threshold: int
    values: int

"""Splitting noise and its l1 radius (Levine & Feizi 2021), random or enumerated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noises.base import Noise
from smoothcert.noises.draws import Draw, Split
from smoothcert.noises.uniform import LipschitzNoise


@dataclass(frozen=True)
class Splitting(LipschitzNoise):
    """Every coordinate becomes the centre of its cell in a randomly placed partition: R = scale * (2p - 1) in l1.

    The cells have the width 2 * scale, cut at 0 and 1. With `levels`, inputs must be multiples of 1 / levels. One
    offset then places the partitions of all coordinates, and only 2 * scale * levels offsets differ. The plan `Exact`
    counts all of them, so its certificates hold without alpha.

    Args:
        scale: Half of the width of a cell, in the units of the inputs.
        levels: 0 for random splitting; 255 to enumerate the offsets for 8-bit images.

    >>> Splitting(0.5, levels=255).outcomes
    255
    """

    scale: float
    levels: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _check.between("scale", self.scale, 0))
        object.__setattr__(self, "levels", _check.whole("levels", self.levels))
        if self.levels and abs(2 * self.scale * self.levels - self._offsets) > 1e-6 * self._offsets:
            raise InvalidInput(
                f"2 * scale * levels must be a whole number, got {2 * self.scale * self.levels:g}: the nearest scale "
                f"is {self._offsets / (2 * self.levels):.10g}"
            )
        if self.levels:  # the exact scale of the offsets
            object.__setattr__(self, "scale", self._offsets / (2 * self.levels))

    @property
    def _offsets(self) -> int:
        return max(round(2 * self.scale * self.levels), 1)

    def tie_curve(self, radius: float, b: ArrayLike) -> tuple[Any, Any]:
        if self.levels:  # all offsets are counted, and none is drawn: there is nothing to bet on
            return Noise.tie_curve(self, radius, b)
        return super().tie_curve(radius, b)

    @property
    def drawing_error(self) -> float:
        return 0.0 if self.levels else super().drawing_error

    @property
    def draw(self) -> Draw:
        return Split(self.scale, self.levels)

    @property
    def outcomes(self) -> int | None:
        return self._offsets if self.levels else None

    @property
    def grid(self) -> tuple[float, float | None] | None:
        return (1 / self.levels, 1.0) if self.levels else None

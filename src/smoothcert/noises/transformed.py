"""Noise on top of a transformation of pictures: it certifies an interval of angles or zooms.

A transformation T(x, a) reads each pixel at another position: with the centre of the picture as 0
and positions as complex numbers, the pixel at z is read at z * m(a). `polar` gives modulus and
angle of m(a). Turning moves a position on a circle. It keeps a disk around the centre, which never
reads from outside of the picture. Zooming moves a position on a ray and keeps the whole picture.
Outside of it, its edges go on.

No single probability proves an angle, so these noises have no `radius(p)`: the plan `Walk` decides
radii of the noise below at many centres, which together cover the interval.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import pi
from typing import ClassVar, NoReturn, Self

from numpy.typing import ArrayLike

from smoothcert import _check
from smoothcert.errors import InvalidInput, either
from smoothcert.noises.base import Draw, Noise, Numbers


@dataclass(frozen=True)
class Transformed(Noise):
    """Base of transformations of pictures under a smoothing noise in l2.

    Args:
        noise: The noise that is added to transformed pictures.
        largest: No amount beyond this is certified.
    """

    noise: Noise
    largest: float
    unit: ClassVar[str]
    """The unit of an amount, as in "degrees"."""
    direction: ClassVar[complex]
    """Where a position moves when the amount grows or shrinks, relative to the position itself."""
    keeps_disk: ClassVar[bool]
    """Whether only a disk is kept that touches the shorter sides, and the rest is 0."""
    outside: ClassVar[str]
    """What is outside of the picture, in words."""
    largest_allowed: ClassVar[float]
    """`largest` must be below this."""

    def __post_init__(self) -> None:
        if not isinstance(self.noise, Noise) or self.noise.norm != "l2" or self.noise.grid:
            raise InvalidInput(
                "not-for-transformations",
                "{transformation} needs a noise in l2 that is not on a grid, as in {example}, got "
                "{noise}",
                transformation=type(self).__name__,
                example=either(f"{type(self).__name__}(Gaussian(0.5))", "--sigma 0.5"),
                noise=self.noise,
            )
        _check.fields(self, _check.between, "largest", low=0, high=self.largest_allowed)

    @abstractmethod
    def polar(self, amount: Numbers) -> tuple[Numbers, Numbers]:
        """Modulus and angle of m(a).

        Args:
            amount: The amounts a, as an array or a tensor.
        """

    @abstractmethod
    def path(self, centre: Numbers, end: Numbers) -> tuple[Numbers, Numbers]:
        """How far a position at distance 1 moves on the way from one amount to another, at most;
        and by how many radians its direction turns.

        Args:
            centre: The one amount.
            end: The other one.
        """

    @property
    def short(self) -> str:
        """The transformation as in Python, as in "Rotation(Gaussian(sigma=0.25), 30)"."""
        return f"{type(self).__name__}({self.noise!r}, {self.largest:g})"

    @property
    def title(self) -> str:
        """The name of the transformation alone, as in "rotation"."""
        return type(self).__name__.lower()

    @property
    def draw(self) -> Draw:
        return self.noise.draw

    @property
    def deviation(self) -> float:
        return self.noise.deviation

    @property
    def drawing_error(self) -> float:
        return self.noise.drawing_error

    def trade_off(self, radius: Numbers, b: ArrayLike) -> tuple[Numbers, Numbers]:
        """The curve of the noise, with a radius in l2."""
        return self.noise.trade_off(radius, b)

    def radius(self, p: ArrayLike) -> NoReturn:
        raise self._no_radius()

    def probability(self, radius: ArrayLike) -> NoReturn:
        raise self._no_radius()

    def for_size(self, size: int) -> Self:
        self.noise.for_size(size)  # this checks it: the noise itself does not depend on the size
        return self

    def certified_change(self, limit: str) -> str:
        return (
            f"{self.title} by at most {limit} {self.unit}, with bilinear interpolation, without "
            f"rounding to bytes, and with {self.outside},"
        )

    def _no_radius(self) -> InvalidInput:
        return InvalidInput(
            "needs-walk",
            "one probability proves no interval of {norm}: use `the plan Walk([...])|--method "
            "walk`",
            norm=self.norm,
        )


@dataclass(frozen=True)
class Rotation(Transformed):
    """Turn a picture about its centre by some degrees, and add the noise.

    Args:
        noise: The noise that is added to turned pictures, in l2.
        largest: The largest angle in degrees.

    >>> from smoothcert.noises import Gaussian
    >>> Rotation(Gaussian(0.25)).norm
    'rotation (degrees)'
    """

    largest: float = 30.0
    norm: ClassVar[str] = "rotation (degrees)"
    unit: ClassVar[str] = "degrees"
    direction: ClassVar[complex] = 1j
    keeps_disk: ClassVar[bool] = True
    outside: ClassVar[str] = "0 outside of the disk that is kept"
    largest_allowed: ClassVar[float] = 180.0

    def polar(self, amount: Numbers) -> tuple[Numbers, Numbers]:
        return 0 * amount + 1, -pi / 180 * amount

    def path(self, centre: Numbers, end: Numbers) -> tuple[Numbers, Numbers]:
        angle = pi / 180 * abs(end - centre)
        return angle, angle


@dataclass(frozen=True)
class Zoom(Transformed):
    """Enlarge or shrink a picture by some percent, and add the noise.

    Args:
        noise: The noise that is added to zoomed pictures, in l2.
        largest: The largest zoom in percent.
    """

    largest: float = 20.0
    norm: ClassVar[str] = "zoom (percent)"
    unit: ClassVar[str] = "percent"
    direction: ClassVar[complex] = 1
    keeps_disk: ClassVar[bool] = False
    outside: ClassVar[str] = "edges that go on outside of the picture"
    largest_allowed: ClassVar[float] = 100.0

    def polar(self, amount: Numbers) -> tuple[Numbers, Numbers]:
        return 1 / (1 + amount / 100), 0 * amount

    def path(self, centre: Numbers, end: Numbers) -> tuple[Numbers, Numbers]:
        return abs(1 / (1 + end / 100) - 1 / (1 + centre / 100)), 0 * centre


TRANSFORMATIONS = {"rotation": Rotation, "zoom": Zoom}
"""Transformations by their names on the command line."""

"""Normal noise in the parameter of a transformation: brightness and circular translation.

The certificate holds because two transformations in a row are the one whose parameter is the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smoothcert.noises.draws import CircularShift, CommonShift, Draw
from smoothcert.noises.gaussian import GaussianRadius
from smoothcert.noises.rounded_normal import thresholds


@dataclass(frozen=True)
class Brightness(GaussianRadius):
    """Add one normal number to all values, without clipping: R = sigma * Phi^-1(p) in units of intensity.

    No number of absolute value below R that is added to all values changes the answer.

    Args:
        sigma: The standard deviation, in the units of the inputs.
    """

    sigma: float
    norm: ClassVar[str] = "brightness"
    drawing_error = 2.0**-53  # float64 holds so many bits of the uniform number

    @property
    def draw(self) -> Draw:
        return CommonShift(self.sigma)

    def certified_change(self, limit: str) -> str:
        return f"change of all values by the same number, without clipping, that is smaller than {limit}"


@dataclass(frozen=True)
class Translation(GaussianRadius):
    """Shift images circularly by two rounded normal numbers: R = sigma * Phi^-1(p) in pixels.

    A shift by whole pixels followed by another one is the shift by their sum, and rounding commutes with adding whole
    numbers. So no circular shift by whole pixels of a Euclidean length below R changes the answer.

    Args:
        sigma: The standard deviation of the shift along each axis, in pixels.
    """

    sigma: float
    norm: ClassVar[str] = "l2 of the shift in pixels"
    deviation = 0.0

    @property
    def draw(self) -> Draw:
        return CircularShift(self.sigma)

    @property
    def drawing_error(self) -> float:
        return 2 * thresholds(self.sigma).error

    def certified_change(self, limit: str) -> str:
        return f"circular shift by whole pixels that is shorter than {limit} pixels"

"""A random change of brightness, and the radius of changes that cannot change the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smoothcert.noises.draws import CommonShift, Draw
from smoothcert.noises.gaussian import GaussianRadius


@dataclass(frozen=True)
class Brightness(GaussianRadius):
    """Add one normal number to all values, without clipping: R = sigma * Phi^-1(p) in units of intensity.

    No number of absolute value below R that is added to all values changes the answer.

    Args:
        sigma: The standard deviation, in the units of the inputs.
    """

    sigma: float
    norm: ClassVar[str] = "brightness"

    @property
    def draw(self) -> Draw:
        return CommonShift(self.sigma)

    @property
    def drawing_error(self) -> float:
        return 2.0**-53  # float64 holds so many bits of the uniform number

    def certified_change(self, limit: str) -> str:
        return f"change of all values by the same number, without clipping, that is smaller than {limit}"

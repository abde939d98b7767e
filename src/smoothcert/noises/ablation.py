"""Random ablation and its l0 radius in pixels (Levine & Feizi 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import ClassVar, Self

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noises.draws import Draw, Keep
from smoothcert.noises.rounding import SteppedNoise


@dataclass(frozen=True)
class Ablation(SteppedNoise):
    """Keep some random pixels and mark all others as absent.

    No change of rho pixels matters if p > 3/2 - C(d - rho, k) / C(d, k). The fraction is the probability that none of
    the changed pixels is kept. The classifier gets twice the channels: x and 1 - x for a kept pixel, 0 and 0 for an
    absent one.

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

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", _check.whole("keep", self.keep, least=1))
        if self.size is not None:
            object.__setattr__(self, "size", _check.whole("size", self.size, least=1))
            if self.size < self.keep:
                raise InvalidInput(f"keep must be at most the number of pixels ({self.size}), got {self.keep}")

    @property
    def draw(self) -> Draw:
        return Keep(self.keep)

    @property
    def deviation(self) -> float:
        return 0.0

    @property
    def drawing_error(self) -> float:
        """Two of the 64-bit keys that choose the pixels are equal with at most this probability."""
        return self._pixels() ** 2 / 2.0**65

    @property
    def thresholds(self) -> Sequence[Fraction]:
        d, k = self._pixels(), self.keep
        found = [Fraction(1, 2)]
        untouched = Fraction(1)  # C(d - rho, k) / C(d, k)
        for rho in range(1, d + 1):
            untouched *= Fraction(max(d - rho + 1 - k, 0), d - rho + 1)
            if untouched <= Fraction(1, 2):
                break
            found.append(Fraction(3, 2) - untouched)
        return found

    def certified_change(self, limit: str) -> str:
        return f"change of at most {limit} pixels"

    def for_shape(self, shape: tuple[int, ...]) -> Self:
        return self.for_size(prod(shape[1:] if len(shape) >= 3 else shape))

    def _pixels(self) -> int:
        if self.size is None:
            raise InvalidInput(f"{self} needs the number of pixels of an input: give size, as in size=784")
        return self.size

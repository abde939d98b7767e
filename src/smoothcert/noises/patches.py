"""Band and block ablation and their radius against patches (Levine & Feizi 2020).

All samples are counted, so certificates hold without alpha.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from itertools import count, takewhile
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noises.base import Marked, Noise, Numbers, Shape, checked_size

_TOLERANCE = 1e-6
"""Shares of votes times their number are whole numbers, up to this rounding."""


class PatchNoise(Marked, Noise):
    """Base of noises that show one window of a picture at a time, at every place.

    A patch touches few of the windows. If class A has n_A votes, rival B has n_B, and a patch
    touches k windows, then A still wins if n_A - k >= n_B + k, where ties go to A; n_B counts one
    more where they go to B.
    """

    norm: ClassVar[str] = "patch"
    deviation = 0.0
    breaks_ties: ClassVar[bool] = True

    @property
    @abstractmethod
    def window(self) -> tuple[int, int]:
        """The height and the width of the window. Sample i shows it at place i, row by row.

        A window that reaches beyond the edge goes on at the other side. A height of 0 is that of
        the picture, and then only its columns count as places.
        """

    @abstractmethod
    def touched(self, side: int) -> int:
        """How many windows a patch of side x side pixels touches at most.

        Args:
            side: Its side in pixels, at least 1.
        """

    @property
    def outcomes(self) -> int:
        return self.known_size

    def radius_between(self, lower: ArrayLike, upper: ArrayLike) -> Numbers:
        share = np.asarray(lower, float) - np.asarray(upper, float)
        lead = np.ceil(self.outcomes * share - _TOLERANCE)
        return np.searchsorted(self._leads(), lead, side="right")[()] - 1.0

    def radius(self, p: ArrayLike) -> Numbers:
        p = _check.probabilities("p", p)
        return self.radius_between(p, 1 - p + 1 / self.outcomes)  # a tie may go to the rival

    def probability(self, radius: ArrayLike) -> Numbers:
        leads = np.append(self._leads(), self.outcomes)
        side = np.minimum(np.ceil(np.maximum(radius, 0)), len(leads) - 1)
        lead = leads[side.astype(int)]
        return np.minimum((1 + (lead + 2 * _TOLERANCE) / self.outcomes) / 2, 1.0)[()]

    def certified_change(self, limit: str) -> str:
        return f"change inside a square patch of {limit} x {limit} pixels, anywhere,"

    def _leads(self) -> Numbers:
        """The lead 2 k that each side 0, 1, 2, ... needs."""
        leads = (2 * self.touched(side) for side in count(1))
        return np.array([0, *takewhile(lambda lead: lead <= self.outcomes, leads)])


@dataclass(frozen=True)
class Bands(PatchNoise):
    """Show one vertical band of the picture, at each of its columns in turn.

    All other pixels are marked as absent: the classifier gets twice the channels, x and 1 - x for a
    pixel that is shown, 0 and 0 for an absent one. A patch of side m touches m + width - 1 bands.
    The plan `Exact` counts all bands, so its certificates hold without alpha.

    Args:
        width: The width of a band in pixels.
        size: The width of the picture. `certify` takes it from the data.

    >>> float(Bands(4, size=32).radius(1.0))
    12.0
    """

    width: int
    size: int | None = None

    def __post_init__(self) -> None:
        _keep_sizes(self, "width", self.width)

    @property
    def window(self) -> tuple[int, int]:
        return 0, self.width

    def touched(self, side: int) -> int:
        return side + self.width - 1

    def for_shape(self, shape: Shape) -> Self:
        return self.for_size(_picture(shape)[1])


@dataclass(frozen=True)
class Blocks(PatchNoise):
    """Show one square block of the picture, at each of its pixels in turn.

    A patch of side m touches (m + side - 1)^2 blocks. The rest is as for `Bands`.

    Args:
        side: The side of a block in pixels.
        size: The number of pixels. `certify` takes it from the data.

    >>> float(Blocks(12, size=1024).radius(1.0))
    11.0
    """

    side: int
    size: int | None = None

    def __post_init__(self) -> None:
        _keep_sizes(self, "side", self.side)

    @property
    def window(self) -> tuple[int, int]:
        return self.side, self.side

    def touched(self, side: int) -> int:
        return (side + self.side - 1) ** 2

    def for_shape(self, shape: Shape) -> Self:
        height, width = _picture(shape)
        if self.side > min(height, width):
            raise InvalidInput(
                "block-too-large",
                "{noise} is larger than a picture of {height} x {width} pixels",
                noise=self,
                height=height,
                width=width,
            )
        return self.for_size(height * width)


def _keep_sizes(noise: Bands | Blocks, name: str, value: int) -> None:
    _check.fields(noise, _check.whole, name, least=1)
    _check.fields(noise, checked_size, "size")
    if noise.size is not None and value > noise.size:
        raise InvalidInput(
            "window-too-large",
            "{name} must be at most the size of a picture ({size}), got {value}",
            name=name,
            size=noise.size,
            value=value,
        )


def _picture(shape: Shape) -> tuple[int, int]:
    if len(shape) != 3:
        raise InvalidInput(
            "not-images",
            "patches are parts of pictures (channels, height, width), got inputs of shape {shape}",
            shape=shape,
        )
    return shape[1], shape[2]

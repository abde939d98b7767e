"""How far two pictures are from each other, and pictures at a given distance: a radius that one can see."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.float64]
"""Values in [0, 1], of shape (channels, height, width)."""

_HALVINGS = 60
_VERY_FAR = 1e9

_LENGTHS: dict[str, Callable[[Picture], float]] = {
    "l2": lambda change: float(np.sqrt(np.sum(change**2))),
    "l1": lambda change: float(np.sum(np.abs(change))),
    "l0": lambda change: float(np.count_nonzero(change)),
    "l0 of pixels": lambda change: float(np.count_nonzero(np.any(change, axis=0) if change.ndim == 3 else change)),
}

NORMS = tuple(_LENGTHS)
"""The norms in which pictures have a distance from each other. Other norms measure a parameter, such as a shift."""
COUNTED = ("l0", "l0 of pixels")
"""The norms that count values or pixels. A colour pixel has three values."""


def distance(one: Picture, other: Picture, norm: str) -> float:
    """How far two pictures are from each other.

    >>> black, white = np.zeros((3, 1, 1)), np.ones((3, 1, 1))
    >>> [round(distance(black, white, norm), 3) for norm in ("l2", "l1", "l0", "l0 of pixels")]
    [1.732, 3.0, 3.0, 1.0]
    """
    return _LENGTHS[norm](one - other)


def spread_change(x: Picture, radius: float, norm: str, *, seed: int) -> Picture:
    """The picture after a change in a random direction, at a distance of `radius`. All values stay in [0, 1].

    In l0, random values or pixels change. No picture may be so far away; then this one is as far as possible.
    """
    random = np.random.default_rng(seed)
    if norm in COUNTED:
        places = random.permutation(x.size if norm == "l0" else x[0].size)[: int(radius)]
        return _change_values(x, places if norm == "l0" else _values_of(places, x).ravel())
    direction = random.standard_normal(x.shape)
    if distance(np.clip(x + _VERY_FAR * direction, 0, 1), x, norm) < radius:  # then all values go where there is room
        direction = np.copysign(direction, 0.5 - x)
    low, high = 0.0, 1.0
    while distance(np.clip(x + high * direction, 0, 1), x, norm) < radius and high < _VERY_FAR:
        high *= 2
    for _ in range(_HALVINGS):  # the distance grows with the factor
        middle = (low + high) / 2
        too_far = distance(np.clip(x + middle * direction, 0, 1), x, norm) > radius
        low, high = (low, middle) if too_far else (middle, high)
    return np.clip(x + low * direction, 0, 1)


def concentrated_change(x: Picture, radius: float, norm: str) -> Picture:
    """The picture after a change of few pixels in its centre, at a distance of `radius`. All values stay in [0, 1].

    Each pixel but the last one becomes as different as possible.
    """
    height, width = x.shape[1:]
    rows, columns = np.mgrid[:height, :width]
    order = np.argsort(((rows - height // 2) ** 2 + (columns - width // 2) ** 2).ravel(), kind="stable")
    if norm in COUNTED:
        values = _values_of(order, x)
        return _change_values(x, values.ravel()[: int(radius)] if norm == "l0" else values[: int(radius)].ravel())
    power = 2 if norm == "l2" else 1
    changed, left = x.reshape(len(x), -1).copy(), radius**power
    for pixel in order:
        step = np.where(changed[:, pixel] < 0.5, 1, 0) - changed[:, pixel]
        size = float(np.sum(np.abs(step) ** power))
        changed[:, pixel] += step * min(1.0, left / size) ** (1 / power)
        left -= size
        if left <= 0:
            break
    return changed.reshape(x.shape)


def _values_of(pixels: NDArray[np.int64], x: Picture) -> NDArray[np.int64]:
    """Where the values of these pixels lie in the picture, one row per pixel."""
    values: NDArray[np.int64] = pixels[:, None] + np.arange(len(x)) * x[0].size
    return values


def _change_values(x: Picture, places: NDArray[np.int64]) -> Picture:
    """Make the values at these places as different as possible."""
    changed = x.ravel().copy()
    changed[places] = changed[places] < 0.5
    return changed.reshape(x.shape)

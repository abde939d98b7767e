"""Inputs as pictures: small ones as data URIs, and changed ones at a given distance, so that a radius can be seen."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import bisect

from smoothcert.data.base import values_of
from smoothcert.errors import InvalidInput
from smoothcert.runs.results import Results, is_unit

if TYPE_CHECKING:
    from smoothcert.data import Dataset

Picture = NDArray[np.float64]
"""Values in [0, 1], of shape (channels, height, width)."""

BUDGET = 1_200_000
"""Characters that all thumbnails of a page may take together."""
_SMALLEST_SIDE = 4
_SIDE = 64
_OF_EACH_KIND = 60
_VERY_FAR = 1e9

_ORDERS = {"l2": 2, "l1": 1, "l0": 0, "l0 of pixels": 0}

NORMS = tuple(_ORDERS)
"""The norms in which pictures have a distance from each other. Other norms measure a parameter, such as a shift."""
COUNTED = ("l0", "l0 of pixels")
"""The norms that count values or pixels. A colour pixel has three values."""


def thumbnails(dataset: Dataset, results: Sequence[Results]) -> dict[int, str]:
    """Pictures by id as data URIs: first those that the page's filters show first, then others while there is room."""
    pictures: dict[int, str] = {}
    room = BUDGET
    for id in _most_telling(results):
        if id in pictures or not 0 <= id < len(dataset):
            continue
        picture = pictures_of(dataset, results, [id])[id]
        if picture is None or len(picture) > room:
            break
        pictures[id] = picture
        room -= len(picture)
    return pictures


def pictures_of(
    dataset: Dataset, results: Sequence[Results], ids: Iterable[int]
) -> dict[int, str | None]:
    """Pictures of inputs of these runs by id, as data URIs; None for what is no image."""
    values = next(
        (r.manifest.values for r in results if r.manifest is not None and r.other_range), None
    )
    return {id: picture_of(values_of(dataset, id), values) for id in ids}


def _most_telling(results: Sequence[Results]) -> Iterable[int]:
    """The ids of the inputs, those at the top of the page's filters first."""
    for r in results:
        by_radius = r.id[np.argsort(r.radius, kind="stable")]
        certified = by_radius[np.isin(by_radius, r.id[r.correct])]
        for kind in (certified[::-1], certified, r.id[r.abstained], r.id[r.wrong]):
            yield from kind[:_OF_EACH_KIND].tolist()
    for r in results:
        yield from r.id.tolist()


def picture_of(
    x: Any, values: tuple[float, float] | None = None, *, side: int = _SIDE
) -> str | None:
    """An input as the data URI of a small picture; None if it is no image. `values` is the range of its values."""
    from PIL import Image

    black, width = _black_and_width(values)
    array = (np.asarray(x) - black) / width
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3 or array.shape[0] not in (1, 3) or min(array.shape[1:]) < _SMALLEST_SIDE:
        return None
    pixels = np.rint(np.clip(np.nan_to_num(array), 0, 1) * 255).astype(np.uint8)
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    image.thumbnail((side, side))
    buffer = io.BytesIO()
    if max(image.size) <= _SIDE:
        image.save(buffer, kind := "PNG", optimize=True)
    else:  # a noisy photograph as PNG would be several times as large
        image.save(buffer, kind := "WEBP", quality=80)
    return f"data:image/{kind.lower()};base64," + base64.b64encode(buffer.getvalue()).decode()


def check_picture(x: Picture, id: int) -> None:
    """Refuse an input that is no picture."""
    if picture_of(x) is None:
        pictures = (
            f"pictures with 1 or 3 channels and at least {_SMALLEST_SIDE} pixels on each side"
        )
        raise InvalidInput(
            f"input {id} has shape {tuple(x.shape)}: only {pictures} can be explained"
        )


def _black_and_width(values: tuple[float, float] | None) -> tuple[float, float]:
    """The value that is shown as black, and how far white is from it: 0 and 1, unless inputs have another range."""
    low, high = (0.0, 1.0) if values is None or is_unit(values) else values
    return low, max(high - low, 1e-30)


def distance(one: Picture, other: Picture, norm: str) -> float:
    """How far two pictures are from each other.

    >>> black, white = np.zeros((3, 1, 1)), np.ones((3, 1, 1))
    >>> [round(distance(black, white, norm), 3) for norm in ("l2", "l1", "l0", "l0 of pixels")]
    [1.732, 3.0, 3.0, 1.0]
    """
    change = one - other
    if norm == "l0 of pixels" and change.ndim == 3:
        change = np.any(change, axis=0)
    return float(np.linalg.norm(change.ravel(), _ORDERS[norm]))


def changed_pictures(
    x: Picture, radius: float, norm: str, values: tuple[float, float] | None, *, seed: int
) -> tuple[Picture, Picture]:
    """The input after two changes of this size: one at random, and one of as few pixels as possible."""
    black, width = _black_and_width(values)
    x = ((x if x.ndim == 3 else x[None]) - black) / width
    radius = radius if norm in COUNTED else radius / width
    changed = spread_change(x, radius, norm, seed=seed), concentrated_change(x, radius, norm)
    return changed[0] * width + black, changed[1] * width + black


def spread_change(x: Picture, radius: float, norm: str, *, seed: int) -> Picture:
    """The picture after a change in a random direction, at a distance of `radius`. All values stay in [0, 1].

    In l0, random values or pixels change. No picture may be so far away; then this one is as far as possible.
    """
    random = np.random.default_rng(seed)
    if norm in COUNTED:
        places = _by_pixel(x).ravel() if norm == "l0" else _by_pixel(x)
        return _flipped(x, random.permutation(places)[: int(radius)])
    direction = random.standard_normal(x.shape)

    def moved(factor: float) -> Picture:
        return np.clip(x + factor * direction, 0, 1)

    def beyond(factor: float) -> float:
        return distance(moved(factor), x, norm) - radius  # grows with the factor

    if beyond(_VERY_FAR) < 0:  # then all values go where there is room
        direction = np.copysign(direction, 0.5 - x)
    return moved(
        _VERY_FAR
        if beyond(_VERY_FAR) < 0
        else bisect(beyond, 0, _VERY_FAR, xtol=1e-16, maxiter=200)
    )


def concentrated_change(x: Picture, radius: float, norm: str) -> Picture:
    """The picture after a change of few pixels in its centre, at a distance of `radius`. All values stay in [0, 1].

    Each pixel but the last one becomes as different as possible.
    """
    height, width = x.shape[1:]
    rows, columns = np.mgrid[:height, :width]
    order = np.argsort(
        ((rows - height // 2) ** 2 + (columns - width // 2) ** 2).ravel(), kind="stable"
    )
    if norm in COUNTED:
        places = _by_pixel(x)[order]
        return _flipped(x, (places.ravel() if norm == "l0" else places)[: int(radius)])
    power = 2 if norm == "l2" else 1
    flat = x.reshape(len(x), -1)[:, order]
    change = (flat < 0.5) - flat
    sizes = np.sum(np.abs(change) ** power, axis=0)
    left = radius**power - (np.cumsum(sizes) - sizes)  # what the pixels before each one leave
    changed = x.reshape(len(x), -1).copy()
    changed[:, order] += change * np.clip(left / sizes, 0, 1) ** (1 / power)
    return changed.reshape(x.shape)


def _by_pixel(x: Picture) -> NDArray[np.int64]:
    """Where the values of each pixel lie in the picture, one row per pixel."""
    return np.arange(x.size).reshape(len(x), -1).T


def _flipped(x: Picture, places: NDArray[np.int64]) -> Picture:
    """Make the values at these places as different as possible."""
    changed = x.ravel().copy()
    changed[places] = changed[places] < 0.5
    return changed.reshape(x.shape)

"""Inputs as pictures: small ones as data URIs, and changed ones that show how large a radius is."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.base import values_of
from smoothcert.errors import InvalidInput
from smoothcert.runs.results import Results, is_unit

if TYPE_CHECKING:
    from smoothcert.data import Dataset

Picture = NDArray[np.float64]
"""Values in [0, 1], of shape (channels, height, width)."""

_SMALLEST_SIDE = 4  # pixels
_SIDE = 64  # pixels
_OF_EACH_KIND = 60  # inputs

_ORDERS = {"l2": 2, "l1": 1, "l0": 0, "l0 of pixels": 0}

NORMS = tuple(_ORDERS)
"""The norms in which pictures have a distance. Other norms measure a parameter, such as a shift."""
COUNTED = ("l0", "l0 of pixels")
"""The norms that count values or pixels. A colour pixel has three values."""


def pictures_of(
    dataset: Dataset, runs: Sequence[Results], ids: Iterable[int], *, budget: float = inf
) -> dict[int, str]:
    """Pictures of inputs of these runs by id, as data URIs; none if the inputs are no images.

    Args:
        dataset: The data of the runs.
        runs: The runs.
        ids: The inputs, the most interesting ones first.
        budget: Characters that all pictures together may take.
    """
    pictures: dict[int, str] = {}
    values = _range_of(runs)
    for id in ids:
        if id in pictures or not 0 <= id < len(dataset):
            continue
        picture = picture_of(values_of(dataset, id), values)
        if picture is None or len(picture) > budget:
            break
        pictures[id] = picture
        budget -= len(picture)
    return pictures


def _range_of(runs: Sequence[Results]) -> tuple[float, float] | None:
    """The range of the values of inputs, if it is another one than [0, 1]."""
    for run in runs:
        if run.manifest is not None and run.other_range:
            return run.manifest.values
    return None


def by_interest(runs: Sequence[Results]) -> Iterable[int]:
    """The ids of the inputs, those at the top of the page's filters first."""
    for run in runs:
        by_radius = run.id[np.argsort(run.radius, kind="stable")]
        certified = by_radius[np.isin(by_radius, run.id[run.correct])]
        for ids in (certified[::-1], certified, run.id[run.abstained], run.id[run.wrong]):
            yield from ids[:_OF_EACH_KIND].tolist()
    for run in runs:
        yield from run.id.tolist()


def picture_of(
    x: Any, values: tuple[float, float] | None = None, *, side: int = _SIDE
) -> str | None:
    """An input as the data URI of a small picture; None if it is no image.

    Args:
        x: The input.
        values: The range of its values; None for [0, 1].
        side: The largest width and height in pixels.
    """
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
    content = io.BytesIO()
    format = "png"
    if max(image.size) <= _SIDE:
        image.save(content, format, optimize=True)
    else:  # a noisy photograph as PNG would be several times as large
        format = "webp"
        image.save(content, format, quality=80)
    return f"data:image/{format};base64,{base64.b64encode(content.getvalue()).decode()}"


def check_picture(x: Picture, id: int) -> None:
    """Refuse an input that is no picture."""
    if picture_of(x) is None:
        raise InvalidInput(
            "not-a-picture",
            "input {id} has shape {shape}: only pictures with 1 or 3 channels and at least {side} "
            "pixels on each side can be explained",
            id=id,
            shape=tuple(x.shape),
            side=_SMALLEST_SIDE,
        )


def _black_and_width(values: tuple[float, float] | None) -> tuple[float, float]:
    """The value that is shown as black, and how far white is from it."""
    if values is None or is_unit(values):
        return 0.0, 1.0
    low, high = values
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


def changed_picture(
    x: Picture, radius: float, norm: str, values: tuple[float, float] | None
) -> Picture:
    """The input after a change of this size, of as few pixels as possible."""
    black, width = _black_and_width(values)
    if x.ndim == 2:
        x = x[None]
    if norm not in COUNTED:
        radius = radius / width
    return concentrated_change((x - black) / width, radius, norm) * width + black


def concentrated_change(x: Picture, radius: float, norm: str) -> Picture:
    """The picture after a change of few pixels in its centre, at a distance of `radius`.

    All values stay in [0, 1]. Each pixel but the last one becomes as different as possible.
    """
    height, width = x.shape[1:]
    rows, columns = np.mgrid[:height, :width]
    from_centre = (rows - height // 2) ** 2 + (columns - width // 2) ** 2
    order = np.argsort(from_centre.ravel(), kind="stable")
    changed = x.reshape(len(x), -1).T[order]  # one row per pixel
    change = (changed < 0.5) - changed
    if norm == "l0":
        change.ravel()[int(radius) :] = 0
    elif norm == "l0 of pixels":
        change[int(radius) :] = 0
    else:
        power = _ORDERS[norm]
        sizes = np.sum(np.abs(change) ** power, axis=1)
        left = radius**power - (np.cumsum(sizes) - sizes)  # what the pixels before each one leave
        change *= np.clip(left / sizes, 0, 1)[:, None] ** (1 / power)
    result = np.empty_like(changed)
    result[order] = changed + change
    return result.T.reshape(x.shape)

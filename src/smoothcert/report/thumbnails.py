"""Small pictures of the inputs, for the table of certificates."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.runs.results import Results

if TYPE_CHECKING:
    from smoothcert.data import Dataset

BUDGET = 1_200_000
"""Characters that all pictures of a page may take together."""
SMALLEST_SIDE = 4
"""Pixels that a picture needs on each side."""
_SIDE = 64
_OF_EACH_KIND = 60


def thumbnails(dataset: Dataset, results: Sequence[Results]) -> dict[int, str]:
    """Pictures by id as data URIs: first those that the page's filters show first, then others while there is room."""
    pictures: dict[int, str] = {}
    room = BUDGET
    values = next((r.manifest.values for r in results if r.manifest is not None and not r.in_unit_interval), None)
    for id in _most_telling(results):
        if id in pictures or not 0 <= id < len(dataset):
            continue
        picture = picture_of(to_unit(np.asarray(dataset[id][0]), values))
        if picture is None or len(picture) > room:
            break
        pictures[id] = picture
        room -= len(picture)
    return pictures


def to_unit(x: NDArray[Any], values: tuple[float, float] | None) -> NDArray[Any]:
    """Bring values from this range to [0, 1], to show them; None leaves them as they are."""
    return x if values is None else (x - values[0]) / max(values[1] - values[0], 1e-30)


def picture_of(x: Any, *, side: int = _SIDE) -> str | None:
    """An input as the data URI of a small picture; None if it is no image."""
    from PIL import Image

    array = np.asarray(x)
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3 or array.shape[0] not in (1, 3) or min(array.shape[1:]) < SMALLEST_SIDE:
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


def _most_telling(results: Sequence[Results]) -> Iterable[int]:
    """The ids of the inputs, those at the top of the page's filters first."""
    for r in results:
        by_radius = r.id[np.argsort(r.radius, kind="stable")]
        certified = by_radius[np.isin(by_radius, r.id[r.correct])]
        for kind in (certified[::-1], certified, r.id[r.abstained], r.id[r.wrong]):
            yield from kind[:_OF_EACH_KIND].tolist()
    for r in results:
        yield from r.id.tolist()

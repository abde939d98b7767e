"""Pictures brought to one size before the noise: `resized:224:DATA`, or --input-size 224.

Sigma and radii are about the resized picture. To keep those of the given picture, use the setting
`resize` of the classifier instead.
"""

from __future__ import annotations

import hashlib
from functools import cached_property

import numpy as np
from PIL import Image, ImageOps

from smoothcert import _check
from smoothcert.data.base import NumpyDataset
from smoothcert.data.images import PictureDataset
from smoothcert.errors import InvalidInput


class ResizedDataset(PictureDataset):
    """The pictures of another data set in one size: resized to cover it, and cropped to its centre.

    Args:
        data: The other data set, of 8-bit pictures.
        size: "224", or "224x160" for height and width.
    """

    def __init__(self, data: NumpyDataset, size: str) -> None:
        self._data = data
        self._height, self._width = _check.size("the size of the pictures", size)
        self.name = f"{data.name} at {self._height}x{self._width}"
        self.labels = data.labels
        self.class_names = data.class_names
        self.labels_are_positions = data.labels_are_positions
        self._settle_shape()

    def where(self, index: int) -> str:
        return f"input {index} of {self._data.name}"

    def picture(self, index: int) -> Image.Image:
        size = (self._width, self._height)
        return ImageOps.fit(self._given(index), size, Image.Resampling.BILINEAR)

    def _given(self, index: int) -> Image.Image:
        """The picture as it is given, with a size of its own."""
        if isinstance(self._data, PictureDataset):
            return self._data.picture(index)
        pixels = self._data.stored(index)
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or len(pixels) not in (1, 3):
            raise InvalidInput(
                "not-pictures",
                "{where} is no 8-bit picture in grey or colour, and only these can be resized",
                where=self.where(index),
            )
        return Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))

    @cached_property
    def fingerprint(self) -> str:
        """The hash of the size and of the other data set."""
        content = f"{self._height}x{self._width} {self._data.fingerprint}"
        return hashlib.sha256(content.encode()).hexdigest()


def load(place: str, *, train: bool) -> ResizedDataset:
    """The pictures of `SIZE:DATA`."""
    from smoothcert.data import load_dataset  # which finds this function

    size, _, spec = place.partition(":")
    if not spec:
        raise InvalidInput(
            "no-place", "resized:{place} names no data: write resized:224:DATA", place=place
        )
    data = load_dataset(spec, train=train)
    assert isinstance(data, NumpyDataset)  # as all data sets that have a name
    return ResizedDataset(data, size)

"""Pictures brought to one size before the noise: `resized:224:DATA`, or --input-size 224.

Sigma and radii are about the resized picture. To keep those of the given picture, use the setting
`resize` of the classifier instead.
"""

from __future__ import annotations

import hashlib
import re
from functools import cached_property

from PIL import Image, ImageOps

from smoothcert.data.base import NumpyDataset
from smoothcert.data.images import PictureDataset, picture_of
from smoothcert.errors import InvalidInput

_SIZE = re.compile(r"([1-9]\d*)(?:x([1-9]\d*))?")


class ResizedDataset(PictureDataset):
    """The pictures of another data set in one size: resized to cover it, and cropped to its centre.

    Args:
        data: The other data set, of 8-bit pictures.
        size: "224", or "224x160" for height and width.
    """

    def __init__(self, data: NumpyDataset, size: str) -> None:
        match = _SIZE.fullmatch(size)
        if match is None:
            raise InvalidInput(
                "not-a-size",
                "the size of the pictures must be 224, or 224x160 for height and width, got "
                "{size!r}",
                size=size,
            )
        self._data = data
        self._height = int(match[1])
        self._width = int(match[2] or match[1])
        self.name = f"{data.name} at {self._height}x{self._width}"
        self.labels = data.labels
        self.class_names = data.class_names
        self._settle_shape()

    def where(self, index: int) -> str:
        return f"input {index} of {self._data.name}"

    def picture(self, index: int) -> Image.Image:
        picture = picture_of(self._data, index, where=self.where(index))
        size = (self._width, self._height)
        return ImageOps.fit(picture, size, Image.Resampling.BILINEAR)

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

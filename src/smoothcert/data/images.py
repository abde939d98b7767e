"""A folder of images, and ImageNet.

The folder has one subfolder per class or, if the labels are unknown, no subfolders.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from smoothcert._check import NO_CLASS
from smoothcert.data.base import NumpyDataset, hashed_inputs, read_first
from smoothcert.errors import InvalidInput, either, number_of, warn

SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
Shape: TypeAlias = tuple[int, ...]
"""Channels, height and width."""

_GREY = ("1", "L")
_UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
_SHOWN_CLASSES = 10
_IMAGENET_CLASSES = 1000
_SHORT_EDGE = 256
"""Pixels of the shorter edge of an image of ImageNet."""
_CROP = 224
"""Pixels of each edge of its central part."""
_DOWNLOAD = (
    "download ILSVRC2012_img_val.tar from https://image-net.org and sort its images into one "
    "folder per class (val/n01440764/ILSVRC2012_val_00000293.JPEG, ...)"
)

log = logging.getLogger(__name__)


class PictureDataset(NumpyDataset):
    """Base of data sets of pictures. All have the shape of the first one that can be read."""

    levels = 255  # see `ArrayDataset.levels`
    _shape: Shape | None = None

    def picture(self, index: int) -> Image.Image:
        """A picture of any size."""
        raise NotImplementedError

    def where(self, index: int) -> object:
        """The place of a picture, for messages."""
        return f"image {index} of {self.name}"

    def stored(self, index: int) -> NDArray[np.uint8]:
        where = self.where(index)
        pixels = to_pixels(self.picture(index), where=where)
        if self._shape is None:
            return pixels
        _check_fits(pixels.shape, self._shape, where=where)
        channels = self._shape[0]
        return pixels if len(pixels) == channels else np.repeat(pixels, channels, axis=0)

    def _settle_shape(self) -> None:
        """Take the shape of the first picture that can be read."""
        self._shape = read_first(self.stored, len(self)).shape


class ImageFolder(PictureDataset):
    """A folder of images, sorted by class folder and then by file name, as published ids are.

    Class folders whose names are whole numbers have these numbers as their labels; others are
    numbered in their order. If there is a subfolder for training, its class folders are the
    classes. If the first readable image is grey, images have one channel, otherwise three.

    Args:
        place: The folder.
        train: Whether to take the subfolder for training instead of that for testing.
        name: The name of the data set.
        prepare: Applied to each image. Without it, all images must have the same size.
    """

    def __init__(
        self,
        place: Path,
        *,
        train: bool,
        name: str,
        prepare: Callable[[Image.Image], Image.Image] | None = None,
    ) -> None:
        self.name = name
        self.folder = _part(place, train=train)
        self.class_names: tuple[str, ...] | None = None
        self._prepare = prepare
        self._other_classes: tuple[str, ...] | None = None
        """The classes of the training part, if they are others than those of this part."""
        folders, self._files = _list(self.folder)
        self.labels = np.full(len(self._files), NO_CLASS, np.int64)
        if folders is not None:
            training = None if train else _training_classes(place)
            self._set_classes(folders, training or folders)
        self._settle_shape()

    def _set_classes(self, folders: tuple[str, ...], classes: tuple[str, ...]) -> None:
        """Number the classes, and label the files in their folders."""
        unknown = set(folders) - set(classes)
        if unknown:
            raise InvalidInput(
                "class-not-in-training",
                "{folder} has the class {name}, which the training part does not have",
                folder=self.folder,
                name=min(unknown),
            )
        numbers = _class_numbers(classes)
        if list(numbers.values()) == list(range(len(numbers))):
            self.class_names = tuple(numbers)
        self.labels = np.array([numbers[file.parent.name] for file in self._files], np.int64)
        if classes != folders:
            self._other_classes = classes

    def where(self, index: int) -> Path:
        return self._files[index]

    def picture(self, index: int) -> Image.Image:
        file = self._files[index]
        try:
            with Image.open(file) as image:
                image.load()
        except _UNREADABLE as error:
            raise InvalidInput(
                "unreadable-image",
                "{where} cannot be read as an image: {error}",
                where=file,
                error=str(error),
            ) from None
        return image if self._prepare is None else self._prepare(image.convert("RGB"))

    def check_shapes(self, ids: Sequence[int]) -> None:
        """Refuse an image of another size before a run. Only the headers of files are read."""
        if self._prepare is not None or self._shape is None:
            return  # a preparation gives all images the same size
        for id in ids:
            try:
                with Image.open(self._files[id]) as image:
                    shape = (_channels(image), image.height, image.width)
            except _UNREADABLE:  # a damaged image is reported when it is certified
                continue
            _check_fits(shape, self._shape, where=self._files[id])

    @cached_property
    def fingerprint(self) -> str:
        """The hash of the preparation, of the names and sizes of all files, and of their content.

        In a large folder, reading all files would take too long, so only some are read.
        """
        preparation = "" if self._prepare is None else self._prepare.__qualname__
        digest = hashlib.sha256(preparation.encode())
        if self._other_classes is not None:
            digest.update("\n".join(self._other_classes).encode())
        sizes = [file.stat().st_size for file in self._files]
        for file, size in zip(self._files, sizes, strict=True):
            digest.update(f"{file.relative_to(self.folder).as_posix()}\t{size}\n".encode())
        for index in hashed_inputs(len(self), size=sum(sizes)):
            digest.update(hashlib.sha256(self._files[index].read_bytes()).digest())
        return digest.hexdigest()


def to_pixels(image: Image.Image, *, where: object) -> NDArray[np.uint8]:
    """The pixels of an image as bytes, of shape (channels, height, width).

    A grey image has one channel, every other image three.
    """
    if image.mode[0] in "IF":
        raise InvalidInput(
            "more-than-8-bits",
            "{where} has more than 8 bits per channel (mode {mode}): save it with 8",
            where=where,
            mode=image.mode,
        )
    channels = _channels(image)
    pixels = np.array(image.convert("L" if channels == 1 else "RGB"))
    return pixels.reshape(image.height, image.width, channels).transpose(2, 0, 1)


def picture_of(data: NumpyDataset, index: int, *, where: str) -> Image.Image:
    """An input as an image in grey or colour. The images of some data sets have several sizes."""
    if isinstance(data, PictureDataset):
        pixels: NDArray[Any] = to_pixels(data.picture(index), where=where)
    else:
        pixels = data.stored(index)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or len(pixels) not in (1, 3):
        raise InvalidInput(
            "not-pictures",
            "{where} is no 8-bit picture in grey or colour, and only these can be resized",
            where=where,
        )
    last = pixels.transpose(1, 2, 0)
    return Image.fromarray(last[..., 0] if len(pixels) == 1 else last)


def _channels(image: Image.Image) -> int:
    return 1 if image.mode in _GREY else 3


def _check_fits(shape: Shape, first: Shape, *, where: object) -> None:
    """Refuse an image that cannot get the shape of the first one. A grey image becomes coloured."""
    same_size = shape[1:] == first[1:]
    if same_size and shape[0] <= first[0]:
        return
    resized = either('data="resized:224:DATA"', "--input-size 224")
    advice = f"{resized} brings all of them to one size, before the noise"
    if same_size:
        advice = "save all images in grey, or the first one in colour"
    raise InvalidInput(
        "other-image-size",
        "{where} is {size}, but the first image is {first}: {advice}",
        where=where,
        size=_describe(shape),
        first=_describe(first),
        advice=advice,
    )


def _describe(shape: Shape) -> str:
    channels, height, width = shape
    return f"{width}x{height} with {number_of(channels, 'channel')}"


def load(folder: Path, *, train: bool) -> ImageFolder:
    """The images of a folder, or of its subfolder for training or testing."""
    name = folder.resolve().name
    dataset = ImageFolder(folder, train=train, name=name)
    classes = dataset.class_names
    if classes and not all(map(_is_number, classes)):
        numbered = [f"{number} {name}" for number, name in enumerate(classes[:_SHOWN_CLASSES])]
        log.warning(
            "the labels of %s are the positions of its %d class folders: %s",
            name,
            len(classes),
            ", ".join(numbered),
        )
    return dataset


def load_imagenet(place: str, *, train: bool) -> ImageFolder:
    """The validation folder of ImageNet, resized and cropped as for published certificates."""
    if not Path(place).is_dir():
        raise InvalidInput(
            "no-imagenet", "no ImageNet at {place}: {download}", place=place, download=_DOWNLOAD
        )
    dataset = ImageFolder(Path(place), train=train, name="imagenet", prepare=resize_and_crop)
    if dataset.labels[0] == NO_CLASS:
        raise InvalidInput(
            "no-class-folders",
            "{folder} holds images but no class folders: {download}",
            folder=dataset.folder,
            download=_DOWNLOAD,
        )
    if dataset.class_names is not None and len(dataset.class_names) != _IMAGENET_CLASSES:
        warn(
            f"{dataset.folder} has {len(dataset.class_names)} class folders, not "
            f"{_IMAGENET_CLASSES}: labels are the numbers of these folders, not those of ImageNet"
        )
    return dataset


def resize_and_crop(image: Image.Image) -> Image.Image:
    """Resize the shorter edge to 256 and crop the central 224x224 pixels."""
    short = min(image.size)
    width, height = (_SHORT_EDGE * edge // short for edge in image.size)
    left = round((width - _CROP) / 2)
    top = round((height - _CROP) / 2)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    return resized.crop((left, top, left + _CROP, top + _CROP))


def _training_classes(folder: Path) -> tuple[str, ...] | None:
    """The classes of the training part, which number those of the test part.

    None if there is no training part.
    """
    training = folder / "train"
    if not training.is_dir() or _part(folder, train=False) == folder:
        return None
    return tuple(sorted(path.name for path in _visible(training) if path.is_dir())) or None


def _part(folder: Path, *, train: bool) -> Path:
    """The subfolder `train`, or `val` or `test`; the folder itself if there is none."""
    for name in ["train"] if train else ["val", "test"]:
        if (folder / name).is_dir():
            return folder / name
    return folder


def _class_numbers(names: Sequence[str]) -> dict[str, int]:
    """The label of each class folder: its name if all names are numbers, else its position."""
    if all(map(_is_number, names)) and len(set(map(int, names))) == len(names):
        return {name: int(name) for name in sorted(names, key=int)}
    return {name: position for position, name in enumerate(names)}


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def _list(folder: Path) -> tuple[tuple[str, ...] | None, list[Path]]:
    """The names of the class folders, None if there are none, and the files."""
    images = _images(folder)
    per_class = {path.name: _images(path) for path in sorted(_visible(folder)) if path.is_dir()}
    empty = [name for name, files in per_class.items() if not files]
    if bool(images) == bool(per_class) or empty:
        raise InvalidInput(
            "not-image-folder",
            "{folder} must hold one subfolder of images per class, or only images; it holds "
            "{images} images and {subfolders} subfolders{empty}",
            folder=folder,
            images=len(images),
            subfolders=len(per_class),
            empty=f", and {empty[0]} holds no images" if empty else "",
        )
    if images:
        return None, images
    return tuple(per_class), [file for files in per_class.values() for file in files]


def _images(folder: Path) -> list[Path]:
    return sorted(
        path for path in _visible(folder) if path.suffix.lower() in SUFFIXES and path.is_file()
    )


def _visible(folder: Path) -> Iterator[Path]:
    """The entries of a folder that an operating system has not added, such as `.DS_Store`."""
    for path in folder.iterdir():
        if not path.name.startswith(".") and path.name != "__MACOSX":
            yield path

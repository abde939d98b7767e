"""A folder of images, and ImageNet.

The folder has one subfolder per class or, if the labels are unknown, no subfolders.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from smoothcert._check import NO_CLASS
from smoothcert.data.base import NumpyDataset, hashed_inputs, read_first
from smoothcert.errors import InvalidInput, warn

SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
Shape: TypeAlias = tuple[int, ...]
"""Channels, height and width."""

_GREY = ("1", "L")
_UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
_SHOWN_CLASSES = 10
_IMAGENET_CLASSES = 1000
_MOST_DIGITS = 9
"""Of the number of a class."""
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

    def opened(self, index: int) -> Image.Image:
        """A picture of any size. It may raise any error that PIL has for a damaged one."""
        raise NotImplementedError

    def where(self, index: int) -> object:
        """The place of a picture, for messages."""
        return f"image {index} of {self.name}"

    def picture(self, index: int) -> Image.Image:
        """A picture of any size, in grey or colour."""
        try:
            image = self.opened(index)
        except _UNREADABLE as error:
            raise InvalidInput(
                "unreadable-image",
                "{where} cannot be read as an image: {error}",
                where=self.where(index),
                error=str(error),
            ) from None
        return grey_or_colour(image, where=self.where(index))

    def stored(self, index: int) -> NDArray[np.uint8]:
        pixels = pixels_of(self.picture(index))
        if self._shape is None:
            return pixels
        _check_fits(pixels.shape, self._shape, where=self.where(index))
        return np.broadcast_to(pixels, self._shape)

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
        self._prepare = prepare
        self._other_classes: tuple[str, ...] | None = None
        """The classes of the training part, if they are others than those of this part."""
        folders, self._files = _list(self.folder)
        self.labels = np.full(len(self._files), NO_CLASS, np.int64)
        if folders:
            training = place / "train"
            has_training = self.folder != place and training.is_dir()
            classes = _folders(training) if has_training else ()
            self._set_classes(folders, classes or folders)
        self._settle_shape()

    def _set_classes(self, folders: tuple[str, ...], classes: tuple[str, ...]) -> None:
        """Number the classes, and label the files in their folders."""
        numbers = _class_numbers(classes)
        for name in folders:
            if name not in numbers:
                raise InvalidInput(
                    "class-not-in-training",
                    "{folder} has the class {name}, which the training part does not have",
                    folder=self.folder,
                    name=name,
                )
        if list(numbers.values()) == list(range(len(numbers))):
            self.class_names = tuple(numbers)
        self.labels = np.array([numbers[file.parent.name] for file in self._files], np.int64)
        if classes != folders:
            self._other_classes = classes

    def where(self, index: int) -> Path:
        return self._files[index]

    def opened(self, index: int) -> Image.Image:
        with Image.open(self._files[index]) as image:
            image.load()
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


def grey_or_colour(image: Image.Image, *, where: object) -> Image.Image:
    """An image with one channel if it is grey, else with three, of 8 bits each."""
    if image.mode[0] in "IF":
        raise InvalidInput(
            "more-than-8-bits",
            "{where} has more than 8 bits per channel (mode {mode}): save it with 8",
            where=where,
            mode=image.mode,
        )
    return image.convert("L" if _channels(image) == 1 else "RGB")


def pixels_of(image: Image.Image) -> NDArray[np.uint8]:
    """The pixels of an image in grey or colour, of shape (channels, height, width)."""
    return np.array(image).reshape(image.height, image.width, -1).transpose(2, 0, 1)


def _channels(image: Image.Image) -> int:
    return 1 if image.mode in _GREY else 3


def _check_fits(shape: Shape, first: Shape, *, where: object) -> None:
    """Refuse an image that cannot get the shape of the first one. A grey image becomes coloured."""
    if shape[1:] != first[1:]:
        raise InvalidInput(
            "other-image-size",
            "{where} has height and width {size}, but the first image has {first_size}: "
            '`data="resized:{first_size}:DATA"|--input-size {first_size}` brings all to one size, '
            "before the noise; give the size that the network takes",
            where=where,
            shape=shape,
            first=first,
            size="x".join(map(str, shape[1:])),
            first_size="x".join(map(str, first[1:])),
        )
    if shape[0] > first[0]:
        raise InvalidInput(
            "other-image-colour",
            "{where} is in colour, but the first image is grey: save all in grey or in colour",
            where=where,
            shape=shape,
            first=first,
        )


def load(folder: Path, *, train: bool) -> ImageFolder:
    """The images of a folder, or of its subfolder for training or testing."""
    name = folder.resolve().name
    dataset = ImageFolder(folder, train=train, name=name)
    classes = dataset.class_names
    if classes and not all(map(_is_number, classes)):
        dataset.labels_are_positions = True
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
    folder = Path(place)
    has_classes = folder.is_dir() and _folders(_part(folder, train=train))
    if not has_classes:
        raise InvalidInput(
            "no-imagenet",
            "no class folders of ImageNet in {place}: {download}",
            place=place,
            download=_DOWNLOAD,
        )
    dataset = ImageFolder(folder, train=train, name="imagenet", prepare=resize_and_crop)
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
    """Whether a folder is named by the number of a class. Longer ones are dates and the like."""
    return name.isascii() and name.isdecimal() and len(name) <= _MOST_DIGITS


def _list(folder: Path) -> tuple[tuple[str, ...], list[Path]]:
    """The names of the class folders, if there are any, and the files."""
    images = _images(folder)
    per_class = {name: _images(folder / name) for name in _folders(folder)}
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
    return tuple(per_class), images or [file for files in per_class.values() for file in files]


def _folders(folder: Path) -> tuple[str, ...]:
    """The names of the subfolders, in order."""
    return tuple(sorted(path.name for path in _visible(folder) if path.is_dir()))


def _images(folder: Path) -> list[Path]:
    files = []
    for path in _visible(folder):
        if path.suffix.lower() not in SUFFIXES:
            continue
        if path.is_file():
            files.append(path)
        elif path.is_symlink() and not path.exists():
            raise InvalidInput(
                "broken-link",
                "{path} is a link to a file that is not here: get the file, or remove the link",
                path=path,
            )
    return sorted(files)


def _visible(folder: Path) -> Iterator[Path]:
    """The entries of a folder that an operating system has not added, such as `.DS_Store`."""
    for path in folder.iterdir():
        if not path.name.startswith(".") and path.name != "__MACOSX":
            yield path

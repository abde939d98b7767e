"""A folder of images, with one subfolder per class or, if the labels are unknown, without subfolders; ImageNet."""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from smoothcert._check import NO_CLASS
from smoothcert.data.base import first_readable, hashed_inputs
from smoothcert.errors import InvalidInput

SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
_GREY = ("1", "L")
_UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
_SHOWN_CLASSES = 10
_IMAGENET_CLASSES = 1000
_SHORT_EDGE, _CROP = 256, 224
_DOWNLOAD = (
    "download ILSVRC2012_img_val.tar from https://image-net.org and sort its images into one folder per class "
    "(val/n01440764/ILSVRC2012_val_00000293.JPEG, ...)"
)

log = logging.getLogger(__name__)


class ImageFolder:
    """A folder of images, sorted by class folder and then by file name, which is the order of published ids.

    Class folders whose names are whole numbers have these numbers as their labels; others are numbered in their order.
    If the first readable image is grey, images have one channel, otherwise three. `prepare` is applied to each image;
    without it, all must have the same size. If there is a subfolder for training, its class folders are the classes.
    """

    levels = 255  # see `ArrayDataset.levels`

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
        class_names = None if train else _training_classes(place)
        found, self._files = _list(self.folder)
        if found is None:
            self.class_names = None
            self.labels = np.full(len(self), NO_CLASS, np.int64)
        else:
            if unknown := set(found) - set(class_names or found):
                raise InvalidInput(
                    f"{self.folder} has the class {min(unknown)}, which the training part does not have"
                )
            numbers = _class_numbers(class_names or found)
            self.class_names = (
                tuple(numbers) if list(numbers.values()) == list(range(len(numbers))) else None
            )
            self.labels = np.array([numbers[file.parent.name] for file in self._files], np.int64)
        self._other_classes = class_names if found not in (None, class_names) else None
        self._shape: torch.Size | None = None  # that of the first image, which is read now
        self._shape = first_readable(self).shape

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        file = self._files[index]
        try:
            with Image.open(file) as image:
                image.load()
        except _UNREADABLE as error:
            raise InvalidInput(f"{file} cannot be read as an image: {error}") from None
        prepared = image if self._prepare is None else self._prepare(image.convert("RGB"))
        return fit(to_tensor(prepared, where=file), self._shape, where=file), int(
            self.labels[index]
        )

    def check_shapes(self, ids: Sequence[int]) -> None:
        """Refuse an image of another size before a run. Only the headers of files are read."""
        for id in (
            ids if self._prepare is None else ()
        ):  # a preparation gives all images the same size
            try:
                with Image.open(self._files[id]) as image:
                    shape = (1 if image.mode in _GREY else 3, image.height, image.width)
            except _UNREADABLE:  # a damaged image is reported when it is certified
                continue
            fit(torch.empty(shape, device="meta"), self._shape, where=self._files[id])

    @cached_property
    def fingerprint(self) -> str:
        """The hash of the preparation, the names and sizes of all files, and the content of all or some files.

        In a large folder, reading all files would take too long, so only some are read.
        """
        digest = hashlib.sha256(
            b"" if self._prepare is None else self._prepare.__qualname__.encode()
        )
        if self._other_classes is not None:
            digest.update("\n".join(self._other_classes).encode())
        sizes = [file.stat().st_size for file in self._files]
        for file, size in zip(self._files, sizes, strict=True):
            digest.update(f"{file.relative_to(self.folder).as_posix()}\t{size}\n".encode())
        for index in hashed_inputs(len(self), size=sum(sizes)):
            digest.update(hashlib.sha256(self._files[index].read_bytes()).digest())
        return digest.hexdigest()


def to_tensor(image: Image.Image, *, where: object) -> Tensor:
    """The pixels of an image as floats in [0, 1], of shape (channels, height, width).

    A grey image has one channel, every other image three.
    """
    if image.mode[0] in "IF":
        raise InvalidInput(
            f"{where} has more than 8 bits per channel (mode {image.mode}): save it with 8"
        )
    pixels = np.array(image.convert("L" if image.mode in _GREY else "RGB"))
    values = torch.from_numpy(pixels).reshape(image.height, image.width, -1).permute(2, 0, 1)
    return values.float().div(255).contiguous()


def fit(image: Tensor, shape: torch.Size | None, *, where: object) -> Tensor:
    """Give an image the shape of the first image, or refuse it if its size differs. A grey image becomes coloured."""
    if shape is None:  # it is the first one
        return image
    if image.shape[1:] != shape[1:] or len(image) > shape[0]:
        advice = (
            "bring all images to one size, or use imagenet:DIR, which resizes and crops to 224x224"
        )
        if image.shape[1:] == shape[1:]:
            advice = "save all images in grey, or the first one in colour"
        raise InvalidInput(
            f"{where} is {_describe(image.shape)}, but the first image is {_describe(shape)}: {advice}"
        )
    return image.expand(shape)


def load(folder: Path, *, train: bool) -> ImageFolder:
    """The images of a folder, or of its subfolder for training or testing."""
    name = folder.resolve().name
    found = ImageFolder(folder, train=train, name=name)
    if found.class_names and not all(map(_is_number, found.class_names)):
        shown = ", ".join(
            f"{number} {name}" for number, name in enumerate(found.class_names[:_SHOWN_CLASSES])
        )
        log.warning(
            "the labels of %s are the positions of its %d class folders: %s",
            name,
            len(found.class_names),
            shown,
        )
    return found


def load_imagenet(place: str | None, *, train: bool) -> ImageFolder:
    """The validation folder of ImageNet, resized and cropped as for published certificates."""
    if place is None:
        raise InvalidInput(f"imagenet needs its folder: write imagenet:DIR, and {_DOWNLOAD}")
    if not Path(place).is_dir():
        raise InvalidInput(f"no ImageNet at {place}: {_DOWNLOAD}")
    dataset = ImageFolder(Path(place), train=train, name="imagenet", prepare=resize_and_crop)
    if dataset.labels[0] == NO_CLASS:
        raise InvalidInput(f"{dataset.folder} holds images but no class folders: {_DOWNLOAD}")
    if dataset.class_names is not None and len(dataset.class_names) != _IMAGENET_CLASSES:
        found = f"{dataset.folder} has {len(dataset.class_names)} class folders, not {_IMAGENET_CLASSES}"
        warnings.warn(
            f"{found}: labels are the numbers of these folders, not those of ImageNet", stacklevel=3
        )
    return dataset


def resize_and_crop(image: Image.Image) -> Image.Image:
    """Resize the shorter edge to 256 and crop the central 224x224 pixels."""
    short = min(image.size)
    width, height = (_SHORT_EDGE * edge // short for edge in image.size)
    left, top = round((width - _CROP) / 2), round((height - _CROP) / 2)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    return resized.crop((left, top, left + _CROP, top + _CROP))


def _training_classes(folder: Path) -> tuple[str, ...] | None:
    """The classes of the training part, which number those of the test part; None if there is no such part."""
    training = folder / "train"
    if not training.is_dir() or _part(folder, train=False) == folder:
        return None
    return tuple(sorted(path.name for path in _visible(training) if path.is_dir())) or None


def _part(folder: Path, *, train: bool) -> Path:
    """The subfolder `train`, or `val` or `test`; the folder itself if there is none."""
    names = ["train"] if train else ["val", "test"]
    return next((folder / name for name in names if (folder / name).is_dir()), folder)


def _class_numbers(names: Sequence[str]) -> dict[str, int]:
    """The label of each class folder: its name if all names are different numbers, else its position."""
    if all(map(_is_number, names)) and len(set(map(int, names))) == len(names):
        return {name: int(name) for name in sorted(names, key=int)}
    return {name: position for position, name in enumerate(names)}


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def _list(folder: Path) -> tuple[tuple[str, ...] | None, list[Path]]:
    """The names of the class folders, None if there are none, and the files."""
    loose = _images(folder)
    per_class = {path.name: _images(path) for path in sorted(_visible(folder)) if path.is_dir()}
    if bool(loose) == bool(per_class) or not all(per_class.values()):
        empty = next(
            (f", and {name} holds no images" for name, images in per_class.items() if not images),
            "",
        )
        raise InvalidInput(
            f"{folder} must hold one subfolder of images per class, or only images; it holds {len(loose)} images and "
            f"{len(per_class)} subfolders{empty}"
        )
    return (
        (None, loose)
        if loose
        else (tuple(per_class), [file for images in per_class.values() for file in images])
    )


def _images(folder: Path) -> list[Path]:
    return sorted(
        path for path in _visible(folder) if path.suffix.lower() in SUFFIXES and path.is_file()
    )


def _visible(folder: Path) -> Iterator[Path]:
    """The entries of a folder without the files of the operating system, such as `.DS_Store` and `__MACOSX`."""
    return (
        path
        for path in folder.iterdir()
        if not path.name.startswith(".") and path.name != "__MACOSX"
    )


def _describe(shape: Sequence[int]) -> str:
    channels, height, width = shape
    return f"{width}x{height} with {channels} channel{'s' if channels > 1 else ''}"

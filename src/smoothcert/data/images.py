"""A folder of images, with one subfolder per class or, if the labels are unknown, without subfolders."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from smoothcert._check import NO_CLASS
from smoothcert.data.probes import probes
from smoothcert.errors import InvalidInput

SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
_MOST_UNREADABLE = 100


class ImageFolder:
    """A folder of images, sorted by class folder and then by file name, which is the order of published ids.

    If the first readable image is grey, images have one channel, otherwise three.

    Args:
        folder: The folder.
        name: The name of the data set, for records and messages.
        prepare: Applied to each image, for example to resize it. Without it, all images must have the same size.
        class_names: All classes, if there may be some without images here. Default: those that have a folder.
    """

    levels = 255  # see `ArrayDataset.levels`

    def __init__(
        self,
        folder: Path,
        *,
        name: str,
        prepare: Callable[[Image.Image], Image.Image] | None = None,
        class_names: tuple[str, ...] | None = None,
    ) -> None:
        self.name = name
        found, self._files, labels = _list(folder)
        self.labels = np.array(labels, np.int64)
        self.class_names, self._fewer_classes = found, False
        if found is not None and class_names is not None and found != class_names:
            if unknown := set(found) - set(class_names):
                raise InvalidInput(f"{folder} has the class {min(unknown)}, which the training part does not have")
            self.labels = np.array([class_names.index(name) for name in found], np.int64)[self.labels]
            self.class_names, self._fewer_classes = class_names, True
        self._folder = folder
        self._prepare = prepare
        self._shape = self._first_shape()

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        file = self._files[index]
        return fit(self._read(file), self._shape, where=file), int(self.labels[index])

    @cached_property
    def fingerprint(self) -> str:
        """The hash of the preparation, the names and sizes of all files, and the content of all or some files.

        In a large folder, reading all files would take too long, so only some are read.
        """
        digest = hashlib.sha256(b"" if self._prepare is None else self._prepare.__qualname__.encode())
        if self._fewer_classes:
            digest.update("\n".join(self.class_names or ()).encode())
        sizes = [file.stat().st_size for file in self._files]
        for file, size in zip(self._files, sizes, strict=True):
            digest.update(f"{file.relative_to(self._folder).as_posix()}\t{size}\n".encode())
        for index in probes(len(self), size=sum(sizes)):
            digest.update(hashlib.sha256(self._files[index].read_bytes()).digest())
        return digest.hexdigest()

    def _first_shape(self) -> torch.Size:
        """The shape of the first image that can be read: a damaged file matters only where it is certified."""
        failed: InvalidInput | None = None
        for file in self._files[:_MOST_UNREADABLE]:
            try:
                return self._read(file).shape
            except InvalidInput as error:
                failed = failed or error
        assert failed is not None
        raise failed

    def _read(self, file: Path) -> Tensor:
        try:
            with Image.open(file) as image:
                image.load()
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise InvalidInput(f"{file} cannot be read as an image: {error}") from None
        return to_tensor(image if self._prepare is None else self._prepare(image.convert("RGB")), where=file)


def to_tensor(image: Image.Image, *, where: object) -> Tensor:
    """The pixels of an image as floats in [0, 1], of shape (channels, height, width).

    A grey image has one channel, every other image three.
    """
    if image.mode[0] in "IF":
        raise InvalidInput(f"{where} has more than 8 bits per channel (mode {image.mode}): save it with 8")
    pixels = np.array(image.convert("L" if image.mode in ("1", "L") else "RGB"))
    values = torch.from_numpy(pixels).reshape(image.height, image.width, -1).permute(2, 0, 1)
    return values.float().div(255).contiguous()


def fit(image: Tensor, shape: torch.Size, *, where: object) -> Tensor:
    """Give an image the shape of the first image, or refuse it if its size differs."""
    if image.shape[0] == 1:
        image = image.expand(shape[0], -1, -1)
    if image.shape != shape:
        raise InvalidInput(
            f"{where} is {_describe(image.shape)}, but the first image is {_describe(shape)}: bring all images to one "
            "size, or use imagenet:DIR, which resizes and crops to 224x224"
        )
    return image


def load(folder: Path, *, train: bool) -> ImageFolder:
    """The images of a folder, or of its subfolder for training or testing."""
    return ImageFolder(
        part(folder, train=train), name=folder.resolve().name, class_names=training_classes(folder, train=train)
    )


def training_classes(folder: Path, *, train: bool) -> tuple[str, ...] | None:
    """The classes of the training part, which number those of the test part; None if there is no such part."""
    training = folder / "train"
    if train or not training.is_dir() or part(folder, train=False) == folder:
        return None
    return tuple(sorted(path.name for path in _visible(training) if path.is_dir())) or None


def part(folder: Path, *, train: bool) -> Path:
    """The subfolder `train`, or `val` or `test`; the folder itself if there is none."""
    names = ["train"] if train else ["val", "test"]
    return next((folder / name for name in names if (folder / name).is_dir()), folder)


def _list(folder: Path) -> tuple[tuple[str, ...] | None, list[Path], list[int]]:
    """The class names, files and labels of a folder."""
    if not folder.is_dir():
        raise InvalidInput(f"no folder of images at {folder}")
    loose = _images(folder)
    subfolders = sorted(path for path in _visible(folder) if path.is_dir())
    if loose and not subfolders:
        return None, loose, [NO_CLASS] * len(loose)
    if loose:
        raise InvalidInput(
            f"{folder} has both images ({loose[0].name}) and subfolders ({subfolders[0].name}): expected one subfolder "
            "per class, or only images"
        )
    per_class = [_images(subfolder) for subfolder in subfolders]
    if empty := [subfolder for subfolder, images in zip(subfolders, per_class, strict=True) if not images]:
        raise InvalidInput(f"{empty[0]} holds no images: expected one subfolder with images per class in {folder}")
    if not per_class:
        raise InvalidInput(f"{folder} holds no images: expected one subfolder per class, or only images")
    files = [file for images in per_class for file in images]
    labels = [label for label, images in enumerate(per_class) for _ in images]
    return tuple(subfolder.name for subfolder in subfolders), files, labels


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in _visible(folder) if path.suffix.lower() in SUFFIXES and path.is_file())


def _visible(folder: Path) -> Iterator[Path]:
    """The entries of a folder without the files of the operating system, such as `.DS_Store` and `__MACOSX`."""
    return (path for path in folder.iterdir() if not path.name.startswith(".") and path.name != "__MACOSX")


def _describe(shape: torch.Size) -> str:
    channels, height, width = shape
    return f"{width}x{height} with {channels} channel{'s' if channels > 1 else ''}"

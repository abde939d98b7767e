"""A folder of images: one subfolder per class, or all in one folder with unknown labels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from smoothcert.datasets.base import UNKNOWN
from smoothcert.datasets.probes import probes
from smoothcert.errors import InvalidInput

SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})


class ImageFolder:
    """Images in the order of their class folders and, within these, of their file names: the order of published ids.

    `prepare` is applied to each image; without it, all must have one size. Grey images have one channel where the
    first image is grey.
    """

    def __init__(self, folder: Path, *, name: str, prepare: Callable[[Image.Image], Image.Image] | None = None) -> None:
        self.name = name
        self.class_names, self._files, labels = _list(folder)
        self.labels = np.array(labels, np.int64)
        self._folder = folder
        self._prepare = prepare
        self._shape = self._read(self._files[0]).shape

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        file = self._files[index]
        return fit(self._read(file), self._shape, where=file), int(self.labels[index])

    @cached_property
    def fingerprint(self) -> str:
        """Over preparation, names and sizes of the files, and the bytes of all or, in a large folder, of some."""
        digest = hashlib.sha256(b"" if self._prepare is None else self._prepare.__qualname__.encode())
        sizes = [file.stat().st_size for file in self._files]
        for file, size in zip(self._files, sizes, strict=True):
            digest.update(f"{file.relative_to(self._folder).as_posix()}\t{size}\n".encode())
        for index in probes(len(self), size=sum(sizes)):
            digest.update(hashlib.sha256(self._files[index].read_bytes()).digest())
        return digest.hexdigest()

    def _read(self, file: Path) -> Tensor:
        try:
            with Image.open(file) as image:
                image.load()
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise InvalidInput(f"{file} cannot be read as an image: {error}") from None
        return to_tensor(image if self._prepare is None else self._prepare(image.convert("RGB")), where=file)


def to_tensor(image: Image.Image, *, where: object) -> Tensor:
    """Pixels as floats in [0, 1] of shape (channels, height, width): one channel if the image is grey, else three."""
    if image.mode[0] in "IF":
        raise InvalidInput(f"{where} has more than 8 bits per channel (mode {image.mode}): save it with 8")
    pixels = np.array(image.convert("L" if image.mode in ("1", "L") else "RGB"))
    values = torch.from_numpy(pixels).reshape(image.height, image.width, -1).permute(2, 0, 1)
    return values.float().div(255).contiguous()


def fit(image: Tensor, shape: torch.Size, *, where: object) -> Tensor:
    """The image with the shape of the first one: grey becomes as many channels as that has, another size is refused."""
    if image.shape[0] == 1:
        image = image.expand(shape[0], -1, -1)
    if image.shape != shape:
        raise InvalidInput(
            f"{where} is {_describe(image.shape)}, but the first image is {_describe(shape)}: bring all images to one "
            "size, or use imagenet:DIR, which resizes and crops to 224x224"
        )
    return image


def load(folder: Path, *, train: bool) -> ImageFolder:
    """The images of a folder, or of its part for training or testing."""
    return ImageFolder(part(folder, train=train), name=folder.resolve().name)


def part(folder: Path, *, train: bool) -> Path:
    """The `train`, or the `val` or `test`, folder within a data set's folder; the folder itself where there is none."""
    wanted = ["train"] if train else ["val", "test"]
    return next((folder / name for name in wanted if (folder / name).is_dir()), folder)


def _list(folder: Path) -> tuple[tuple[str, ...] | None, list[Path], list[int]]:
    """Class names, files and labels."""
    if not folder.is_dir():
        raise InvalidInput(f"no folder of images at {folder}")
    loose = _images(folder)
    subfolders = sorted(path for path in _visible(folder) if path.is_dir())
    if loose and not subfolders:
        return None, loose, [UNKNOWN] * len(loose)
    if loose:
        raise InvalidInput(
            f"{folder} has images ({loose[0].name}) beside subfolders ({subfolders[0].name}): expected one subfolder "
            "per class, or images alone"
        )
    per_class = [_images(subfolder) for subfolder in subfolders]
    if empty := [subfolder for subfolder, images in zip(subfolders, per_class, strict=True) if not images]:
        raise InvalidInput(f"{empty[0]} holds no images: expected one subfolder per class in {folder}, with its images")
    if not per_class:
        raise InvalidInput(f"{folder} holds no images: expected one subfolder per class, or images alone")
    files = [file for images in per_class for file in images]
    labels = [label for label, images in enumerate(per_class) for _ in images]
    return tuple(subfolder.name for subfolder in subfolders), files, labels


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in _visible(folder) if path.suffix.lower() in SUFFIXES and path.is_file())


def _visible(folder: Path) -> Iterator[Path]:
    """Without what systems leave behind: `.DS_Store`, `._0.png`, `__MACOSX`."""
    return (path for path in folder.iterdir() if not path.name.startswith(".") and path.name != "__MACOSX")


def _describe(shape: torch.Size) -> str:
    channels, height, width = shape
    return f"{width}x{height} with {channels} channel{'s' if channels > 1 else ''}"

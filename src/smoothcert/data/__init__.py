"""Data sets and the sources that they come from.

`load_dataset` takes `fashion-mnist`, `mnist`, `cifar10`, `imagenet:DIR`, `hf:NAME_OR_FOLDER`, an `.npz` file or a
folder of images. To add a source, write a function `load(place, *, train)` and add it to `_SOURCES`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from smoothcert.data import images
from smoothcert.data.arrays import ArrayDataset, load_npz
from smoothcert.data.base import Dataset
from smoothcert.data.selection import select_ids
from smoothcert.data.wrap import as_dataset
from smoothcert.errors import InvalidInput

__all__ = ["ArrayDataset", "Dataset", "load_dataset", "select_ids"]

_SOURCES = {
    "cifar10": "published:load_cifar10",
    "fashion-mnist": "published:load_fashion_mnist",
    "hf": "huggingface:load",
    "imagenet": "images:load_imagenet",
    "mnist": "published:load_mnist",
}


def find_dataset(data: Any, labels: Any = None) -> Dataset:
    """The data set that the caller names or has, as `certify` takes it."""
    return as_dataset(load_dataset(data) if isinstance(data, (str, Path)) else data, labels)


def load_dataset(spec: str | Path, *, train: bool = False) -> Dataset:
    """Load a data set by name.

    Args:
        spec: `fashion-mnist` (500 bundled test images; its training part is downloaded), `mnist`, `cifar10`,
            `imagenet:DIR`, `hf:NAME_OR_FOLDER`, an `.npz` file or a folder of images. `fashion-mnist:DIR`, `mnist:DIR`
            and `cifar10:DIR` read files that are there, instead of downloading them to `SMOOTHCERT_DATA`
            (~/.cache/smoothcert).
        train: Whether to load the training part instead of the test part. An `.npz` file and a folder without `train`
            and `val` subfolders are the same for both.

    Raises:
        InvalidInput: There is no such data, or it cannot be read.
        MissingExtra: The source needs a package that is not installed.

    >>> images = load_dataset("fashion-mnist")
    >>> len(images), images[0][0].shape, images[0][1]
    (500, torch.Size([1, 28, 28]), 9)
    """
    try:
        return _load(str(spec), train)
    except OSError as error:
        raise InvalidInput(f"cannot read {error.filename or spec}: {error.strerror or error}") from None


def _load(spec: str, train: bool) -> Dataset:
    source, colon, place = spec.partition(":")
    if source in _SOURCES:
        if colon and not place:
            raise InvalidInput(f"{spec} does not name a folder: write {source}:DIR")
        load: Callable[..., Dataset] = resolve_name(f"{__name__}.{_SOURCES[source]}")
        return load(os.path.expanduser(place) or None, train=train)
    path = Path(os.path.expanduser(spec))
    if path.suffix == ".npz":
        return load_npz(path)
    if path.is_dir():
        return images.load(path, train=train)
    raise InvalidInput(
        f"{spec} is neither an .npz file nor a folder of images; data sets by name are fashion-mnist, mnist, cifar10, "
        "imagenet:DIR and hf:NAME"
    )

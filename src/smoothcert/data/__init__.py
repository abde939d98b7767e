"""Data sets, the sources that they come from, and the choice of the inputs to certify.

`load_dataset` takes `fashion-mnist`, `mnist`, `cifar10`, `imagenet:DIR`, `hf:NAME_OR_FOLDER`, an `.npz` file or a
folder of images. To add a source, write a function `load(place, *, train)` and add it to `_SOURCES`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from smoothcert import _check
from smoothcert.data import images
from smoothcert.data.arrays import ArrayDataset, load_npz
from smoothcert.data.base import Dataset
from smoothcert.data.coerce import LabelledDataset, as_dataset
from smoothcert.errors import InvalidInput, did_you_mean, number_of, setting

__all__ = ["ArrayDataset", "Dataset", "load_dataset", "select_ids"]

_SOURCES = {
    "cifar10": "mnist_cifar:load_cifar10",
    "fashion-mnist": "mnist_cifar:load_fashion_mnist",
    "hf": "huggingface:load",
    "imagenet": "images:load_imagenet",
    "mnist": "mnist_cifar:load_mnist",
}


def find_dataset(data: Any, labels: Any = None) -> Dataset:
    """The data set that the caller names or has, as `certify` takes it."""
    if (
        labels is None
        and isinstance(data, tuple)
        and len(data) == 2
        and isinstance(data[0], (str, Path))
    ):
        data, labels = data
    found = load_dataset(data) if isinstance(data, (str, Path)) else data
    return found if found is not data and labels is None else as_dataset(found, labels)


def in_memory(data: Any, dataset: Dataset) -> str:
    """What the caller had in memory, so that the name of the data set does not lead to it: "data", "labels" or ""."""
    if isinstance(dataset, LabelledDataset):
        return "labels"
    named = isinstance(data, (str, Path)) or (
        data is dataset and dataset.name.partition(":")[0] in _SOURCES
    )
    return "" if named else "data"


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
        raise InvalidInput(
            f"cannot read {error.filename or spec}: {error.strerror or error}"
        ) from None


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
    if path.suffix == ".npy":
        raise InvalidInput(
            f'{spec} holds one array: save inputs and labels with np.savez("data.npz", x=inputs, y=labels)'
        )
    names = "; data sets by name are fashion-mnist, mnist, cifar10, imagenet:DIR and hf:NAME"
    hint = did_you_mean(source, _SOURCES) or names
    raise InvalidInput(f"{spec} is neither an .npz file nor a folder of images{hint}")


def select_ids(
    count: int,
    *,
    skip: int | None = None,
    limit: int | None = None,
    ids: str | Sequence[int] | None = None,
    shard: str | tuple[int, int] | None = None,
) -> list[int]:
    """The ids of the inputs to certify.

    Args:
        count: The number of inputs in the data set.
        skip: Take every `skip`-th input. By default, all.
        limit: Take at most this many inputs.
        ids: Take these inputs, for example [0, 5] or "0,5,10-20". It excludes `skip`.
        shard: Of these inputs, take the part of one job among several: "3/16" or (3, 16) is the third of 16 parts.

    >>> select_ids(10_000, skip=20, limit=3)
    [0, 20, 40]
    >>> select_ids(10_000, ids="7,100-102")
    [7, 100, 101, 102]
    >>> select_ids(10, shard="2/3")
    [1, 4, 7]
    """
    if ids is not None and not isinstance(ids, (str, Iterable)):
        raise InvalidInput(
            f"{setting('ids', ids)} is one number: {setting('ids', [ids])} or {setting('limit', ids)}?"
        )
    if ids is None:
        chosen = list(range(0, count, _check.whole("skip", 1 if skip is None else skip, least=1)))
    elif skip is not None:
        raise InvalidInput(
            f"{setting('skip', skip)} and {setting('ids', ids)} exclude one another: give one of them"
        )
    else:
        numbers = (
            _parse(ids, count)
            if isinstance(ids, str)
            else [_check.whole("each id", id) for id in ids]
        )
        chosen = list(dict.fromkeys(numbers))
        if outside := [id for id in chosen if id >= count]:
            raise InvalidInput(
                f"id {outside[0]} is out of range: the data has the ids 0 to {count - 1}"
            )
    if limit is not None:
        chosen = chosen[: _check.whole("limit", limit, least=1)]
    if not chosen:
        raise InvalidInput("there are no inputs to certify: the data is empty, or no ids are given")
    if shard is None:
        return chosen
    part, parts = parse_shard(shard)
    if parts > len(chosen):
        raise InvalidInput(
            f"{setting('shard', f'{part}/{parts}')}: {number_of(len(chosen), 'input')} cannot be cut into {parts} parts"
        )
    return chosen[part - 1 :: parts]


def parse_shard(shard: str | tuple[int, int]) -> tuple[int, int]:
    """Which part of how many a shard is.

    >>> parse_shard("3/16")
    (3, 16)
    """
    match = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", shard) if isinstance(shard, str) else None
    try:
        part, parts = (int(match[1]), int(match[2])) if match else map(int, shard)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"{setting('shard', shard)} must be a part and the number of parts, as in 3/16"
        ) from None
    if not 1 <= part <= parts:
        last = max(parts, 1)
        raise InvalidInput(
            f"{setting('shard', f'{part}/{parts}')} must be one of 1/{last} to {last}/{last}"
        )
    return part, parts


def _parse(text: str, count: int) -> list[int]:
    """The ids in a text like "0,5,10-20"."""
    ids: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise InvalidInput(f"ids must be numbers and ranges like 0,5,10-20, got {text!r}")
        # A long range stops after the first id outside of the data. The caller refuses that id.
        ids.extend(range(first, max(min(last, count), first) + 1))
    return ids

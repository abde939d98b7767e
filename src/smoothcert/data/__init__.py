"""Data sets, the sources that they come from, and the choice of the inputs to certify.

`load_dataset` takes `fashion-mnist`, `mnist`, `cifar10`, `imagenet:DIR`, `hf:NAME_OR_FOLDER`, an
`.npz` file or a folder of images. To add a source, write a function `load(place, *, train)` and add
it to `_SOURCES`. This module and what it loads do not import torch, because reports show inputs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from smoothcert import _check
from smoothcert.data import images
from smoothcert.data.base import ArrayDataset, Dataset, load_npz
from smoothcert.errors import InvalidInput, did_you_mean, number_of

__all__ = ["ArrayDataset", "Dataset", "load_dataset", "select_ids"]

_SOURCES = {
    "cifar10": "mnist_cifar:load_cifar10",
    "fashion-mnist": "mnist_cifar:load_fashion_mnist",
    "hf": "huggingface:load",
    "imagenet": "images:load_imagenet",
    "mnist": "mnist_cifar:load_mnist",
    "resized": "resized:load",
}

_NOT_DOWNLOADED = {"hf": "NAME", "imagenet": "DIR", "resized": "224:DATA"}
"""Sources that need a place, and what it is."""


def find_dataset(data: Any, labels: Any = None) -> Dataset:
    """The data set that the caller names or has, as `certify` takes it.

    A tuple of two is data and labels.
    """
    from smoothcert.data.coerce import as_dataset  # which imports torch

    if labels is None and isinstance(data, tuple) and len(data) == 2:
        data, labels = data
    if not isinstance(data, (str, Path)):
        return as_dataset(data, labels)
    dataset = load_dataset(data)
    return dataset if labels is None else as_dataset(dataset, labels)


def in_memory(data: Any, dataset: Dataset) -> str:
    """What the caller had in memory: "data", "labels" or "".

    The name of such a data set does not lead to it.
    """
    from smoothcert.data.coerce import LabelledDataset  # which imports torch

    if isinstance(dataset, LabelledDataset):
        return "labels"
    source = dataset.name.partition(":")[0]
    if isinstance(data, (str, Path)) or (data is dataset and source in _SOURCES):
        return ""
    return "data"


def load_dataset(spec: str | Path, *, train: bool = False) -> Dataset:
    """Load a data set by name.

    Args:
        spec: `fashion-mnist` (500 bundled test images; its training part is downloaded), `mnist`,
            `cifar10`, `imagenet:DIR`, `hf:NAME_OR_FOLDER`, an `.npz` file or a folder of images.
            `fashion-mnist:DIR`, `mnist:DIR` and `cifar10:DIR` read files that are there, instead of
            downloading them to `SMOOTHCERT_DATA` (~/.cache/smoothcert). `resized:224:DATA` brings
            the pictures of any of these to one size, before the noise.
        train: Whether to load the training part instead of the test part. An `.npz` file and a
            folder without `train` and `val` subfolders are the same for both.

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
            "unreadable-data",
            "cannot read {file}: {reason}",
            file=error.filename or spec,
            reason=error.strerror or str(error),
        ) from None


def _load(spec: str, train: bool) -> Dataset:
    source, colon, place = spec.partition(":")
    if source in _SOURCES:
        if not place and (colon or source in _NOT_DOWNLOADED):
            raise InvalidInput(
                "no-place",
                "{spec} does not say where the data is: write {source}:{place}",
                spec=spec,
                source=source,
                place=_NOT_DOWNLOADED.get(source, "DIR"),
            )
        load: Callable[..., Dataset] = resolve_name(f"{__name__}.{_SOURCES[source]}")
        return load(os.path.expanduser(place) or None, train=train)
    path = Path(os.path.expanduser(spec))
    if path.suffix == ".npz":
        return load_npz(path)
    if path.is_dir():
        return images.load(path, train=train)
    names = "; data sets by name are fashion-mnist, mnist, cifar10, imagenet:DIR and hf:NAME"
    raise InvalidInput(
        "unknown-data",
        '{spec} is neither an .npz file (np.savez("data.npz", x=inputs, y=labels)) nor a folder of '
        "images{hint}",
        spec=spec,
        hint=did_you_mean(source, _SOURCES) or names,
    )


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
        ids: Take these inputs, for example [0, 5] or "0,5,10-20", or those that a mask selects. It
            excludes `skip`.
        shard: Of these inputs, take the part of one job among several: "3/16" or (3, 16) is the
            third of 16 parts.

    >>> select_ids(10_000, skip=20, limit=3)
    [0, 20, 40]
    >>> select_ids(10_000, ids="7,100-102")
    [7, 100, 101, 102]
    >>> select_ids(10, shard="2/3")
    [1, 4, 7]
    """
    if ids is None:
        step = _check.whole("skip", 1 if skip is None else skip, least=1)
        chosen = list(range(0, count, step))
    elif skip is None:
        chosen = _listed(ids, count)
    else:
        raise InvalidInput(
            "skip-and-ids",
            "`skip={skip}` and `ids={ids}` exclude one another: give one of them",
            skip=skip,
            ids=ids,
        )
    if limit is not None:
        chosen = chosen[: _check.whole("limit", limit, least=1)]
    if not chosen:
        raise InvalidInput(
            "no-inputs", "there are no inputs to certify: the data is empty, or no ids are given"
        )
    if shard is None:
        return chosen
    part, parts = parse_shard(shard)
    if parts > len(chosen):
        raise InvalidInput(
            "too-many-shards",
            "`shard={shard}`: {inputs} cannot be cut into {parts} parts",
            shard=f"{part}/{parts}",
            inputs=number_of(len(chosen), "input"),
            parts=parts,
        )
    return chosen[part - 1 :: parts]


def _listed(ids: str | Sequence[int], count: int) -> list[int]:
    """The ids that the caller lists, each once."""
    listed: list[Sequence[int]]
    if not isinstance(ids, str):
        listed = [_check.ids(ids, count=count)]
    else:
        listed = [_check.span(part) for part in ids.split(",")]
        if not all(listed):
            raise InvalidInput(
                "not-ids", "ids must be numbers and ranges like 0,5,10-20, got {ids!r}", ids=ids
            )
    chosen: dict[int, None] = {}
    for id in chain.from_iterable(listed):
        if id >= count:
            raise InvalidInput(
                "id-out-of-range",
                "id {id} is out of range: the data has the ids 0 to {last}",
                id=id,
                last=count - 1,
            )
        chosen[id] = None
    return list(chosen)


def parse_shard(shard: str | tuple[int, int]) -> tuple[int, int]:
    """Which part of how many a shard is.

    >>> parse_shard("3/16")
    (3, 16)
    """
    if isinstance(shard, tuple):
        shard = "/".join(map(str, shard))
    match = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", str(shard))
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise InvalidInput(
            "not-shard",
            "`shard={shard}` must be a part and the number of parts, from 1/16 to 16/16",
            shard=shard,
        )
    return int(match[1]), int(match[2])

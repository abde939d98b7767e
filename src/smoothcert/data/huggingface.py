"""Data sets of Hugging Face, by name or from a folder: `hf:uoft-cs/cifar10`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from smoothcert._check import NO_CLASS
from smoothcert.data.base import check_labels
from smoothcert.data.images import PictureDataset
from smoothcert.errors import InvalidInput, first_line, needs

_TRAINING_SPLITS = ("train",)
_TEST_SPLITS = ("test", "validation", "val", "valid")
_SAVED = ("state.json", "dataset_dict.json")
"""Files that `save_to_disk` writes."""


class HuggingFaceDataset(PictureDataset):
    """A table of images: its first column of images, and of class labels if it has one."""

    def __init__(self, table: Any, *, name: str) -> None:
        from datasets import ClassLabel, Image

        self.name = name
        columns = table.features.items()
        images = [column for column, kind in columns if isinstance(kind, Image)]
        classes = [column for column, kind in columns if isinstance(kind, ClassLabel)]
        if not images:
            raise InvalidInput(
                "no-image-column",
                "{name} has no column of images; it has {columns}",
                name=name,
                columns=", ".join(table.features),
            )
        self._images = table.select_columns(images[0])
        self._column = images[0]
        self.labels = np.full(len(table), NO_CLASS, np.int64)
        if classes:
            self.class_names = tuple(table.features[classes[0]].names)
            self.labels = np.asarray(table.with_format("numpy")[classes[0]][:], np.int64)
            check_labels(self.labels, classes=len(self.class_names), name=name)
        self.fingerprint = str(table._fingerprint)
        self._settle_shape()

    def opened(self, index: int) -> Any:
        return self._images[index][self._column]


def load(place: str, *, train: bool) -> HuggingFaceDataset:
    """One split of a published data set, or of a folder that `save_to_disk` wrote."""
    with needs("hf", what=f"hf:{place}"):
        import datasets

    is_saved = any((Path(place) / file).is_file() for file in _SAVED)
    read = datasets.load_from_disk if is_saved else datasets.load_dataset
    try:
        table = read(place)
    except (OSError, ValueError, RuntimeError, IndexError) as error:  # IndexError: an empty folder
        raise InvalidInput(
            "no-hf-data",
            "cannot get the data set hf:{place} ({reason}): check the name and the connection, or "
            "give a folder written by its save_to_disk",
            place=place,
            reason=first_line(error).rstrip("."),
        ) from None
    if isinstance(table, dict):
        table = table[_split(list(table), place, train=train)]
    return HuggingFaceDataset(table, name=f"hf:{place}")


def _split(splits: list[str], place: str, *, train: bool) -> str:
    """The split for training or for testing."""
    names = _TRAINING_SPLITS if train else _TEST_SPLITS
    for name in names:
        if name in splits:
            return name
    raise InvalidInput(
        "no-split",
        "hf:{place} has no {split} split; it has {splits}",
        place=place,
        split=names[0],
        splits=", ".join(splits),
    )

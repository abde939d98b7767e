"""Data sets of Hugging Face, by name or from a folder: `hf:uoft-cs/cifar10`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import Size, Tensor

from smoothcert._check import NO_CLASS
from smoothcert.data.base import check_labels, first_readable
from smoothcert.data.images import fit, to_tensor
from smoothcert.errors import InvalidInput, first_line, needs

_SPLITS = {True: ("train",), False: ("test", "validation", "val", "valid")}


class HuggingFaceDataset:
    """A table of images: its first column of images and, if there is one, its first column of class labels."""

    levels = 255  # see `ArrayDataset.levels`

    def __init__(self, table: Any, *, name: str) -> None:
        from datasets import ClassLabel, Image

        self.name = name
        images = [column for column, kind in table.features.items() if isinstance(kind, Image)]
        classes = [
            column for column, kind in table.features.items() if isinstance(kind, ClassLabel)
        ]
        if not images:
            raise InvalidInput(
                f"{name} has no column of images; it has {', '.join(table.features)}"
            )
        if not len(table):
            raise InvalidInput(f"{name} is empty")
        self._images = table.select_columns(images[0])
        self._column = images[0]
        self.class_names = tuple(table.features[classes[0]].names) if classes else None
        labels = (
            table.with_format("numpy")[classes[0]][:] if classes else np.full(len(table), NO_CLASS)
        )
        self.labels = np.asarray(labels, np.int64)
        check_labels(
            self.labels, classes=len(self.class_names) if self.class_names else None, name=name
        )
        self.fingerprint = str(table._fingerprint)
        self._shape: Size | None = None  # that of the first image, which is read now
        self._shape = first_readable(self).shape

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        where = f"image {index} of {self.name}"
        try:
            image = self._images[index][self._column]
        except OSError as error:
            raise InvalidInput(f"{where} cannot be read: {error}") from None
        return fit(to_tensor(image, where=where), self._shape, where=where), int(self.labels[index])


def load(place: str | None, *, train: bool) -> HuggingFaceDataset:
    """One split of a published data set, or of a folder that `save_to_disk` wrote."""
    if place is None:
        raise InvalidInput("hf needs a name or a folder: write hf:NAME")
    with needs("hf", what=f"hf:{place}"):
        import datasets

    saved = any((Path(place) / file).is_file() for file in ("state.json", "dataset_dict.json"))
    try:
        found = datasets.load_from_disk(place) if saved else datasets.load_dataset(place)
    except (
        OSError,
        ValueError,
        RuntimeError,
        IndexError,
    ) as error:  # an empty folder raises IndexError
        raise InvalidInput(
            f"cannot get the data set hf:{place} ({first_line(error).rstrip('.')}): check the name and the connection, "
            "or give a folder written by its save_to_disk"
        ) from None
    if isinstance(found, dict):
        split = next((name for name in _SPLITS[train] if name in found), None)
        if split is None:
            raise InvalidInput(
                f"hf:{place} has no {_SPLITS[train][0]} split; it has {', '.join(found)}"
            )
        found = found[split]
    return HuggingFaceDataset(found, name=f"hf:{place}")

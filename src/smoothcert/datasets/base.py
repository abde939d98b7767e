"""What a data set is to smoothcert, and the checks that all of them share."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from smoothcert.errors import InvalidInput

UNKNOWN = -1
"""The label of an input whose class is not known."""


class Dataset(Protocol):
    """Inputs by number; the number is the id in a certificate."""

    @property
    def name(self) -> str: ...

    @property
    def class_names(self) -> tuple[str, ...] | None: ...

    @property
    def fingerprint(self) -> str:
        """Stable identity of the content, cheap to find: equal for equal data wherever it lies."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Input `index` as float32 in [0, 1], and its label (-1 where it is unknown)."""


def check_labels(labels: NDArray[np.int64], *, classes: int | None, name: str) -> None:
    """Refuse a label that a classifier of so many classes cannot answer with."""
    wrong = np.flatnonzero((labels < UNKNOWN) | (labels >= (np.inf if classes is None else classes)))
    if wrong.size:
        last = "" if classes is None else f" to {classes - 1}"
        raise InvalidInput(
            f"{name}: label {labels[wrong[0]]} of input {wrong[0]} is out of range; labels are numbers from 0{last}, "
            "or -1 for unknown"
        )


def require_files(folder: Path, names: list[str], *, download: str) -> list[Path]:
    """The files of a folder, or the error that says what to download."""
    if absent := [name for name in names if not (folder / name).is_file()]:
        raise InvalidInput(f"{folder} has no {', '.join(absent)}: {download}")
    return [folder / name for name in names]

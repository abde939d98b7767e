"""The interface of a data set, and what all data sets share."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from smoothcert._check import NO_CLASS
from smoothcert.errors import InvalidInput

_MOST_UNREADABLE = 100
_FULLY_HASHED_BYTES = 2**26
_HASHED_INPUTS = 16


class Dataset(Protocol):
    """A sequence of inputs with labels. The index of an input is its id in a certificate.

    A data set whose values are all multiples of 1/255 may say so in an attribute `levels = 255`; see `ArrayDataset`.
    One that knows shapes without reading inputs may refuse inputs of another shape in a method `check_shapes(ids)`.
    """

    @property
    def name(self) -> str:
        """The name of the data set, for records and messages."""

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes, if they are known."""

    @property
    def fingerprint(self) -> str:
        """A hash that identifies the content. It does not depend on where the data is stored."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """An input in [0, 1], as float32 or, if the data is more precise, as float64; and its label.

        Args:
            index: The number of the input.

        Returns:
            The input, and its label or -1 if it is unknown.
        """


def check_labels(labels: NDArray[np.int64], *, classes: int | None, name: str) -> None:
    """Refuse labels that are not the number of a class."""
    wrong = np.flatnonzero(
        (labels < NO_CLASS) | (labels >= (np.inf if classes is None else classes))
    )
    if wrong.size:
        last = "" if classes is None else f" to {classes - 1}"
        raise InvalidInput(
            f"{name}: label {labels[wrong[0]]} of input {wrong[0]} is out of range; labels are numbers from 0{last}, "
            "or -1 for unknown"
        )


def first_readable(dataset: Dataset) -> Tensor:
    """The first input that can be read. It shows the shape of the inputs, and a damaged one before it does not matter.

    Raises:
        Exception: What reading the first input raises, if none of the first inputs can be read.
    """
    failed: Exception | None = None
    for index in range(min(len(dataset), _MOST_UNREADABLE)):
        try:
            return dataset[index][0]
        except Exception as error:  # code of the user may raise any error
            failed = failed or error
    raise failed or InvalidInput("the data is empty")


def hashed_inputs(count: int, *, size: int | None) -> list[int]:
    """The inputs in the fingerprint of a data set: all, or a few evenly spaced ones if hashing all would take minutes.

    The size is that of all inputs in bytes, None if reading an input runs code of the user.
    """
    number = (
        count if size is not None and size <= _FULLY_HASHED_BYTES else min(count, _HASHED_INPUTS)
    )
    return sorted({round(i) for i in np.linspace(0, count - 1, number)})

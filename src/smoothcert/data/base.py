"""What a data set is, and what all data sets share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothcert._check import NO_CLASS
from smoothcert.errors import InvalidInput

if TYPE_CHECKING:
    from torch import Tensor

_MOST_UNREADABLE = 100
"""Inputs at the beginning of a data set that may be damaged."""
_FULLY_HASHED_BYTES = 2**26
_HASHED_INPUTS = 16
"""Inputs in the hash of data that is larger."""

ALL_INPUTS = "; all inputs: "
"""In a fingerprint, between the hash of some inputs and that of all."""
Values = NDArray[np.floating[Any]]
"""The values of an input as a NumPy array."""
Read = TypeVar("Read")


class Dataset(Protocol):
    """A sequence of inputs with labels. The index of an input is its id in a certificate.

    A data set whose values are all multiples of 1/255 may say so in an attribute `levels = 255`;
    see `ArrayDataset`. One that knows shapes without reading inputs may refuse inputs of another
    shape in a method `check_shapes(ids)`.
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
        """An input in [0, 1] and its label.

        Args:
            index: The number of the input.

        Returns:
            The input as float32 or, if the data is more precise, as float64; and its label, or -1
            if it is unknown.
        """


class NumpyDataset:
    """Base of data sets whose inputs can be read without torch."""

    name: str
    class_names: tuple[str, ...] | None
    fingerprint: Any
    """See `Dataset`."""
    labels: NDArray[np.int64]

    def stored(self, index: int) -> NDArray[Any]:
        """An input as it is stored: as bytes from 0 to 255, or as floats."""
        raise NotImplementedError

    def values(self, index: int) -> Values:
        """An input as floats. Bytes are divided by 255."""
        return np.ascontiguousarray(self.stored(index), np.float32) / 255

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        import torch  # here, because reports read the values alone

        return torch.from_numpy(self.values(index)), int(self.labels[index])


def values_of(dataset: Dataset, index: int) -> Values:
    """An input as an array. For data sets that are loaded by name, this does not need torch."""
    if isinstance(dataset, NumpyDataset):
        return dataset.values(index)
    return np.asarray(dataset[index][0])


def check_labels(labels: NDArray[np.int64], *, classes: int | None, name: str) -> None:
    """Refuse labels that are not the number of a class."""
    end = np.inf if classes is None else classes
    wrong = np.flatnonzero((labels < NO_CLASS) | (labels >= end))
    if wrong.size:
        raise InvalidInput(
            "label-out-of-range",
            "{name}: label {label} of input {id} is out of range; labels are numbers from 0{last}, "
            "or -1 for unknown",
            name=name,
            label=int(labels[wrong[0]]),
            id=int(wrong[0]),
            last="" if classes is None else f" to {classes - 1}",
        )


def first_readable(dataset: Dataset) -> Tensor:
    """The first input that can be read; see `read_first`."""
    return read_first(lambda index: dataset[index][0], len(dataset))


def read_first(read: Callable[[int], Read], count: int) -> Read:
    """The first input that can be read: it has the shape of the inputs.

    A damaged input before it does not matter, because it may be left out.

    Raises:
        Exception: What reading the first input raises, if none of the first inputs can be read.
    """
    first_error: Exception | None = None
    for index in range(min(count, _MOST_UNREADABLE)):
        try:
            return read(index)
        except Exception as error:  # code of the user may raise any error
            first_error = first_error or error
    raise first_error or InvalidInput("no-data", "the data is empty")


def repeated_inputs(dataset: Dataset, ids: Sequence[int]) -> list[int]:
    """The inputs that are copies of earlier ones.

    None are searched in large data, nor in data of the user that has a fingerprint of its own:
    reading it here could end this process, and only workers may die of an input.
    """
    if getattr(dataset, "has_own_fingerprint", False):
        return []
    size = len(ids) * first_readable(dataset).nbytes
    if size > _FULLY_HASHED_BYTES:
        return []
    seen: set[bytes] = set()
    copies = []
    for id in sorted(ids):
        try:
            content = np.ascontiguousarray(values_of(dataset, id))
        except Exception:  # it is reported when its turn comes
            continue
        digest = hashlib.sha256(content.data).digest()
        if digest in seen:
            copies.append(id)
        seen.add(digest)
    return copies


def hashed_inputs(count: int, *, size: int) -> list[int]:
    """The inputs in the fingerprint of a data set: all, or a few evenly spaced ones if it is large.

    Args:
        count: The number of inputs.
        size: The size of all inputs in bytes.
    """
    return list(range(count)) if size <= _FULLY_HASHED_BYTES else spaced_inputs(count)


def spaced_inputs(count: int) -> list[int]:
    """A few evenly spaced inputs."""
    return sorted({round(i) for i in np.linspace(0, count - 1, min(count, _HASHED_INPUTS))})


def same_data(a: str, b: str) -> bool:
    """Whether two fingerprints are of the same data.

    Version 1.0 recorded the hash of some inputs, where there is one of all inputs as well now.
    """
    is_earlier = ALL_INPUTS not in a or ALL_INPUTS not in b
    return a == b or (is_earlier and a.split(ALL_INPUTS)[0] == b.split(ALL_INPUTS)[0])

"""What a data set is, what all data sets share, and data sets in memory or in an `.npz` file."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothcert._check import NO_CLASS
from smoothcert.errors import InvalidInput, first_line, warn

if TYPE_CHECKING:
    from torch import Tensor

_MOST_UNREADABLE = 100
"""Inputs at the beginning of a data set that may be damaged."""
_FULLY_HASHED_BYTES = 2**26
_HASHED_INPUTS = 16
"""Inputs in the hash of data that is larger."""
_DAMAGED = (EOFError, ValueError, MemoryError, NotImplementedError, zipfile.BadZipFile, zlib.error)

HINTS_FOR_LABELS = {
    str: "; number them: names, labels = np.unique(labels, return_inverse=True)",
    float: "; regression is not supported",
}
"""What to say about labels of other types."""
_TOKENS = (
    "if they number tokens or categories, a distance between them means nothing, and no l1 or l2 "
    "radius is about replaced ones; smooth their embeddings"
)
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
    class_names: tuple[str, ...] | None = None
    fingerprint: Any
    """See `Dataset`."""
    labels: NDArray[np.int64]
    labels_are_positions = False
    """Whether labels are the positions of the names of folders, whose order may be another one than
    that of a model.
    """

    def stored(self, index: int) -> NDArray[Any]:
        """An input as it is stored: as bytes from 0 to 255, or as floats."""
        raise NotImplementedError

    def values(self, index: int) -> Values:
        """An input as floats. Bytes are divided by 255."""
        return to_floats(np.ascontiguousarray(self.stored(index)))

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


class ArrayDataset(NumpyDataset):
    """A data set in memory.

    Images get the shape (n, channels, height, width). Arrays with 1 or 3 channels at the end, and
    bytes without a channel axis, are converted to this shape.

    Args:
        inputs: Inputs of shape (n, ...): bytes, which are divided by 255, or floats, which stay
            unchanged. Inputs of float64 stay in it.
        labels: The class of each input, -1 where it is unknown. None if all classes are unknown.
        name: The name of the data set, for records and messages.
        class_names: The names of the classes, in the order of the labels.
    """

    def __init__(
        self,
        inputs: NDArray[np.generic],
        labels: NDArray[np.generic] | None = None,
        *,
        name: str,
        class_names: tuple[str, ...] | None = None,
    ) -> None:
        self.name = name
        self.class_names = class_names
        self._inputs = _checked_inputs(inputs, name)
        self.labels = _checked_labels(labels, len(inputs), name)
        check_labels(self.labels, classes=len(class_names) if class_names else None, name=name)

    @property
    def levels(self) -> int | None:
        """If all values are known to be multiples of a step: the number of steps from 0 to 1."""
        return 255 if self._inputs.dtype == np.uint8 else None

    def stored(self, index: int) -> NDArray[Any]:
        x: NDArray[Any] = self._inputs[index]
        return x

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 hash of inputs and labels."""
        digest = hashlib.sha256(f"{self._inputs.dtype} {self._inputs.shape}".encode())
        digest.update(np.ascontiguousarray(self._inputs).data)
        digest.update(self.labels.data)
        return digest.hexdigest()


def _checked_inputs(inputs: NDArray[np.generic], name: str) -> NDArray[np.generic]:
    """The inputs with their channels first, after a check of their shape and type."""
    is_bytes = inputs.dtype == np.uint8
    if inputs.ndim < 2 or inputs.size == 0:
        raise InvalidInput(
            "not-inputs",
            "{name} has inputs of shape {shape}: expected (n, ...) with at least one input",
            name=name,
            shape=inputs.shape,
        )
    if not is_bytes and not np.issubdtype(inputs.dtype, np.floating):
        expected = "uint8 (0 to 255) or floats in [0, 1]"
        if inputs.ndim == 2:
            expected = f"floats ({_TOKENS})"
        raise InvalidInput(
            "not-values",
            "{name} has inputs of type {type}: expected {expected}",
            name=name,
            type=inputs.dtype,
            expected=expected,
        )
    inputs = _with_channels_first(inputs, name)
    if not is_bytes:
        outside(inputs, name=name)
    elif inputs.ndim == 2:
        warn_about_bytes(name)
    return inputs


def warn_about_bytes(name: str) -> None:
    """Warn that bytes are divided by 255 although they are no images."""
    warn(
        f"{name}: bytes are divided by 255, as those of images; give floats to prevent it. "
        f"These are no images: {_TOKENS}"
    )


def _with_channels_first(inputs: NDArray[np.generic], name: str) -> NDArray[np.generic]:
    """Images as networks of torch take them. Most other libraries have their channels last."""
    is_bytes = inputs.dtype == np.uint8
    if is_bytes and inputs.ndim == 3:
        return inputs[:, None]
    if inputs.ndim != 4 or inputs.shape[1] in (1, 3) or inputs.shape[-1] not in (1, 3):
        return inputs
    if not is_bytes:
        warn(
            f"{name}: the last axis is taken as channels and moved to the front; a list of inputs "
            "stays as it is"
        )
    return np.moveaxis(inputs, -1, 1)


def _checked_labels(labels: NDArray[np.generic] | None, count: int, name: str) -> NDArray[np.int64]:
    if labels is None:
        return np.full(count, NO_CLASS, np.int64)
    if labels.size != count:
        raise InvalidInput(
            "labels-of-other-shape",
            "{name} has {count} inputs but labels of shape {shape}: expected ({count},)",
            name=name,
            count=count,
            shape=labels.shape,
        )
    if not np.issubdtype(labels.dtype, np.integer):
        raise InvalidInput(
            "not-labels",
            "{name} has labels of type {type}: expected integers from 0 on, or -1 for unknown"
            "{hint}",
            name=name,
            type=labels.dtype,
            hint=HINTS_FOR_LABELS.get(type(labels.ravel()[:1].tolist()[0]), ""),
        )
    return labels.reshape(count).astype(np.int64)


def load_npz(
    path: Path, *, name: str | None = None, class_names: tuple[str, ...] | None = None
) -> ArrayDataset:
    """An `.npz` file: x, and optionally labels y and the names of the classes, in their order."""
    if not path.is_file():
        raise InvalidInput("no-file", "no data at {path}: the file does not exist", path=path)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            names = archive.files
            inputs = _first(archive, "x", "images")
            labels = _first(archive, "y", "labels")
            names_of_classes = _first(archive, "names", "class_names")
    except _DAMAGED as error:
        if "Object arrays" in str(error):
            raise InvalidInput(
                "objects-in-npz",
                "{path} holds Python objects, which could run code when they are read: save "
                "inputs and labels as numbers, and names as text, as in names.astype(str)",
                path=path,
            ) from None
        raise InvalidInput(
            "damaged-npz",
            "{path} is damaged, or no .npz file of plain arrays: {reason}",
            path=path,
            reason=first_line(error),
        ) from None
    if inputs is None:
        raise InvalidInput(
            "no-inputs-in-file",
            "{path} has no array x or images; it has {names}",
            path=path,
            names=", ".join(names) or "none",
        )
    if names_of_classes is not None:
        class_names = tuple(map(str, names_of_classes.ravel()))
    return ArrayDataset(inputs, labels, name=name or path.stem, class_names=class_names)


def _first(archive: Any, *names: str) -> NDArray[np.generic] | None:
    """The array under the first of these names that the archive has."""
    for name in names:
        if name in archive:
            array: NDArray[np.generic] = archive[name]
            return array
    return None


def to_floats(array: NDArray[np.generic], *, has_format: bool = True) -> Values:
    """The values of an input as floats; bytes are divided by 255.

    The format is float64 for float64. Integers, and numbers that had no format, are float64 if
    float32 would round them. All others are float32.

    >>> to_floats(np.array([0, 51, 255], np.uint8))
    array([0. , 0.2, 1. ], dtype=float32)
    """
    with np.errstate(over="ignore"):
        floats: Values = array.astype(np.float32)
    is_exact = np.array_equal(floats, array)
    if has_format and array.dtype.kind == "f":
        is_exact = array.dtype.itemsize <= 4
    if not is_exact:
        floats = array.astype(np.float64)
    return floats / 255 if array.dtype == np.uint8 else floats


def outside(x: Any, *, name: str) -> bool:
    """Warn if finite values are not in [0, 1], and return whether that is so.

    They may be normalised already, or bytes in another type. A value that is not finite is refused
    when its input is certified. The user may leave that input out, so it does not matter here.
    """
    values: NDArray[Any] = np.asarray(x)
    finite = np.isfinite(values)
    low = values.min(initial=np.inf, where=finite)
    high = values.max(initial=-np.inf, where=finite)
    if not (low < 0 or high > 1):
        return False
    message = (
        f"{name}: values lie in [{low:g}, {high:g}], not in [0, 1]; sigma and radii are in the "
        "units of these values"
    )
    if np.all(values == np.floor(values), where=finite):
        pixels = "" if low < 0 or high > 255 else "divide pixels by 255; "
        message += f". All are whole numbers: {pixels}{_TOKENS}"
    warn(message)
    return True

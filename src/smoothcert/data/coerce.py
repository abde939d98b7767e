"""Make a data set from what the caller has.

That can be arrays, lists, torch data sets, data loaders or Hugging Face data sets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from itertools import chain
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import data as torch_data

from smoothcert import _check
from smoothcert._check import NO_CLASS
from smoothcert._user_errors import user_errors
from smoothcert.data.base import (
    ALL_INPUTS,
    HINTS_FOR_LABELS,
    ArrayDataset,
    Dataset,
    first_readable,
    hashed_inputs,
    outside,
    spaced_inputs,
    warn_about_bytes,
)
from smoothcert.data.inputs import as_array, as_input, is_numbers
from smoothcert.errors import InvalidInput, first_line

_EXPECTED = (
    "data must be arrays (X, Y), or give inputs or pairs (input, label) by index, "
    "with None for an unknown label"
)
_INPUT_KEYS = ("pixel_values", "image", "img", "input", "x")
_LABEL_KEYS = ("label", "labels", "target", "y")
_REPEATED_READS = 5
"""Reads of the first input. They miss one in 32 transforms that act with probability 1/2."""
_ABOUT_ITSELF = ("name", "class_names", "labels", "levels", "check_shapes", "fingerprint")
"""What a data set of the user may say about itself."""


def as_dataset(data: Any, labels: Any = None) -> Dataset:
    """Make a data set from any common form of data."""
    if is_numbers(data):
        data = as_input(data)
    elif hasattr(data, "columns") and hasattr(data, "to_numpy"):
        data = _rows_of(data)
    if labels is not None:
        return _with_labels(data, labels)
    if type(data).__module__.startswith("smoothcert."):
        return cast(Dataset, data)
    if isinstance(data, torch_data.DataLoader):
        return as_dataset(_data_of(data))
    if _is_array(data) and data.ndim:
        return ArrayDataset(as_array(data), name="array")
    return _from_sequence(data)


def _rows_of(frame: Any) -> NDArray[np.generic]:
    """The rows of a `DataFrame` as inputs."""
    try:
        return np.asarray(frame.to_numpy(dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            "columns-without-numbers",
            "the columns must be numbers ({reason}): encode the others, or leave them out",
            reason=first_line(error),
        ) from None


def _from_sequence(data: Any) -> Dataset:
    """A data set from what has entries by index."""
    is_sequence = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    if not is_sequence or isinstance(data, (str, bytes, Mapping)):
        kind = type(data).__name__
        if hasattr(data, "getbands"):  # a picture of PIL
            kind += ": give a list of pictures, as in [picture]"
        raise _unexpected(kind)
    if type(data).__module__.partition(".")[0] == "datasets" and data.format["type"] is None:
        from smoothcert.data.huggingface import HuggingFaceDataset

        name = getattr(data.info, "dataset_name", None) or "datasets.Dataset"
        return HuggingFaceDataset(data, name=name)
    dataset = WrappedDataset(data)
    _check_unchanging(dataset)
    return dataset


def _check_unchanging(dataset: Dataset) -> None:
    """Refuse data whose first input is another one each time that it is read."""
    first = first_readable(dataset)
    again = (first_readable(dataset) for _ in range(_REPEATED_READS))
    if not all(np.array_equal(first, other, equal_nan=True) for other in again):
        raise InvalidInput(
            "changing-input",
            "the first input of {name} changes from one reading to the next: use no random "
            "transforms",
            name=dataset.name,
        )


def _unexpected(value: str) -> InvalidInput:
    return InvalidInput("not-data", f"{_EXPECTED}, got {{value}}", value=value)


class WrappedDataset:
    """A data set around a sequence of the caller.

    A sequence with a `fingerprint` is a `Dataset` itself, so we keep what it says about itself.
    """

    name: str
    class_names: tuple[str, ...] | None = None

    def __init__(self, data: Sequence[Any]) -> None:
        self._data = data
        self._warned = False
        # A subclass of these may read files.
        self.in_memory = type(data) in (list, tuple, torch_data.TensorDataset)
        self.name = type(data).__qualname__
        self.has_own_fingerprint = hasattr(data, "fingerprint")
        if self.has_own_fingerprint:
            _copy(_ABOUT_ITSELF, data, self)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        index = range(len(self))[index]
        where = f"input {index} of {self.name}"
        with user_errors(f"reading {where}"):
            row = self._data[index]
        values, label = _split(row, where)
        x = as_input(values)
        if not self._warned and x.ndim == 1 and str(getattr(values, "dtype", "")).endswith("uint8"):
            self._warned = True
            warn_about_bytes(where)
        elif not self._warned:
            self._warned = outside(x, name=where)
        return x, _as_label(label, index)

    @cached_property
    def fingerprint(self) -> str:
        """The hash of inputs and labels.

        An input that cannot be read is hashed as such: it must not stop a run that does not certify
        it. Version 1.0 hashed a few inputs of data that runs code of the user. This hash comes
        first, so that its runs can still be compared; see `same_data`.
        """
        hashed = hashed_inputs(len(self), size=len(self) * first_readable(self).nbytes)
        before = hashed if self.in_memory else spaced_inputs(len(self))
        first = self._hash(before)
        return first if hashed == before else first + ALL_INPUTS + self._hash(hashed)

    def _hash(self, ids: Sequence[int]) -> str:
        digest = hashlib.sha256(str(len(self)).encode())
        for index in ids:
            try:
                x, label = self[index]
            except InvalidInput:
                digest.update(f"{index} cannot be read".encode())
                continue
            digest.update(f"{label} {tuple(x.shape)}".encode())
            digest.update(x.contiguous().numpy().data)
        return digest.hexdigest()


class LabelledDataset:
    """A data set with other labels, which the caller gave apart from it."""

    name: str
    class_names: tuple[str, ...] | None

    def __init__(self, data: Dataset, labels: NDArray[np.int64]) -> None:
        self._data = data
        self.labels = labels
        _copy(("name", "class_names", "levels", "check_shapes", "in_memory"), data, self)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self._data[index][0], int(self.labels[index])

    @cached_property
    def fingerprint(self) -> str:
        """The hash of the data set and the labels."""
        hashes = self._data.fingerprint.split(ALL_INPUTS)
        both = [f"{inputs} {self.labels.tolist()}".encode() for inputs in hashes]
        return ALL_INPUTS.join(hashlib.sha256(content).hexdigest() for content in both)


def _copy(names: Sequence[str], source: object, target: object) -> None:
    """Copy the attributes that the source has."""
    for name in names:
        if hasattr(source, name):
            setattr(target, name, getattr(source, name))


def _split(row: Any, where: str) -> tuple[Any, Any]:
    """Input and label of one entry of the caller's data."""
    if isinstance(row, Mapping):
        return _split_mapping(row, where)
    if not isinstance(row, (tuple, list)):
        return row, None
    if len(row) not in (1, 2) or isinstance(row[0], (int, float)):
        raise _unexpected(f"{len(row)} values as {where}")
    return row[0], row[1] if len(row) == 2 else None


def _split_mapping(row: Mapping[Any, Any], where: str) -> tuple[Any, Any]:
    """Input and label of a dictionary, by their usual names."""
    inputs = [row[key] for key in _INPUT_KEYS if key in row]
    labels = [row[key] for key in _LABEL_KEYS if key in row]
    if len(inputs) != 1 or len(labels) > 1:
        raise InvalidInput(
            "unknown-keys",
            "{where} is a dictionary with {keys}: it needs one of {inputs} and at most one of "
            "{labels}",
            where=where,
            keys=", ".join(map(str, row)) or "nothing",
            inputs=", ".join(_INPUT_KEYS),
            labels=", ".join(_LABEL_KEYS),
        )
    return inputs[0], labels[0] if labels else None


def _with_labels(data: Any, labels: Any) -> Dataset:
    """Inputs and labels that were given apart from each other."""
    if hasattr(labels, "columns") and hasattr(labels, "to_numpy"):
        labels = labels.to_numpy()  # a DataFrame goes over its columns
    if not hasattr(labels, "__len__") or isinstance(labels, (Mapping, Set)):
        raise _unexpected(f"{type(labels).__name__} as labels")
    _check.unmasked("labels", labels)
    inputs = data if _is_array(data) and data.ndim else as_dataset(data)
    if len(inputs) != len(labels):
        raise InvalidInput(
            "other-number-of-labels",
            "there are {inputs} inputs but {labels} labels: give one label per input",
            inputs=len(inputs),
            labels=len(labels),
        )
    numbers = np.array([_as_label(label, index) for index, label in enumerate(labels)])
    if _is_array(inputs):
        return ArrayDataset(as_array(inputs), numbers, name="arrays")
    return LabelledDataset(inputs, numbers)


def _data_of(loader: torch_data.DataLoader[Any]) -> Any:
    """The data set of a loader that hands out all of it, unchanged."""
    data: Any = loader.dataset
    is_stream = isinstance(data, torch_data.IterableDataset)
    chosen = () if is_stream else chain.from_iterable(loader.batch_sampler or ())
    is_unchanged = loader.collate_fn is torch_data.default_collate
    if is_stream or not is_unchanged or sorted(chosen) != list(range(len(data))):
        raise InvalidInput(
            "unusual-loader",
            "a DataLoader over a stream or a part of its data, or with a collate_fn of its own, "
            "does not say which inputs to certify: give a data set, or a torch.utils.data.Subset "
            "of it",
        )
    return data


def _is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, Tensor))


def _as_label(label: Any, index: int) -> int:
    if label is None:
        return NO_CLASS
    _check.unmasked(f"the label of input {index}", label)
    values = np.ravel(label.cpu() if isinstance(label, Tensor) else label).tolist()
    if len(values) != 1:
        raise InvalidInput(
            "not-one-label",
            "the label of input {id} must be the number of its class, got {count} values: masks, "
            "and several classes for one input, are not supported; of one-hot labels, give "
            "labels.argmax(1)",
            id=index,
            count=len(values),
        )
    name = f"the label of input {index}"
    hint = HINTS_FOR_LABELS.get(type(values[0]), "")
    return _check.whole(name, values[0], least=NO_CLASS, hint=hint)

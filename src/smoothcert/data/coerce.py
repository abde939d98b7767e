"""Make a data set from what the caller has.

That can be arrays, lists, torch data sets, data loaders or Hugging Face data sets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils import data as torch_data

from smoothcert import _check
from smoothcert._check import NO_CLASS
from smoothcert._user_errors import user_errors
from smoothcert.data.base import (
    ALL_INPUTS,
    ArrayDataset,
    Dataset,
    first_readable,
    hashed_inputs,
    outside,
    spaced_inputs,
)
from smoothcert.data.inputs import as_array, as_input, is_numbers
from smoothcert.errors import InvalidInput

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
    elif _is_frame(data):
        data = _columns_of(data)
    if labels is not None:
        return _with_labels(data, labels)
    if type(data).__module__.startswith("smoothcert."):
        return cast(Dataset, data)
    if isinstance(data, torch_data.DataLoader):
        return as_dataset(_data_of(data))
    if _is_array(data) and data.ndim:
        return ArrayDataset(as_array(data), name="array")
    if _is_inputs_and_labels(data):
        return as_dataset(*data)
    return _from_sequence(data)


def _is_frame(data: Any) -> bool:
    """Whether the data is a `DataFrame` of pandas, or of a library like it."""
    return hasattr(data, "columns") and hasattr(data, "to_numpy")


def _columns_of(frame: Any) -> NDArray[np.generic]:
    """The rows of a table as inputs. All its columns have to be numbers."""
    kinds = {name: np.asarray(frame[name]).dtype.kind for name in frame.columns}
    texts = [str(name) for name, kind in kinds.items() if kind not in "biuf"]
    if texts:
        raise InvalidInput(
            "columns-without-numbers",
            "the columns {columns} are not numbers: encode them, or leave them out",
            columns=", ".join(texts),
        )
    return np.asarray(frame.to_numpy(dtype=np.float64))


def _from_sequence(data: Any) -> Dataset:
    """A data set from what has entries by index."""
    if isinstance(data, Mapping):
        kinds = ", ".join(map(str, data))
        raise _unexpected(f"a {type(data).__name__} with {kinds}: choose one")
    is_sequence = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    if not is_sequence or isinstance(data, (str, bytes)):
        raise _unexpected(type(data).__name__)
    if type(data).__module__.partition(".")[0] == "datasets" and data.format["type"] is None:
        from smoothcert.data.huggingface import HuggingFaceDataset

        name = getattr(data.info, "dataset_name", None) or "datasets.Dataset"
        return HuggingFaceDataset(data, name=name)
    return _checked(WrappedDataset(data))


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
        values, label = _split(self.row(index), f"input {index} of {self.name}")
        x = as_input(values)
        if not self._warned:
            self._warned = outside(x, name=f"input {index} of {self.name}")
        return x, _as_label(label, index)

    def row(self, index: int) -> Any:
        """What the caller's data has at an index, which is named if the caller's code fails."""
        with user_errors(f"reading input {index} of {self.name}"):
            return self._data[index]

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

    def __init__(self, data: Dataset, labels: Sequence[Any]) -> None:
        self._data = data
        self.labels = np.array([_as_label(label, index) for index, label in enumerate(labels)])
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


def _checked(dataset: WrappedDataset) -> WrappedDataset:
    """The data set, after a check that its first input has the right form and stays the same."""
    if not len(dataset):
        raise InvalidInput("no-data", "the data is empty")
    try:
        dataset.row(0)
    except InvalidInput:  # it is damaged, which does not matter unless it is certified
        return dataset
    first = dataset[0][0]
    if dataset.in_memory or not bool(first.isfinite().all()):
        return dataset  # NaN differs from itself; it is refused if it is certified
    if any(not torch.equal(first, dataset[0][0]) for _ in range(_REPEATED_READS)):
        raise InvalidInput(
            "changing-input",
            "input 0 of {name} changes from one reading to the next: use no random transforms",
            name=dataset.name,
        )
    return dataset


def _split(row: Any, where: str) -> tuple[Any, Any]:
    """Input and label of one entry of the caller's data."""
    if isinstance(row, Mapping):
        return _split_mapping(row, where)
    if _is_array(row) or isinstance(row, Image.Image):
        return row, None
    if isinstance(row, str):
        raise InvalidInput(
            "text-as-input",
            "{where} is a text: noise is added to numbers, so text is not supported",
            where=where,
        )
    if not isinstance(row, (tuple, list)):
        raise _unexpected(f"{type(row).__name__} as {where}")
    if len(row) not in (1, 2) or isinstance(row[0], (int, float)):
        raise _unexpected(f"{len(row)} values as {where}")
    return row[0], row[1] if len(row) == 2 else None


def _split_mapping(row: Mapping[Any, Any], where: str) -> tuple[Any, Any]:
    """Input and label of a dictionary, by their usual names."""
    inputs = [key for key in _INPUT_KEYS if key in row]
    labels = [key for key in _LABEL_KEYS if key in row]
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
    return row[inputs[0]], row[labels[0]] if labels else None


def _with_labels(data: Any, labels: Any) -> Dataset:
    """Inputs and labels that were given apart from each other."""
    have_lengths = hasattr(data, "__len__") and hasattr(labels, "__len__")
    if not have_lengths or isinstance(labels, (Mapping, Set)):
        raise _unexpected(f"{type(data).__name__} and {type(labels).__name__}")
    _check.unmasked("labels", labels)
    inputs = data if _is_array(data) and data.ndim else as_dataset(data)
    if len(inputs) != len(labels):
        raise InvalidInput(
            "other-number-of-labels",
            "there are {inputs} inputs but {labels} labels: give one label per input",
            inputs=len(inputs),
            labels=len(labels),
        )
    if not _is_array(inputs):
        return LabelledDataset(inputs, labels)
    numbers = [_as_label(label, index) for index, label in enumerate(labels)]
    return ArrayDataset(as_array(inputs), np.array(numbers), name="arrays")


def _is_inputs_and_labels(data: Any) -> bool:
    """Whether the data is inputs and their labels.

    It could also be two inputs, or two pairs of input and label.
    """
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        return False
    inputs, labels = data
    if _is_frame(inputs):
        return True
    if not isinstance(labels, (tuple, list, np.ndarray, Tensor)):
        return False
    if not _is_array(inputs):
        return hasattr(inputs, "__len__") and all(map(_is_one_value, labels))
    if inputs.ndim < 2:
        return False
    return not _is_array(labels) or not _are_alike(as_array(inputs), as_array(labels))


def _are_alike(a: NDArray[np.generic], b: NDArray[np.generic]) -> bool:
    return a.shape == b.shape and a.dtype.kind == b.dtype.kind


def _data_of(loader: torch_data.DataLoader[Any]) -> Any:
    """The data set of a loader that hands out all of it, unchanged."""
    sampler: Any = loader.sampler
    hands_out_all = (
        type(sampler) in (torch_data.SequentialSampler, torch_data.RandomSampler)
        and type(loader.batch_sampler) is torch_data.BatchSampler
        and loader.collate_fn is torch_data.default_collate
        and not loader.drop_last
        and not getattr(sampler, "replacement", False)
        and len(sampler) == len(sampler.data_source)
    )
    if not hands_out_all:
        raise InvalidInput(
            "unusual-loader",
            "a DataLoader over a stream or a part of its data, or with a sampler or a collate_fn "
            "of its own, does not say which inputs to certify: give a data set, or a "
            "torch.utils.data.Subset of it",
        )
    return loader.dataset


def _is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, Tensor))


def _is_one_value(value: Any) -> bool:
    return value is None or isinstance(value, (int, float)) or getattr(value, "ndim", None) == 0


def _as_label(label: Any, index: int) -> int:
    if label is None:
        return NO_CLASS
    _check.unmasked(f"the label of input {index}", label)
    values = np.ravel(label.cpu() if isinstance(label, Tensor) else label).tolist()
    if len(values) != 1:
        raise InvalidInput(
            "not-one-label",
            "the label of input {id} must be the number of its class, got {count} values",
            id=index,
            count=len(values),
        )
    return _check.whole(f"the label of input {index}", values[0], least=NO_CLASS)

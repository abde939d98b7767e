"""Make a data set from what the caller has: arrays, lists, torch data sets, data loaders or Hugging Face data sets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils import data as torch_data

from smoothcert import _check
from smoothcert._check import NO_CLASS
from smoothcert._user_errors import user_errors
from smoothcert.data.arrays import ArrayDataset, as_array, as_input, is_numbers, outside
from smoothcert.data.base import Dataset, first_readable, hashed_inputs
from smoothcert.errors import InvalidInput

_EXPECTED = (
    "data must be arrays (X, Y), or give inputs or pairs (input, label) by index, "
    "with None for an unknown label"
)
_INPUT_KEYS = ("pixel_values", "image", "img", "input", "x")
_LABEL_KEYS = ("label", "labels", "target", "y")
_REPEATED_READS = 5  # a transform that acts with probability 1/2 is missed once in 32 times


def as_dataset(data: Any, labels: Any = None) -> Dataset:
    """Make a data set from any common form of data."""
    data = as_input(data) if is_numbers(data) else data
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
    if isinstance(data, Mapping):
        raise InvalidInput(
            f"{_EXPECTED}, got a {type(data).__name__} with {', '.join(map(str, data))}: choose one"
        )
    if (
        not hasattr(data, "__len__")
        or not hasattr(data, "__getitem__")
        or isinstance(data, (str, bytes))
    ):
        raise InvalidInput(f"{_EXPECTED}, got {type(data).__name__}")
    if type(data).__module__.partition(".")[0] == "datasets" and data.format["type"] is None:
        from smoothcert.data.huggingface import HuggingFaceDataset

        return HuggingFaceDataset(
            data, name=getattr(data.info, "dataset_name", None) or "datasets.Dataset"
        )
    return _checked(WrappedDataset(data))


class WrappedDataset:
    """A data set around a sequence of the caller, which is a `Dataset` itself if it has a `fingerprint`."""

    name: str
    class_names: tuple[str, ...] | None = None

    def __init__(self, data: Sequence[Any]) -> None:
        self._data = data
        self._warned = False
        self.in_memory = type(data) in (
            list,
            tuple,
            torch_data.TensorDataset,
        )  # a subclass may read files
        self.name = type(data).__qualname__
        if hasattr(data, "fingerprint"):
            for known in ("name", "class_names", "fingerprint", "labels", "levels", "check_shapes"):
                if hasattr(data, known):
                    setattr(self, known, getattr(data, known))

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        index = range(len(self))[index]
        given, label = _split(self.row(index), f"input {index} of {self.name}")
        x = as_input(given)
        if not self._warned:
            self._warned = outside(x, name=f"input {index} of {self.name}", stacklevel=2)
        return x, _as_label(label, index)

    def row(self, index: int) -> Any:
        """What the caller's data has at an index. An error of the caller's code is reported with this index."""
        with user_errors(f"reading input {index} of {self.name}"):
            return self._data[index]

    @cached_property
    def fingerprint(self) -> str:
        """The hash of inputs and labels.

        Data in memory is hashed completely unless it is large. Other data runs code of the user for each input and may
        read files, so only a few inputs are read. An input that cannot be read is hashed as such: it must not stop a
        run that does not certify it.
        """
        digest = hashlib.sha256(str(len(self)).encode())
        size = len(self) * first_readable(self).nbytes if self.in_memory else None
        for index in hashed_inputs(len(self), size=size):
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
        for known in ("name", "class_names", "levels", "check_shapes", "in_memory"):
            if hasattr(data, known):
                setattr(self, known, getattr(data, known))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self._data[index][0], int(self.labels[index])

    @cached_property
    def fingerprint(self) -> str:
        """The hash of the data set and the labels."""
        return hashlib.sha256(
            f"{self._data.fingerprint} {self.labels.tolist()}".encode()
        ).hexdigest()


def _checked(dataset: WrappedDataset) -> WrappedDataset:
    """The data set, after a check that its first input has the right form and stays the same."""
    if not len(dataset):
        raise InvalidInput("the data is empty")
    try:
        dataset.row(0)
    except InvalidInput:  # it is damaged, which does not matter unless it is certified
        return dataset
    first = dataset[0][0]
    if dataset.in_memory or not bool(
        first.isfinite().all()
    ):  # NaN differs from itself; it has a message of its own
        return dataset
    if any(not torch.equal(first, dataset[0][0]) for _ in range(_REPEATED_READS)):
        raise InvalidInput(
            f"input 0 of {dataset.name} changes from one reading to the next: use no random transforms"
        )
    return dataset


def _split(row: Any, where: str) -> tuple[Any, Any]:
    """Input and label of one entry of the caller's data."""
    if isinstance(row, Mapping):
        inputs, labels = (
            [key for key in keys if key in row] for keys in (_INPUT_KEYS, _LABEL_KEYS)
        )
        if len(inputs) == 1 and len(labels) <= 1:
            return row[inputs[0]], row[labels[0]] if labels else None
        raise InvalidInput(
            f"{where} is a dictionary with {', '.join(map(str, row)) or 'nothing'}: it needs one of "
            f"{', '.join(_INPUT_KEYS)} and at most one of {', '.join(_LABEL_KEYS)}"
        )
    if _is_array(row) or isinstance(row, Image.Image):
        return row, None
    if (
        isinstance(row, (tuple, list))
        and len(row) in (1, 2)
        and not isinstance(row[0], (int, float))
    ):
        return row[0], row[1] if len(row) == 2 else None
    found = f"{len(row)} values" if isinstance(row, (tuple, list)) else type(row).__name__
    raise InvalidInput(f"{_EXPECTED}, got {found} as {where}")


def _with_labels(data: Any, labels: Any) -> Dataset:
    """Inputs and labels that were given apart from each other."""
    if (
        not hasattr(data, "__len__")
        or not hasattr(labels, "__len__")
        or isinstance(labels, (Mapping, Set))
    ):
        raise InvalidInput(f"{_EXPECTED}, got {type(data).__name__} and {type(labels).__name__}")
    inputs = data if _is_array(data) and data.ndim else as_dataset(data)
    if len(inputs) != len(labels):
        raise InvalidInput(
            f"there are {len(inputs)} inputs but {len(labels)} labels: give one label per input"
        )
    if not _is_array(inputs):
        return LabelledDataset(inputs, labels)
    numbers = [_as_label(label, index) for index, label in enumerate(labels)]
    return ArrayDataset(as_array(inputs), np.array(numbers), name="arrays")


def _is_inputs_and_labels(data: Any) -> bool:
    """Whether the data is inputs and their labels. It could also be two inputs, or two pairs of input and label."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        return False
    inputs, labels = data
    if _is_array(inputs) and _is_array(labels):
        alike = (
            labels.shape == inputs.shape
            and as_array(inputs).dtype.kind == as_array(labels).dtype.kind
        )
        return inputs.ndim > 1 and not alike
    if _is_array(inputs):
        return inputs.ndim > 1 and isinstance(labels, (tuple, list))
    are_labels = isinstance(labels, (tuple, list, np.ndarray, Tensor)) and all(
        map(_is_one_value, labels)
    )
    return are_labels and hasattr(inputs, "__len__")


def _data_of(loader: torch_data.DataLoader[Any]) -> Any:
    """The data set of a loader that hands out all of it, unchanged."""
    if (
        not isinstance(loader.sampler, (torch_data.SequentialSampler, torch_data.RandomSampler))
        or type(loader.batch_sampler) is not torch_data.BatchSampler
        or loader.collate_fn is not torch_data.default_collate
    ):
        raise InvalidInput(
            "a DataLoader over a stream, or with a sampler or a collate_fn of its own, does not say which inputs to "
            "certify: give a data set, or a torch.utils.data.Subset of it"
        )
    return loader.dataset


def _is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, Tensor))


def _is_one_value(value: Any) -> bool:
    return value is None or isinstance(value, (int, float)) or getattr(value, "ndim", None) == 0


def _as_label(label: Any, index: int) -> int:
    if label is None:
        return NO_CLASS
    values = np.ravel(label.cpu() if isinstance(label, Tensor) else label).tolist()
    if len(values) != 1:
        raise InvalidInput(
            f"the label of input {index} must be the number of its class, got {len(values)} values"
        )
    return _check.whole(f"the label of input {index}", values[0], least=NO_CLASS)

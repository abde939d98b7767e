"""Make a data set from what the caller has: arrays, lists, torch data sets, data loaders or Hugging Face data sets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils import data as torch_data

from smoothcert import _check
from smoothcert._check import NO_CLASS
from smoothcert.data.arrays import ArrayDataset
from smoothcert.data.base import Dataset
from smoothcert.data.inputs import as_input, outside
from smoothcert.data.probes import probes
from smoothcert.errors import InvalidInput

_EXPECTED = (
    "data must be arrays (X, Y), or give inputs or pairs (input, label) by index, with None for an unknown label"
)
_INPUT_KEYS = ("pixel_values", "image", "img", "input", "x")
_LABEL_KEYS = ("label", "labels", "target", "y")
_REPEATED_READS = 5  # a transform that acts with probability 1/2 is missed once in 32 times


def as_dataset(data: Any, labels: Any = None) -> Dataset:
    """Make a data set from any common form of data."""
    if labels is not None:
        return _with_labels(data, labels)
    if hasattr(data, "fingerprint"):
        return cast(Dataset, data)
    if isinstance(data, torch_data.DataLoader):
        return as_dataset(_data_of(data))
    if type(data).__module__.partition(".")[0] == "datasets":
        return _from_huggingface(data)
    if _is_array(data) and data.ndim:
        return ArrayDataset(_numpy(data), name="array")
    if (arrays := _pair_of_arrays(data)) is not None:
        return ArrayDataset(*arrays, name="arrays")
    if _is_meant_as_inputs_and_labels(data):
        return _with_labels(*data)
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__") or isinstance(data, (Mapping, str, bytes)):
        raise InvalidInput(f"{_EXPECTED}, got {type(data).__name__}{_way_out(data)}")
    if not len(data):
        raise InvalidInput("the data is empty")
    return _wrapped(data)


def _wrapped(data: Any) -> WrappedDataset:
    """A data set around a sequence whose first input has the right form and stays the same."""
    dataset = WrappedDataset(data)
    try:
        first = dataset[0][0]
        is_random = not _is_in_memory(data) and any(
            not torch.equal(first, dataset[0][0]) for _ in range(_REPEATED_READS)
        )
    except InvalidInput:  # it has a wrong form
        raise
    except Exception:  # it is damaged, which does not matter unless it is certified
        return dataset
    if is_random and bool(first.isfinite().all()):  # NaN differs from itself; it has a message of its own
        raise InvalidInput(
            f"input 0 of {dataset.name} changes from one reading to the next, so nobody could check its certificate: "
            "leave random transforms out of the data set"
        )
    return dataset


class WrappedDataset:
    """A data set around a sequence of the caller.

    Args:
        data: Inputs, or inputs with labels; see `as_dataset`.
    """

    class_names: tuple[str, ...] | None = None

    def __init__(self, data: Sequence[Any]) -> None:
        self._data = data
        self._warned = False
        self.name = type(data).__qualname__

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        given, label = _split(self._data[index], index, self.name)
        x = as_input(given)
        if not self._warned:
            self._warned = outside(x, name=f"input {index} of {self.name}", stacklevel=2)
        return x, _as_label(label, index)

    @cached_property
    def fingerprint(self) -> str:
        """The hash of inputs and labels.

        Data in memory is hashed completely unless it is large. Other data runs code of the user for each input and may
        read files, so only a few inputs are read. An input that cannot be read is hashed as such: it must not stop a
        run that does not certify it.
        """
        digest = hashlib.sha256(str(len(self)).encode())
        for index in self._probes():
            try:
                x, label = self[index]
            except Exception:  # code of the user may raise any error
                digest.update(f"{index} cannot be read".encode())
                continue
            digest.update(f"{label} {tuple(x.shape)}".encode())
            digest.update(x.contiguous().numpy().data)
        return digest.hexdigest()

    def _probes(self) -> Iterator[int]:
        size = None
        if _is_in_memory(self._data):
            size = len(self) * next((x.nbytes for x in self._readable()), 0)
        yield from probes(len(self), size=size)

    def _readable(self) -> Iterator[Tensor]:
        for index in range(len(self)):
            try:
                yield self[index][0]
            except Exception:  # as above
                continue


def _split(row: Any, index: int, name: str) -> tuple[Any, Any]:
    """Input and label of one entry of the caller's data."""
    where = f"as input {index} of {name}"
    if isinstance(row, Mapping):
        inputs, labels = ([key for key in keys if key in row] for keys in (_INPUT_KEYS, _LABEL_KEYS))
        if len(inputs) != 1 or len(labels) > 1:
            raise InvalidInput(
                f"{_EXPECTED}, got a dictionary with {', '.join(map(str, row)) or 'nothing'} {where}: it needs one of "
                f"{', '.join(_INPUT_KEYS)} and at most one of {', '.join(_LABEL_KEYS)}"
            )
        return row[inputs[0]], row[labels[0]] if labels else None
    if not isinstance(row, (tuple, list)):
        if _is_array(row) or isinstance(row, Image.Image):
            return row, None
        raise InvalidInput(f"{_EXPECTED}, got {type(row).__name__} {where}")
    if len(row) == 1:
        return row[0], None
    # A third value may be an index or meta data. If it could be a label as well, we do not know which one is meant.
    if len(row) == 3 and (not _is_number(row[1]) or (_is_number(row[2]) and int(row[2]) != index)):
        raise InvalidInput(
            f"{_EXPECTED}, got three values {where}, and it is unclear which one is the label: give pairs"
        )
    if len(row) not in (2, 3):
        raise InvalidInput(f"{_EXPECTED}, got {len(row)} values {where}")
    return row[0], row[1]


def _with_labels(data: Any, labels: Any) -> Dataset:
    """Inputs and labels that were given apart from each other."""
    if not hasattr(data, "__len__") or not hasattr(labels, "__len__"):
        raise InvalidInput(
            f"inputs and labels must be sequences, got {type(data).__name__} and {type(labels).__name__}"
        )
    if len(data) != len(labels):
        raise InvalidInput(f"there are {len(data)} inputs but {len(labels)} labels: give one label per input")
    if _is_array(data) and data.ndim:
        numbers = [NO_CLASS if label is None else _as_label(label, index) for index, label in enumerate(labels)]
        return ArrayDataset(_numpy(data), np.array(numbers, np.int64), name="arrays")
    inputs = as_dataset(data)
    return WrappedDataset([(inputs[index][0], labels[index]) for index in range(len(inputs))])


def _pair_of_arrays(data: Any) -> tuple[Any, Any] | None:
    """Inputs and labels, if the data is two arrays of one length of which the second holds one integer per input."""
    if not isinstance(data, (tuple, list)) or len(data) != 2 or not _is_array(data[0]) or data[0].ndim < 2:
        return None
    inputs, labels = data
    if isinstance(labels, (list, tuple)) and len(labels) == len(inputs) and all(map(_is_number, labels)):
        labels = np.array([int(label) for label in labels])
    if not _is_array(labels) or labels.ndim not in (1, 2):
        return None
    labels = _numpy(labels)
    if labels.ndim == 1 and labels.dtype.kind in "iu" and len(labels) != len(inputs):
        raise InvalidInput(f"there are {len(inputs)} inputs but {len(labels)} labels: give one label per input")
    return (_numpy(inputs), labels) if labels.size == len(inputs) and labels.dtype.kind in "iu" else None


def _is_meant_as_inputs_and_labels(data: Any) -> bool:
    """Whether the data is an array of inputs and something that can only be its labels, although perhaps wrong ones.

    It could also be a list of two inputs. These have the same shape.
    """
    if not isinstance(data, (tuple, list)) or len(data) != 2 or not _is_array(data[0]) or data[0].ndim < 2:
        return False
    inputs, labels = data
    if _is_array(labels):
        return labels.ndim in (1, 2) and labels.shape != inputs.shape
    return isinstance(labels, (tuple, list)) and all(label is None or np.ndim(label) == 0 for label in labels)


def _data_of(loader: torch_data.DataLoader[Any]) -> Any:
    """The data set of a loader that hands out all of it, unchanged."""
    plain_order = isinstance(loader.sampler, (torch_data.SequentialSampler, torch_data.RandomSampler))
    plain_batches = loader.batch_sampler is None or type(loader.batch_sampler) is torch_data.BatchSampler
    if isinstance(loader.dataset, torch_data.IterableDataset) or not hasattr(loader.dataset, "__getitem__"):
        raise InvalidInput("a DataLoader over a stream has no inputs by number: give list(loader.dataset)")
    if not plain_order or not plain_batches:
        raise InvalidInput(
            "the DataLoader has a sampler of its own, so it is unclear which inputs to certify: give its data set, or "
            "a torch.utils.data.Subset of it"
        )
    if loader.collate_fn not in (torch_data.default_collate, torch_data._utils.collate.default_convert):
        raise InvalidInput(
            "the DataLoader changes its inputs with a collate_fn of its own: give a data set whose items are the "
            "finished inputs"
        )
    return loader.dataset


def _from_huggingface(data: Any) -> Dataset:
    if isinstance(data, Mapping):
        first = next(iter(data), "test")
        raise InvalidInput(f"the data has the splits {', '.join(data)}: choose one, as in data[{first!r}]")
    if not hasattr(data, "select_columns") or not hasattr(data, "__len__"):
        raise InvalidInput(f"{_EXPECTED}, got a {type(data).__name__}: give a datasets.Dataset, not a stream")
    if data.format["type"] is not None:  # the user has set a transform, which makes the inputs
        return _wrapped(data)
    from smoothcert.data.huggingface import HuggingFaceDataset

    return HuggingFaceDataset(data, name=getattr(data.info, "dataset_name", None) or "datasets.Dataset")


def _way_out(data: Any) -> str:
    if isinstance(data, Mapping) and {"x", "y"} <= set(data):
        return ': give (data["x"], data["y"])'
    return ""


def _is_in_memory(data: Any) -> bool:
    return isinstance(data, (list, tuple, torch_data.TensorDataset))


def _is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, Tensor))


def _is_number(value: Any) -> bool:
    """Whether a value is one integer, also as an array or a tensor."""
    if isinstance(value, Tensor):
        return value.numel() == 1 and not value.is_floating_point() and not value.is_complex()
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iu"


def _numpy(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    value = value.detach().cpu()
    return (value.float() if value.dtype in (torch.bfloat16, torch.float16) else value).numpy()


def _as_label(label: Any, index: int) -> int:
    values = np.ravel(label.cpu() if isinstance(label, Tensor) else label)
    if values.size != 1:
        raise InvalidInput(f"the label of input {index} must be the number of its class, got {values.size} values")
    value = values[0].item() if values.dtype.kind in "fU" else values[0]  # a message shows 0.5, not np.float32(0.5)
    return NO_CLASS if label is None else _check.whole(f"the label of input {index}", value, least=NO_CLASS)

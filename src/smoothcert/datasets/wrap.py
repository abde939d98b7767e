"""Make a data set from a list or a torch data set of the caller."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
from torch import Tensor

from smoothcert import _check
from smoothcert.datasets.base import UNKNOWN, Dataset
from smoothcert.datasets.inputs import as_input, warn_outside
from smoothcert.datasets.probes import probes
from smoothcert.errors import InvalidInput

_EXPECTED = "data must give pairs (input, label) by index, with None for an unknown label"


def as_dataset(data: Dataset | Sequence[Any]) -> Dataset:
    """Make a data set from any sequence of pairs.

    Args:
        data: A sequence of pairs (input, label), such as a list or a torch data set. The label is None where it is
            unknown. A `Dataset` is returned unchanged.
    """
    if hasattr(data, "fingerprint"):
        return cast(Dataset, data)
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__") or isinstance(data, Mapping):
        raise InvalidInput(f"{_EXPECTED}, got {type(data).__name__}")
    if not len(data):
        raise InvalidInput("the data is empty")
    dataset = WrappedDataset(data)
    first = dataset[0][0]
    if first.numel():
        warn_outside(float(first.min()), float(first.max()), name="the first input", stacklevel=4)
    return dataset


class WrappedDataset:
    """A data set around a sequence of the caller.

    Args:
        data: Pairs (input, label).
    """

    class_names: tuple[str, ...] | None = None

    def __init__(self, data: Sequence[Any]) -> None:
        self._data = data
        self.name = type(data).__qualname__

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        row = self._data[index]
        if not isinstance(row, (tuple, list)) or len(row) != 2:
            what = f"{len(row)} values" if isinstance(row, (tuple, list)) else type(row).__name__
            raise InvalidInput(f"{_EXPECTED}, got {what} as input {index} of {self.name}")
        return as_input(row[0]), _as_label(row[1], index)

    @cached_property
    def fingerprint(self) -> str:
        """The hash of all inputs and labels or, in a large data set, of some of them."""
        digest = hashlib.sha256(str(len(self)).encode())
        for index in probes(len(self), size=len(self) * self[0][0].nbytes):
            x, label = self[index]
            digest.update(f"{label} {tuple(x.shape)}".encode())
            digest.update(x.contiguous().numpy().data)
        return digest.hexdigest()


def _as_label(label: Any, index: int) -> int:
    values = np.ravel(label.cpu() if isinstance(label, Tensor) else label)
    if values.size != 1:
        raise InvalidInput(f"the label of input {index} must be the number of its class, got {values.size} values")
    return UNKNOWN if label is None else _check.whole(f"the label of input {index}", values[0], least=UNKNOWN)

"""Inputs of the caller's (a list, a torch data set) as a data set."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from smoothcert.datasets.base import Dataset
from smoothcert.errors import InvalidInput

_PROBED = 16


def as_dataset(data: Dataset | Sequence[Any]) -> Dataset:
    """`data` itself if it is a data set already, else a view of anything that gives (input, label) by number."""
    if hasattr(data, "fingerprint"):
        return cast(Dataset, data)
    try:
        count = len(data)
    except TypeError:
        raise InvalidInput(f"data must give (input, label) by number, got {type(data).__name__}") from None
    if not count:
        raise InvalidInput("the data is empty")
    return WrappedDataset(data)


class WrappedDataset:
    """A sequence of (input, label)."""

    class_names: tuple[str, ...] | None = None

    def __init__(self, data: Sequence[Any]) -> None:
        self._data = data
        self.name = type(data).__qualname__

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        x, label = self._data[index]
        values = torch.as_tensor(x if isinstance(x, Tensor) else np.asarray(x), dtype=torch.float32)
        return values.detach().cpu(), int(label)

    @cached_property
    def fingerprint(self) -> str:
        """Over the length and some inputs spread over it: reading all of a large data set would take minutes."""
        digest = hashlib.sha256(str(len(self)).encode())
        for index in sorted({round(i) for i in np.linspace(0, len(self) - 1, _PROBED)}):
            x, label = self[index]
            digest.update(f"{label} {tuple(x.shape)}".encode())
            digest.update(x.contiguous().numpy().data)
        return digest.hexdigest()

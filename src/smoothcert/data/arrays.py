"""A data set in memory, as one array."""

from __future__ import annotations

import hashlib
import warnings
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothcert._check import NO_CLASS
from smoothcert.data.base import check_labels
from smoothcert.data.inputs import float_type, outside
from smoothcert.errors import InvalidInput


class ArrayDataset:
    """A data set in memory.

    Images get the shape (n, channels, height, width). Arrays with 1 or 3 channels at the end, and bytes without a
    channel axis, are converted to this shape.

    Args:
        inputs: Inputs of shape (n, ...): bytes, which are divided by 255, or floats, which stay unchanged. Inputs of
            float64 stay in it.
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
        """If all values are known to be multiples of a step: how many steps there are from 0 to 1."""
        return 255 if self._inputs.dtype == np.uint8 else None

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        values = self._inputs[index]
        x = torch.from_numpy(values.astype(float_type(values)))
        return x / 255 if values.dtype == np.uint8 else x, int(self.labels[index])

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 hash of inputs and labels."""
        digest = hashlib.sha256(f"{self._inputs.dtype} {self._inputs.shape}".encode())
        digest.update(np.ascontiguousarray(self._inputs).data)
        digest.update(self.labels.data)
        return digest.hexdigest()


def _checked_inputs(inputs: NDArray[np.generic], name: str) -> NDArray[np.generic]:
    if inputs.ndim < 2 or inputs.size == 0:
        raise InvalidInput(f"{name} has inputs of shape {inputs.shape}: expected (n, ...) with at least one input")
    if inputs.dtype != np.uint8 and not np.issubdtype(inputs.dtype, np.floating):
        raise InvalidInput(f"{name} has inputs of type {inputs.dtype}: expected uint8 (0 to 255) or floats in [0, 1]")
    if inputs.dtype == np.uint8 and inputs.ndim == 3:
        return inputs[:, None]
    if inputs.ndim == 4 and inputs.shape[-1] in (1, 3) and inputs.shape[1] not in (1, 3):
        if inputs.dtype != np.uint8:
            warnings.warn(f"{name}: the last axis becomes the first, as channels; a list keeps its place", stacklevel=4)
        inputs = np.moveaxis(inputs, -1, 1)
    if inputs.dtype == np.uint8 and inputs.ndim == 2:
        warnings.warn(f"{name}: bytes are divided by 255, as those of images; give floats to prevent it", stacklevel=4)
    if inputs.dtype != np.uint8:
        outside(inputs, name=name, stacklevel=4)
    return inputs


def _checked_labels(labels: NDArray[np.generic] | None, count: int, name: str) -> NDArray[np.int64]:
    if labels is None:
        return np.full(count, NO_CLASS, np.int64)
    if labels.size != count:
        raise InvalidInput(f"{name} has {count} inputs but labels of shape {labels.shape}: expected ({count},)")
    if not np.issubdtype(labels.dtype, np.integer):
        raise InvalidInput(f"{name} has labels of type {labels.dtype}: expected integers from 0 on, or -1 for unknown")
    return labels.reshape(count).astype(np.int64)

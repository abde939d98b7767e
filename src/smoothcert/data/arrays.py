"""Arrays: a data set in memory or in an `.npz` file, and a single input as a tensor in [0, 1]."""

from __future__ import annotations

import hashlib
import os
import warnings
import zipfile
import zlib
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from smoothcert._check import NO_CLASS
from smoothcert.data.base import check_labels
from smoothcert.data.images import to_tensor
from smoothcert.errors import InvalidInput, first_line

_LARGEST_IN_FLOAT32 = 2**24
"""float32 holds all whole numbers up to this one."""
_DAMAGED = (EOFError, ValueError, MemoryError, NotImplementedError, zipfile.BadZipFile, zlib.error)


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
        return as_input(self._inputs[index]), int(self.labels[index])

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 hash of inputs and labels."""
        digest = hashlib.sha256(f"{self._inputs.dtype} {self._inputs.shape}".encode())
        digest.update(np.ascontiguousarray(self._inputs).data)
        digest.update(self.labels.data)
        return digest.hexdigest()


def _checked_inputs(inputs: NDArray[np.generic], name: str) -> NDArray[np.generic]:
    if inputs.ndim < 2 or inputs.size == 0:
        raise InvalidInput(
            f"{name} has inputs of shape {inputs.shape}: expected (n, ...) with at least one input"
        )
    if inputs.dtype != np.uint8 and not np.issubdtype(inputs.dtype, np.floating):
        raise InvalidInput(
            f"{name} has inputs of type {inputs.dtype}: expected uint8 (0 to 255) or floats in [0, 1]"
        )
    if inputs.dtype == np.uint8 and inputs.ndim == 3:
        return inputs[:, None]
    if inputs.ndim == 4 and inputs.shape[-1] in (1, 3) and inputs.shape[1] not in (1, 3):
        if inputs.dtype != np.uint8:
            warnings.warn(
                f"{name}: the last axis is taken as channels and moved to the front; a list of inputs stays as it is",
                stacklevel=4,
            )
        inputs = np.moveaxis(inputs, -1, 1)
    if inputs.dtype == np.uint8 and inputs.ndim == 2:
        warnings.warn(
            f"{name}: bytes are divided by 255, as those of images; give floats to prevent it",
            stacklevel=4,
        )
    if inputs.dtype != np.uint8:
        outside(inputs, name=name, stacklevel=4)
    return inputs


def _checked_labels(labels: NDArray[np.generic] | None, count: int, name: str) -> NDArray[np.int64]:
    if labels is None:
        return np.full(count, NO_CLASS, np.int64)
    if labels.size != count:
        raise InvalidInput(
            f"{name} has {count} inputs but labels of shape {labels.shape}: expected ({count},)"
        )
    if not np.issubdtype(labels.dtype, np.integer):
        raise InvalidInput(
            f"{name} has labels of type {labels.dtype}: expected integers from 0 on, or -1 for unknown"
        )
    return labels.reshape(count).astype(np.int64)


def load_npz(
    path: Path, *, name: str | None = None, class_names: tuple[str, ...] | None = None
) -> ArrayDataset:
    """An `.npz` file. If it has no labels, all labels are unknown."""
    if not path.is_file():
        raise InvalidInput(f"no data at {path}: the file does not exist")
    found = {}
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as content:
            size = sum(entry.file_size for entry in content.infolist())
        if size <= (memory := _memory()):
            with np.load(path, allow_pickle=False) as archive:
                found = {
                    name: archive[name]
                    for name in ("labels", "y", "images", "x")
                    if name in archive
                }
                names = archive.files
    except _DAMAGED as error:
        raise InvalidInput(
            f"{path} is damaged, or no .npz file of plain arrays: {first_line(error)}"
        ) from None
    if size > memory:
        raise InvalidInput(
            f"{path} needs {size:,} bytes of {memory:,} in memory: split it, or save images as uint8"
        )
    inputs, labels = found.get("x", found.get("images")), found.get("y", found.get("labels"))
    if inputs is None:
        raise InvalidInput(f"{path} has no array x or images; it has {', '.join(names) or 'none'}")
    return ArrayDataset(inputs, labels, name=name or path.stem, class_names=class_names)


def _memory() -> int:
    """The memory of this machine in bytes."""
    return (
        os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if hasattr(os, "sysconf")
        else 2**63
    )


def as_input(x: Any) -> Tensor:
    """An input as a tensor: float64 if it is an array or a tensor of float64 or of large integers, else float32.

    A list has no number format. It becomes float64 if float32 would round one of its numbers.

    >>> import numpy as np
    >>> as_input(np.array([0, 51, 255], np.uint8))
    tensor([0.0000, 0.2000, 1.0000])
    """
    if isinstance(x, Image.Image):
        return to_tensor(x, where="the input")
    array = as_array(x)
    kind = _float_type(array)
    if not hasattr(x, "dtype"):
        with np.errstate(over="ignore"):
            kind = np.float32 if np.array_equal(array.astype(np.float32), array) else kind
    floats = torch.from_numpy(array.astype(kind))
    return floats / 255 if array.dtype == np.uint8 else floats


def is_numbers(x: Any) -> bool:
    """Whether these are nested lists of numbers and nothing else. A tuple could be an input with its label."""
    return (
        isinstance(x, list)
        and len(x) > 0
        and all(isinstance(part, (int, float)) or is_numbers(part) for part in x)
    )


def as_array(x: Any) -> NDArray[np.generic]:
    """Numbers of the caller as an array."""
    if isinstance(x, Tensor):
        if x.layout != torch.strided:
            raise InvalidInput(
                "an input must be a dense array of numbers, got a sparse tensor: give x.to_dense()"
            )
        x = x.detach().cpu().resolve_conj().resolve_neg()
        x = (x.float() if x.dtype.itemsize < 4 and x.is_floating_point() else x).numpy()
    try:
        array = np.asarray(x)
    except ValueError:
        raise InvalidInput(
            "an input must be an array of numbers, got nested lists of different lengths"
        ) from None
    if array.dtype.kind not in "biuf":
        kind = f"an array of {array.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
        raise InvalidInput(f"an input must be an array of numbers, got {kind}")
    return array


def _float_type(array: NDArray[np.generic]) -> type[np.floating[Any]]:
    """The format that holds the numbers of an array without rounding, as far as float64 can."""
    if array.dtype.kind == "f":
        return np.float64 if array.dtype.itemsize > 4 else np.float32
    large = (
        array.dtype.itemsize > 2
        and array.size
        and max(int(array.max()), -int(array.min())) > _LARGEST_IN_FLOAT32
    )
    return np.float64 if large else np.float32


def outside(x: Tensor | NDArray[np.generic], *, name: str, stacklevel: int) -> bool:
    """Warn if finite values are not in [0, 1]; returns whether that is so.

    They may be normalised already, or bytes in another type. A value that is not finite is refused when its input is
    certified. The user may leave that input out, so it does not matter here.
    """
    values: NDArray[Any] = np.asarray(x)
    finite = np.isfinite(values)
    low, high = values.min(initial=np.inf, where=finite), values.max(initial=-np.inf, where=finite)
    if not (low < 0 or high > 1):
        return False
    found = f"{name}: values lie in [{low:g}, {high:g}], not in [0, 1]"
    warnings.warn(
        f"{found}; sigma and radii are in the units of these values", stacklevel=stacklevel + 1
    )
    return True

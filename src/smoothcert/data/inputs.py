"""Convert an input of the caller to a tensor in [0, 1]."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from smoothcert.data.images import to_tensor
from smoothcert.errors import InvalidInput

_LARGEST_IN_FLOAT32 = 2**24
"""float32 holds all whole numbers up to this one."""


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
    with np.errstate(over="ignore"):
        rounded = array.astype(np.float32)
    exact = hasattr(x, "dtype") or not np.array_equal(rounded, array)
    floats = torch.from_numpy(array.astype(float_type(array)) if exact else rounded)
    return floats / 255 if array.dtype == np.uint8 else floats


def is_numbers(x: Any) -> bool:
    """Whether these are nested lists of numbers and nothing else. A tuple could be an input with its label."""
    return isinstance(x, list) and len(x) > 0 and all(isinstance(part, (int, float)) or is_numbers(part) for part in x)


def as_array(x: Any) -> NDArray[np.generic]:
    """Numbers of the caller as an array."""
    if isinstance(x, Tensor):
        if x.layout != torch.strided:
            raise InvalidInput("an input must be a dense array of numbers, got a sparse tensor: give x.to_dense()")
        x = x.detach().cpu().resolve_conj().resolve_neg()
        x = (x.float() if x.dtype.itemsize < 4 and x.is_floating_point() else x).numpy()
    try:
        array = np.asarray(x)
    except ValueError:
        raise InvalidInput("an input must be an array of numbers, got nested lists of different lengths") from None
    if array.dtype.kind not in "biuf":
        kind = f"an array of {array.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
        raise InvalidInput(f"an input must be an array of numbers, got {kind}")
    return array


def float_type(array: NDArray[np.generic]) -> type[np.floating[Any]]:
    """The format that holds the numbers of an array without rounding, as far as float64 can."""
    if array.dtype.kind == "f":
        return np.float64 if array.dtype.itemsize > 4 else np.float32
    large = array.dtype.itemsize > 2 and array.size and max(int(array.max()), -int(array.min())) > _LARGEST_IN_FLOAT32
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
    warnings.warn(f"{found}; sigma and radii are in the units of these values", stacklevel=stacklevel + 1)
    return True

"""A single input of the caller as a tensor in [0, 1]."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from smoothcert import _check
from smoothcert.data.base import to_floats
from smoothcert.data.images import grey_or_colour, pixels_of
from smoothcert.errors import InvalidInput


def as_input(x: Any) -> Tensor:
    """An input as a tensor of float32, or of float64 if its array has numbers that need it.

    A list has no number format. It becomes float64 if float32 would round one of its numbers.

    >>> import numpy as np
    >>> as_input(np.array([0, 51, 255], np.uint8))
    tensor([0.0000, 0.2000, 1.0000])
    """
    if isinstance(x, Image.Image):
        x = pixels_of(grey_or_colour(x, where="the input"))
    return torch.from_numpy(to_floats(as_array(x), has_format=hasattr(x, "dtype")))


def is_numbers(x: Any) -> bool:
    """Whether these are nested lists of numbers. A tuple could be an input with its label."""
    if not isinstance(x, list) or not x:
        return False
    return all(isinstance(part, (int, float)) or is_numbers(part) for part in x)


def as_array(x: Any) -> NDArray[np.generic]:
    """Numbers of the caller as an array."""
    _check.unmasked("the data", x)
    if isinstance(x, Tensor):
        x = _tensor_as_array(x)
    try:
        array = np.asarray(x)
    except ValueError:
        raise InvalidInput(
            "ragged-input",
            "an input must be an array of numbers, got nested lists of different lengths",
        ) from None
    if array.dtype.kind not in "biuf":
        raise InvalidInput(
            "not-numbers",
            "an input must be an array of numbers, got {kind}",
            kind=f"an array of {array.dtype}" if isinstance(x, np.ndarray) else type(x).__name__,
        )
    return array


def _tensor_as_array(x: Tensor) -> NDArray[np.generic]:
    x = x.to_dense().detach().cpu().resolve_conj().resolve_neg()
    if x.is_floating_point() and x.dtype.itemsize < 4:
        x = x.float()  # NumPy has no bfloat16
    array: NDArray[np.generic] = x.numpy()
    return array

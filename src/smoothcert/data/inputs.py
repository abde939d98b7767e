"""Convert an input of the caller to a float32 tensor in [0, 1]."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from smoothcert.data.images import to_tensor
from smoothcert.errors import InvalidInput


def as_input(x: Any) -> Tensor:
    """An input as a float32 tensor.

    >>> import numpy as np
    >>> as_input(np.array([0, 51, 255], np.uint8))
    tensor([0.0000, 0.2000, 1.0000])
    """
    if isinstance(x, Image.Image):
        return to_tensor(x, where="the input")
    if isinstance(x, Tensor):
        return x.detach().cpu().float() / (255 if x.dtype == torch.uint8 else 1)
    try:
        array = np.asarray(x)
    except ValueError:
        raise InvalidInput("an input must be an array of numbers, got nested lists of different lengths") from None
    if array.dtype.kind not in "biuf":
        raise InvalidInput(f"an input must be an array of numbers, got {type(x).__name__}")
    # `astype` makes a copy, because torch accepts neither reversed views nor another byte order.
    return torch.from_numpy(array.astype(np.float32)) / (255 if array.dtype == np.uint8 else 1)


def outside(x: Tensor, *, name: str, stacklevel: int) -> bool:
    """Warn if an input is not in [0, 1]; returns whether that is so."""
    if not x.numel():
        return False
    low, high = (float(value) for value in torch.aminmax(x.nan_to_num(0.5, 0.5, 0.5)))
    warn_outside(low, high, name=name, stacklevel=stacklevel + 1)
    return low < 0 or high > 1


def warn_outside(low: float, high: float, *, name: str, stacklevel: int) -> None:
    """Warn if values are not in [0, 1]. They may be normalised already, or bytes in another type."""
    if low < 0 or high > 1:
        warnings.warn(
            f"{name}: values lie in [{low:g}, {high:g}], not in [0, 1]; sigma and radii are in the units of these "
            "values",
            UserWarning,
            stacklevel=stacklevel + 1,
        )

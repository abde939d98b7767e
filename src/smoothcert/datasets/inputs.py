"""One input of the caller's as smoothcert takes it: a float32 tensor in [0, 1]."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from smoothcert.datasets.images import to_tensor
from smoothcert.errors import InvalidInput


def as_input(x: Any) -> Tensor:
    """Bytes and images stand for 0 to 255 and are divided by 255; other numbers are taken as they are.

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
        raise InvalidInput("an input must be an array of numbers, got a list of parts with different lengths") from None
    if array.dtype.kind not in "biuf":
        raise InvalidInput(f"an input must be an array of numbers, got {type(x).__name__}")
    # A copy of its own: torch takes neither reversed views nor another byte order.
    return torch.from_numpy(array.astype(np.float32)) / (255 if array.dtype == np.uint8 else 1)


def warn_outside(low: float, high: float, *, name: str, stacklevel: int) -> None:
    """Say so if values do not lie in [0, 1]: normalised by the caller, or bytes of another type."""
    if low < 0 or high > 1:
        warnings.warn(
            f"{name}: values lie in [{low:g}, {high:g}], not in [0, 1]; sigma and radii are in the units of these "
            "values",
            UserWarning,
            stacklevel=stacklevel + 1,
        )

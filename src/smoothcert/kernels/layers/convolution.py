"""An operation that torch has no name for: convolution, addition and ReLU in one pass over memory, by cuDNN."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHANNEL_MULTIPLE = 8
"""Tensor cores need channel counts that are multiples of this."""
FUSED_DTYPES = (torch.bfloat16, torch.float16)
"""The number formats in which cuDNN has fused kernels."""

_library = torch.library.Library("smoothcert", "DEF")  # type: ignore[no-untyped-call]
_library.define(  # type: ignore[no-untyped-call]
    "convolution_relu(Tensor x, Tensor weight, Tensor? bias, Tensor? added,"
    " int[] stride, int[] padding, int[] dilation, int groups) -> Tensor"
)

# In both implementations below, `geometry` stands for stride, padding, dilation and groups.


@torch.library.impl(_library, "convolution_relu", "CompositeExplicitAutograd")
def _unfused(x: Tensor, weight: Tensor, bias: Tensor | None, added: Tensor | None, *geometry: Any) -> Tensor:
    y = torch.conv2d(x, weight, bias, *geometry)
    return (y if added is None else y + added).relu()


@torch.library.impl(_library, "convolution_relu", "CUDA")
def _fused(x: Tensor, weight: Tensor, bias: Tensor | None, added: Tensor | None, *geometry: Any) -> Tensor:
    try:
        if added is None:
            return torch.cudnn_convolution_relu(x, weight, bias, *geometry)
        return torch.cudnn_convolution_add_relu(x, weight, added, 1.0, bias, *geometry)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # cuDNN has no such kernel for this shape or this device
        return _unfused(x, weight, bias, added, *geometry)

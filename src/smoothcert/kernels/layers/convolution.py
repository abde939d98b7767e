"""An operation that torch has no name for: convolution, addition and ReLU in one pass over memory, by cuDNN."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHANNEL_MULTIPLE = 8
"""Tensor cores need channel counts that are multiples of this."""
FUSED_DTYPES = (torch.bfloat16, torch.float16)
"""The number formats in which cuDNN has fused kernels."""


def convolution_relu(x: Tensor, weight: Tensor, bias: Tensor | None, added: Tensor | None, *geometry: Any) -> Tensor:
    """A convolution, an addition and a ReLU. `geometry` stands for stride, padding, dilation and groups."""
    if x.is_cuda:
        try:
            if added is None:
                return torch.cudnn_convolution_relu(x, weight, bias, *geometry)
            return torch.cudnn_convolution_add_relu(x, weight, added, 1.0, bias, *geometry)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # cuDNN has no such kernel for this shape or this device
            pass
    y = torch.conv2d(x, weight, bias, *geometry)
    return (y if added is None else y + added).relu()

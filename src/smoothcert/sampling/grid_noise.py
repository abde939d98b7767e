"""Rounded normal numbers for kernels: their thresholds on the device, and where to use 64 bits."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from smoothcert.noises.base import AdditiveGrid
from smoothcert.noises.rounded_normal import thresholds

# Kernels estimate the number in float32 from 32 bits, and trust an estimate that is at least .02
# from the boundary of two numbers. Half of a unit of the 32 bits must then be worth less than .02,
# by a wide margin. In a tail of probability p, it is worth at most ratio * 2^-33 / (4 p) for
# p < 2^-12.
_SMALLEST_TAIL = 2.0**-22
_TAIL_PER_RATIO = 2.0**-28


class GridNoise(NamedTuple):
    """What a kernel needs to draw noise on a grid."""

    table: Tensor
    """The thresholds of `rounded_normal`, in increasing order, less 2^63, as signed numbers."""
    smallest: int
    """The number that stands for bits below the first threshold."""
    ratio: float
    """The standard deviation in steps."""
    step: float
    """The step of the grid."""
    tail: float
    """Where the nearer tail has a smaller probability, 64 bits are compared with the thresholds."""


@lru_cache(maxsize=4)
def grid_noise(draw: AdditiveGrid, device: torch.device) -> GridNoise:
    """The noise of a description, with its thresholds on a device."""
    ratio = draw.deviation / draw.step
    unsigned = thresholds(ratio)
    signed = (unsigned.values ^ np.uint64(2**63)).view(np.int64)
    table = torch.from_numpy(signed).to(device)
    tail = max(_SMALLEST_TAIL, ratio * _TAIL_PER_RATIO)
    return GridNoise(table, unsigned.smallest, ratio, draw.step, tail)

"""Rounded normal numbers for kernels: the thresholds on the device, and where 32 random bits are too few."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from smoothcert.noises.base import AdditiveGrid
from smoothcert.noises.rounded_normal import thresholds

# Kernels estimate the number in float32 from 32 bits, and trust an estimate that is at least .02 from the boundary of
# two numbers. Half of a unit of the 32 bits must then be worth less than .02, by a wide margin. In a tail of
# probability p, it is worth at most ratio * 2^-33 / (4 p) for p < 2^-12.
_TAIL, _TAIL_PER_RATIO = 2.0**-22, 2.0**-28


class GridNoise(NamedTuple):
    """What a kernel needs to draw noise on a grid."""

    table: Tensor
    """The thresholds of `rounded_normal`, in increasing order. They are less by 2^63, so that they are signed."""
    smallest: int
    """The number that stands for bits below the first threshold."""
    ratio: float
    """The standard deviation in steps."""
    step: float
    """The step of the grid."""
    tail: float
    """Where the probability of the nearer tail is below this, 64 bits are compared with the thresholds."""


@lru_cache(maxsize=4)
def grid_noise(draw: AdditiveGrid, device: torch.device) -> GridNoise:
    """The noise of a description, with its thresholds on a device."""
    ratio = draw.deviation / draw.step
    found = thresholds(ratio)
    table = torch.from_numpy((found.values ^ np.uint64(2**63)).view(np.int64)).to(device)
    return GridNoise(table, found.smallest, ratio, draw.step, max(_TAIL, ratio * _TAIL_PER_RATIO))

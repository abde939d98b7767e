"""Keyed noise: sample i of input j is a function of (seed, j, i) alone.

So votes depend neither on batch size, packing and workers nor on interruptions, and the samples of a short run are a
prefix of those of a longer one. Which stream makes the noise is a property of the device: the same seed gives the
same noise on every device of a kind.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from smoothcert.errors import InvalidInput
from smoothcert.sampler.packing import Segment

# float32 has no number between this and 1. erfinv of it is 5.4 standard deviations: the largest noise there is. It is
# clamped, not scaled: scaling would take a bit off every number, and noise must never be smaller than it is said to be.
_LARGEST = 1 - 2.0**-24


class Stream(ABC):
    """Writes noisy inputs, row by row."""

    def __init__(self, seed: int) -> None:
        if seed >= 2**63:
            raise InvalidInput(f"seed must be below 2**63, got {seed}")
        self.seed = seed

    @abstractmethod
    def write(self, out: Tensor, inputs: Tensor, sigma: float, segments: Sequence[Segment], rows: Tensor) -> None:
        """Fill out[r] with inputs[slot] + sigma * z for every row r that the segments describe, in their order.

        `rows` says the same on the device: slot, id and sample of each row, padding included.
        """


class HostStream(Stream):
    """Random bits from NumPy on the host, made normal on the device; for any device.

    Input j has a PCG64DXSM generator seeded by (seed, j), which can be moved to any position at once: sample i
    starts at word i * words.
    """

    def write(self, out: Tensor, inputs: Tensor, sigma: float, segments: Sequence[Segment], rows: Tensor) -> None:
        size = out[0].numel()
        words = (size + 1) // 2  # 64-bit words per sample, two numbers each
        row = 0
        for segment in segments:
            generator = np.random.PCG64DXSM(np.random.SeedSequence(self.seed, spawn_key=(segment.id,)))
            generator.advance(segment.first * words)
            target = out[row : row + segment.count]
            bits = generator.random_raw(segment.count * words).view(np.int32).reshape(segment.count, -1)[:, :size]
            uniform = torch.from_numpy(bits).to(out.device).float().mul_(2.0**-31).clamp_(-_LARGEST, _LARGEST)
            noise = uniform.erfinv_().view(target.shape)
            torch.add(inputs[segment.slot], noise, alpha=math.sqrt(2) * sigma, out=target)
            row += segment.count


def stream_for(device: torch.device, seed: int) -> Stream:
    """The stream of this kind of device."""
    if device.type == "cuda":
        try:
            from smoothcert.sampler.philox import PhiloxStream
        except ImportError:  # no Triton on this platform
            return HostStream(seed)
        return PhiloxStream(seed)
    return HostStream(seed)

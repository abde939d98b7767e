"""Keyed noise: sample i of input j is a function of (seed, j, i) alone.

So votes do not depend on batch size, packing, the number of workers or interruptions, and the samples of a short run
are the first samples of a longer one. The kind of device decides which stream draws the noise: the same seed gives
the same noise on every device of a kind.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from smoothcert.errors import InvalidInput
from smoothcert.noises import Additive
from smoothcert.sampler.packing import Segment

LARGEST_SEED = 2**63 - 1

# float32 has no number between this and 1. Its erfinv is 5.4 standard deviations, the largest noise there is. Values
# are clamped, not scaled: scaling would shrink every value, and noise must never be smaller than it is said to be.
_LARGEST = 1 - 2.0**-24


class Stream(ABC):
    """Writes noisy inputs, row by row.

    Args:
        seed: The key of the noise.
        draw: How the noise is drawn.
    """

    def __init__(self, seed: int, draw: Additive) -> None:
        self.seed = check_seed(seed)
        self.draw = draw

    @abstractmethod
    def write(self, out: Tensor, inputs: Tensor, segments: Sequence[Segment], rows: Tensor) -> None:
        """Fill out[r] with a noisy copy of inputs[slot] for every row r that the segments describe, in their order.

        Args:
            out: The batch to fill.
            inputs: The open inputs, by slot.
            segments: Which samples of which inputs the rows are.
            rows: The same on the device: slot, id and sample of each row, padding included.
        """


class HostStream(Stream):
    """Draws random bits with NumPy on the host and transforms them on the device; works for any device.

    Input j has a PCG64DXSM generator seeded by (seed, j). It can jump to any position, and sample i starts at word
    i * words.
    """

    def write(self, out: Tensor, inputs: Tensor, segments: Sequence[Segment], rows: Tensor) -> None:
        size = out[0].numel()
        words = (size + 1) // 2  # 64-bit words per sample; each gives two numbers
        transform, factor = _TRANSFORMS[self.draw.law]
        row = 0
        for segment in segments:
            generator = np.random.PCG64DXSM(np.random.SeedSequence(self.seed, spawn_key=(segment.id,)))
            generator.advance(segment.first * words)
            target = out[row : row + segment.count]
            bits = generator.random_raw(segment.count * words).view(np.int32).reshape(segment.count, -1)[:, :size]
            uniform = torch.from_numpy(bits).to(out.device).float().mul_(2.0**-31).clamp_(-_LARGEST, _LARGEST)
            noise = transform(uniform).view(target.shape)
            torch.add(inputs[segment.slot], noise, alpha=factor * self.draw.scale, out=target)
            row += segment.count


def _laplace(uniform: Tensor) -> Tensor:
    """The inverse of the distribution function: -sign(u) log(1 - |u|)."""
    return uniform.abs().neg_().log1p_().mul_(-1).copysign_(uniform)


# From a uniform number on (-1, 1) to the law's number, and a constant factor.
_TRANSFORMS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "normal": (torch.Tensor.erfinv_, math.sqrt(2)),
    "uniform": (lambda uniform: uniform, 1.0),
    "laplace": (_laplace, 1.0),
}


def stream_for(device: torch.device, seed: int, draw: Additive) -> Stream:
    """The stream of this kind of device.

    Args:
        device: Where the noisy inputs are needed.
        seed: The key of the noise.
        draw: How the noise is drawn.
    """
    if device.type == "cuda":
        try:
            from smoothcert.sampler.philox import PhiloxStream
        except ImportError:  # no Triton on this platform
            return HostStream(seed, draw)
        return PhiloxStream(seed, draw)
    return HostStream(seed, draw)


def check_seed(seed: int) -> int:
    """Refuse a seed that streams cannot hold.

    Args:
        seed: The key of the noise.
    """
    if not 0 <= seed <= LARGEST_SEED:
        raise InvalidInput(f"seed must be from 0 to {LARGEST_SEED}, got {seed}")
    return seed

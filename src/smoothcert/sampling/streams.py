"""Keyed noise: sample i of input j is a function of (seed, j, i) alone.

So votes do not depend on batch size, packing, the number of workers or interruptions, and the
samples of a short run are the first samples of a longer one. The kind of device decides which
stream draws the noise: the same seed gives the same noise on every device of a kind.
"""

from __future__ import annotations

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothcert.errors import InvalidInput
from smoothcert.noises.base import Additive, AdditiveGrid, Draw
from smoothcert.sampling.drawing import Drawer, MoreBits, drawer_for, split_mix
from smoothcert.sampling.grid_noise import grid_noise

LARGEST_SEED = 2**63 - 1
"""Seeds are 63-bit numbers on the device."""
MOST_IDS = 2**31
"""Ids must be below this, because they are 32-bit numbers on the device."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Segment:
    """Consecutive samples of one input.

    Args:
        slot: Where the input lies on the device.
        id: The number of the input.
        first: The number of the first sample.
        count: How many samples.
    """

    slot: int
    id: int
    first: int
    count: int


class Stream(ABC):
    """Writes noisy inputs, row by row.

    Args:
        seed: The key of the noise.
        draw: How the noise is drawn.
    """

    def __init__(self, seed: int, draw: Draw) -> None:
        self.seed = check_seed(seed)
        self.draw = draw

    @property
    def kernel_draw(self) -> Draw | None:
        """The noise, if the kernels of a classifier can draw the same noise; else None."""
        return None

    @abstractmethod
    def write(self, out: Tensor, inputs: Tensor, segments: Sequence[Segment], rows: Tensor) -> None:
        """Write noisy copies of inputs.

        Args:
            out: Takes a noisy input in every row that the segments describe, in their order.
            inputs: The clean inputs, by slot.
            segments: The samples.
            rows: Slot, id and sample of every row, on the device.
        """


class HostStream(Stream):
    """Draws random bits with NumPy on the host and transforms them on the device, of any kind.

    Input j has a PCG64DXSM generator seeded by (seed, j). It can jump to any position, and sample i
    starts at word i * words. The few numbers that need more bits take them from a second generator
    of the input.
    """

    def write(self, out: Tensor, inputs: Tensor, segments: Sequence[Segment], rows: Tensor) -> None:
        if not segments:
            return
        drawer = drawer_for(self.draw, tuple(inputs.shape[1:]))
        # Bits are drawn for each input and transformed for the whole batch: small operations are
        # slow.
        count = sum(segment.count for segment in segments)
        bits = np.concatenate([self._bits(drawer, segment) for segment in segments])
        x = inputs[segments[0].slot, None]
        if len(segments) > 1:
            x = inputs.index_select(0, rows[0, :count])
        words = torch.from_numpy(bits).view(-1, drawer.words)
        noisy = drawer.noisy(words.to(out.device), x, self._more_bits(segments, 2 * drawer.words))
        out[:count].copy_(noisy)

    def _bits(self, drawer: Drawer, segment: Segment) -> NDArray[np.int64]:
        if drawer.enumerated:
            return np.arange(segment.first, segment.first + segment.count)
        generator = np.random.PCG64DXSM(self._sequence(segment.id))
        generator.advance(segment.first * drawer.words)
        return generator.random_raw(segment.count * drawer.words).view(np.int64)

    def _sequence(self, *key: int) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.seed, spawn_key=key)

    def _more_bits(self, segments: Sequence[Segment], halves: int) -> MoreBits:
        """What gives more bits for the numbers of these segments, of which a row has `halves`."""

        def more(where: NDArray[np.int64]) -> NDArray[np.uint64]:
            first_rows = np.cumsum([0, *(segment.count for segment in segments)])
            numbers = np.searchsorted(first_rows, where // halves, side="right") - 1
            bits = np.empty(len(where), np.uint64)
            for number in np.unique(numbers):
                segment = segments[number]
                in_segment = numbers == number
                key = int(self._sequence(segment.id, 1).generate_state(1, np.uint64)[0])
                shift = (segment.first - first_rows[number]) * halves
                position = where[in_segment] + shift
                bits[in_segment] = split_mix(key, position.astype(np.uint64))
            return bits

        return more


class PhiloxStream(Stream):
    """Draws noise with a counter-based generator inside the kernel that adds it; for CUDA devices.

    Descriptions without a fused kernel take their random words from the same generator. Triton is
    imported only when noise is drawn here: it takes a third of a second, and the kernels of a CIFAR
    ResNet draw their noise themselves.
    """

    @property
    def kernel_draw(self) -> Draw | None:
        is_normal = type(self.draw) is Additive and self.draw.law == "normal"
        if is_normal or type(self.draw) is AdditiveGrid:
            return self.draw
        return None

    def write(self, out: Tensor, inputs: Tensor, segments: Sequence[Segment], rows: Tensor) -> None:
        from smoothcert.sampling.philox import add_noise, random_words

        if type(self.draw) is Additive:
            add_noise(out, inputs, rows, self.seed, self.draw.law, self.draw.drawn_scale)
        elif type(self.draw) is AdditiveGrid:
            grid = grid_noise(self.draw, out.device)
            add_noise(out, inputs, rows, self.seed, "grid", grid.step, grid)
        else:
            drawer = drawer_for(self.draw, tuple(inputs.shape[1:]))
            if drawer.enumerated:
                words = rows[2, :, None].long()
            else:
                words = random_words(rows, len(out), self.seed, drawer.words)
            with torch.cuda.device(out.device):
                out.copy_(drawer.noisy(words.contiguous(), inputs[rows[0].long()]))


def stream_for(device: torch.device, seed: int, draw: Draw) -> Stream:
    """The stream of this kind of device."""
    if device.type != "cuda":
        return HostStream(seed, draw)
    if find_spec("triton") is None:
        log.info("there is no Triton here, so the host draws the noise, which is other noise")
        return HostStream(seed, draw)
    return PhiloxStream(seed, draw)


def key_for(seed: int, purpose: str, call: int = 0) -> int:
    """The key of the noise for another purpose than a run of `certify`, which uses the seed itself.

    What was chosen with one noise must not be certified with the same noise, so every purpose has
    its own.
    """
    digest = hashlib.sha256(f"{seed} {purpose} {call}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def check_seed(seed: int) -> int:
    """Refuse a seed that streams cannot hold."""
    if not 0 <= seed <= LARGEST_SEED:
        raise InvalidInput(
            "seed-out-of-range",
            "seed must be from 0 to {largest}, got {seed}",
            seed=seed,
            largest=LARGEST_SEED,
        )
    return seed

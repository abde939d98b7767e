"""Turn requests for samples into votes."""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from smoothcert.plans import Look
from smoothcert.sampling.packing import Packer, Segment
from smoothcert.sampling.voting import Reading, VoteCounter


class Sampler:
    """Keeps several inputs open, whose requests share batches.

    Call `open` while there are `free` slots, `request` samples, and call `advance` until it returns the votes. The host
    does not wait for the device while it can send a full batch to it.

    Args:
        counter: Counts the votes on the device.
    """

    def __init__(self, counter: VoteCounter) -> None:
        self.counter = counter
        self.forwarded = 0
        """Rows that went through the classifier, padding included."""
        self.counted = 0
        """Rows that were a sample of an input, without padding."""
        self._packer = Packer(len(counter.noisy))
        self._free = list(reversed(range(len(counter.inputs) - 1)))
        self._open: dict[int, _Open] = {}
        self._readings: deque[Reading] = deque()

    @property
    def free(self) -> int:
        """How many more inputs can be opened."""
        return len(self._free)

    @property
    def waiting(self) -> int:
        """Samples that were requested and not yet sent to the device."""
        return self._packer.rows

    def open(self, id: int, x: Tensor, *, drawn: int = 0) -> int:
        """Open an input of which so many samples were drawn before; returns its slot."""
        slot = self._free.pop()
        self._open[slot] = _Open(id, drawn)
        self.counter.load(slot, x)
        return slot

    def request(self, slot: int, samples: int) -> None:
        """Request more samples of an open input. It must not have another request that is not complete."""
        state = self._open[slot]
        self._packer.add(Segment(slot, state.id, state.drawn, samples))
        state.requested = samples
        state.drawn += samples

    def close(self, slot: int) -> None:
        """Close an input, so that another one can have its slot."""
        del self._open[slot]
        self._free.append(slot)

    @torch.inference_mode()
    def advance(self) -> list[tuple[int, Look]]:
        """Send the next batch to the device; returns slots and votes of the requests that are complete.

        If the next batch is not full, this first waits for votes, because they may lead to requests that fill it.
        """
        full = self._packer.rows >= self._packer.size
        if full or (self._packer.rows and not self._readings):
            batch = self._packer.take()
            self.forwarded += self.counter.size(batch.rows)
            self.counted += batch.rows
            if reading := self.counter.run(batch):
                self._readings.append(reading)
        elif self._readings:
            return self._collect(self._readings.popleft())
        completed = []
        while self._readings and self._readings[0].ready():
            completed += self._collect(self._readings.popleft())
        return completed

    def _collect(self, reading: Reading) -> list[tuple[int, Look]]:
        looks = []
        for slot, counts in reading.wait():
            votes = {int(c): int(counts[c]) for c in counts[:-1].nonzero()[0]}
            looks.append((slot, Look(self._open[slot].requested, votes)))
        return looks


class _Open:
    """What the sampler knows about an open input."""

    def __init__(self, id: int, drawn: int) -> None:
        self.id = id
        self.drawn = drawn
        """Samples requested so far, which is also the number of the next sample."""
        self.requested = 0
        """Samples of the last request."""

"""Turn requests for samples into votes: the requests of many inputs share batches of one fixed size.

An input that needs 1,217 samples takes 1,217 rows. The next input in the queue uses the rest of the batch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import torch
from torch import Tensor

from smoothcert.plans import Look
from smoothcert.sampling.streams import Segment
from smoothcert.sampling.voting import Batch, Reading, VoteCounter


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
        self._last: dict[int, Segment] = {}
        """The last request of each open input, of no samples before the first."""
        self._readings: deque[Reading] = deque()

    @property
    def free(self) -> int:
        """How many more inputs can be opened."""
        return len(self._free)

    @property
    def full(self) -> bool:
        """Whether the samples that were requested fill the next batch."""
        return self._packer.rows >= self._packer.size

    def open(self, id: int, x: Tensor, *, drawn: int = 0) -> int:
        """Open an input of which so many samples were drawn before; returns its slot."""
        slot = self._free.pop()
        self._last[slot] = Segment(slot, id, drawn, 0)
        self.counter.load(slot, x)
        return slot

    def request(self, slot: int, samples: int) -> None:
        """Request more samples of an open input. It must not have another request that is not complete."""
        last = self._last[slot]
        self._last[slot] = replace(last, first=last.first + last.count, count=samples)
        self._packer.add(self._last[slot])

    def close(self, slot: int) -> None:
        """Close an input, so that another one can have its slot."""
        del self._last[slot]
        self._free.append(slot)

    @torch.inference_mode()
    def advance(self) -> list[tuple[int, Look]]:
        """Send the next batch to the device; returns slots and votes of the requests that are complete.

        If the next batch is not full, this first waits for votes, because they may lead to requests that fill it.
        """
        if self.full or (self._packer.rows and not self._readings):
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
            looks.append((slot, Look(self._last[slot].count, votes)))
        return looks


class Packer:
    """A queue of requests, which leave it in batches.

    Args:
        size: Rows per batch.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows = 0
        """Rows in the queue."""
        self._queue: deque[Segment] = deque()

    def add(self, request: Segment) -> None:
        """Put a request at the end of the queue."""
        self._queue.append(request)
        self.rows += request.count

    def take(self) -> Batch:
        """The next batch. It is shorter than `size` only if the queue does not hold more."""
        segments: list[Segment] = []
        completed: list[int] = []
        room = self.size
        while room and self._queue:
            head = self._queue.popleft()
            count = min(head.count, room)
            segments.append(replace(head, count=count))
            if count < head.count:
                self._queue.appendleft(replace(head, first=head.first + count, count=head.count - count))
            else:
                completed.append(head.slot)
            room -= count
        self.rows -= self.size - room
        return Batch(segments, completed)

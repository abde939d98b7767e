"""Pack the requests of many inputs into batches of one fixed size.

An input that needs 1,217 samples takes 1,217 rows. The next input in the queue uses the rest of the batch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

MOST_IDS = 2**31
"""Ids must be below this, because they are 32-bit numbers on the device."""


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


@dataclass(frozen=True)
class Batch:
    """The samples of one forward pass.

    Args:
        segments: The samples, in the order of the rows.
        completed: Slots whose request ends in this batch.
    """

    segments: list[Segment]
    completed: list[int]

    @property
    def rows(self) -> int:
        """The number of samples."""
        return sum(segment.count for segment in self.segments)


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

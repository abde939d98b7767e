"""Which samples share a batch: requests of many inputs, cut to batches of one fixed size.

An input that needs 1,217 samples takes 1,217 rows; the rest of the batch goes to the next one in line.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

MOST_IDS = 2**31
"""Ids are below this: they are 32-bit numbers on the device."""


@dataclass(frozen=True)
class Segment:
    """Consecutive samples `first`, first + 1, ... of input `id`, which lies in `slot`."""

    slot: int
    id: int
    first: int
    count: int


@dataclass(frozen=True)
class Batch:
    segments: list[Segment]
    completed: list[int]
    """Slots whose request ends in this batch."""

    @property
    def rows(self) -> int:
        return sum(segment.count for segment in self.segments)


class Packer:
    """A line of requests, served first come, first served, in batches of `size` rows."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows = 0
        """Rows waiting in line."""
        self._line: deque[Segment] = deque()

    def add(self, request: Segment) -> None:
        self._line.append(request)
        self.rows += request.count

    def take(self) -> Batch:
        """The next batch; shorter than `size` only when the line runs out."""
        segments: list[Segment] = []
        completed: list[int] = []
        room = self.size
        while room and self._line:
            head = self._line.popleft()
            count = min(head.count, room)
            segments.append(replace(head, count=count))
            if count < head.count:
                self._line.appendleft(replace(head, first=head.first + count, count=head.count - count))
            else:
                completed.append(head.slot)
            room -= count
        self.rows -= self.size - room
        return Batch(segments, completed)

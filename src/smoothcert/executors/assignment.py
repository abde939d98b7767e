"""Which input is with which worker: the bookkeeping of a run on many devices, without any of them.

Inputs are handed out while the run goes on, a few per worker, since nobody knows beforehand what an input will cost. An
input is with one worker at a time, and only that worker can finish it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable
from math import ceil

TRIES = 3


class Assignment:
    """Workers `join` and `leave`; between that they are `give`n inputs, and `finish` or `fail` them."""

    def __init__(self, ids: Iterable[int]) -> None:
        self._waiting = deque(ids)
        self._suspects: deque[int] = deque()
        """Inputs that failed before. No two of them are ever with one worker: if it dies, it is clear of which."""
        self._failures: Counter[int] = Counter()
        self.given_up: str | None = None
        """Why no more inputs are handed out; those that are open will still be finished."""
        self._capacity: dict[Hashable, int] = {}
        self._open: dict[Hashable, set[int]] = {}

    @property
    def done(self) -> bool:
        return not self._waiting and not self._suspects and not any(self._open.values())

    def open(self, worker: Hashable) -> int:
        """Inputs that are with a worker."""
        return len(self._open[worker])

    def join(self, worker: Hashable, capacity: int) -> None:
        """A worker that can keep `capacity` inputs open."""
        self._capacity[worker] = capacity
        self._open[worker] = set()

    def leave(self, worker: Hashable, error: str) -> None:
        """A worker is lost; what it had is for others."""
        for id in sorted(self._open[worker]):
            self.fail(worker, id, error)
        del self._open[worker], self._capacity[worker]

    def give(self, worker: Hashable) -> list[int]:
        """What this worker gets now.

        As the line runs out, workers are allowed fewer open inputs, down to one: whatever lay in a busy worker's
        window then would be missed by an idle one (docs/scale.md has the figures).
        """
        mine = self._open[worker]
        share = ceil(len(self._waiting) / (2 * len(self._open)))
        allowed = min(self._capacity[worker], max(share, 1))
        given: list[int] = []
        if self._suspects and len(mine) < allowed and not any(self._failures[id] for id in mine):
            given.append(self._suspects.popleft())
        while self._waiting and len(mine) + len(given) < allowed:
            given.append(self._waiting.popleft())
        mine.update(given)
        return given

    def finish(self, worker: Hashable, id: int) -> bool:
        """Whether the certificate of this input is wanted from this worker."""
        wanted = id in self._open.get(worker, ())
        if wanted:
            self._open[worker].remove(id)
        return wanted

    def fail(self, worker: Hashable, id: int, error: str) -> None:
        """An input goes to another worker, unless it has failed too often: then this is the end."""
        self._open[worker].remove(id)
        self._failures[id] += 1
        if self._failures[id] < TRIES:
            self._suspects.append(id)
        else:
            self._waiting.clear()
            self.given_up = (
                f"input {id} failed {TRIES} times, at last with: {error}; all finished inputs are committed, and the "
                "same command resumes"
            )

"""Which worker has which inputs. This module keeps records; it starts no worker and sends nothing.

Inputs are assigned during the run, a few per worker at a time, because their costs are not known in
advance. An input is assigned to one worker at a time, and only that worker can finish it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable
from math import ceil

from smoothcert.errors import SmoothcertError, UnreadableInput

TRIES = 3
"""After this many failures of one input, the run stops."""


class Assignment:
    """Which inputs are waiting, and which worker has which inputs.

    A worker joins with `join` and leaves with `leave`. In between, `give` assigns inputs to it, and
    `finish` and `fail` record what became of them.

    Args:
        ids: The inputs to assign, in this order.
    """

    def __init__(self, ids: Iterable[int]) -> None:
        self._waiting = deque(ids)
        self._failed_before: deque[int] = deque()
        """Inputs that failed and will be tried again. A worker gets only one of them at a time: if
        it dies, we know which input is to blame."""
        self._failures: Counter[int] = Counter()
        self.given_up: SmoothcertError | None = None
        """Why the run stops; None while it goes on. Inputs that are open or failed less often are
        still tried."""
        self._capacity: dict[Hashable, int] = {}
        self._open: dict[Hashable, set[int]] = {}

    @property
    def done(self) -> bool:
        """Whether no input is waiting or open."""
        return not self._waiting and not self._failed_before and not any(self._open.values())

    def open(self, worker: Hashable) -> int:
        """The number of inputs that a worker has."""
        return len(self._open[worker])

    def join(self, worker: Hashable, capacity: int) -> None:
        """Add a worker."""
        self._capacity[worker] = capacity
        self._open[worker] = set()

    def leave(self, worker: Hashable, error: str) -> None:
        """Remove a lost worker. Its open inputs count as failed and go to other workers."""
        for id in sorted(self._open[worker]):
            self.fail(worker, id, error)
        del self._open[worker], self._capacity[worker]

    def give(self, worker: Hashable) -> list[int]:
        """Assign as many inputs to a worker as it may have now, and return them.

        When few inputs are left, each worker may have fewer open inputs, down to one. Otherwise the
        last inputs would wait at busy workers while other workers are idle (docs/scale.md has the
        figures).
        """
        open = self._open[worker]
        share = ceil(len(self._waiting) / (2 * len(self._open)))
        room = min(self._capacity[worker], max(share, 1)) - len(open)
        has_failed_input = any(self._failures[id] for id in open)
        ids: list[int] = []
        if self._failed_before and room > 0 and not has_failed_input:
            ids.append(self._failed_before.popleft())
        while self._waiting and len(ids) < room:
            ids.append(self._waiting.popleft())
        open.update(ids)
        return ids

    def finish(self, worker: Hashable, id: int) -> bool:
        """Record that a worker has finished an input.

        Returns:
            Whether the input was assigned to this worker.
        """
        assigned = id in self._open.get(worker, ())
        if assigned:
            self._open[worker].remove(id)
        return assigned

    def fail(self, worker: Hashable, id: int, error: str, *, unreadable: bool = False) -> None:
        """Record that an input failed. It is tried again, unless it failed too often."""
        self._open[worker].remove(id)
        self._failures[id] += 1
        if self._failures[id] < TRIES:
            self._failed_before.append(id)
            return
        self._waiting.clear()
        self.given_up = SmoothcertError(
            "input-failed",
            "input {id} failed {tries} times, the last time with: {error}; all finished inputs are "
            "saved, and the same command resumes the run",
            id=id,
            tries=TRIES,
            error=error,
        )
        if unreadable:
            self.given_up = UnreadableInput(self.given_up.message, id)

"""How long each step of the set-up takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class SetupClock:
    """Adds up the seconds of the steps of a set-up, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the time in this block to a step."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

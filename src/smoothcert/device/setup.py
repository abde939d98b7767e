"""What the steps before a run have in common: messages, seconds, and running out of memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import torch

Say: TypeAlias = Callable[[str], None]
"""A function that shows a message to the user."""

_OUT_OF_MEMORY_MESSAGES = ("can't allocate memory", "out of memory")


def say_nothing(message: str) -> None:
    """Show no message."""


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error means that memory ran out.

    torch has no error type for the memory of the host, and the compiler wraps errors in its own
    type, so this function also reads the message.
    """
    if isinstance(error, torch.OutOfMemoryError):
        return True
    if not isinstance(error, RuntimeError):
        return False
    return any(message in str(error) for message in _OUT_OF_MEMORY_MESSAGES)


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

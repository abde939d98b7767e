"""The process around a run: its memory, its threads, and the seconds of its set-up."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # constants of malloc.h
_second_team_started = False


def say_nothing(message: str) -> None:
    """Show no message."""


def keep_freed_memory(device: torch.device) -> None:
    """On a CPU, make the C library keep freed memory for the next batch.

    By default, glibc returns large blocks to the operating system and requests them again, page by page, for every
    layer of every batch. That takes half of the time of a small network.
    """
    if device.type == "cpu":
        with suppress(OSError, AttributeError, TypeError):  # other C libraries have no mallopt
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_M_MMAP_THRESHOLD, 2**30)
            mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def let_threads_rest(device: torch.device) -> None:
    """Make waiting threads sleep soon instead of spinning, as `GOMP_SPINCOUNT=1000` does.

    The OpenMP library of torch reads this variable when torch is imported, which has often happened before. Threads
    then spin for so long that, on shared cores, the thread that they wait for does not get a core. The library spins
    for a short time only while it manages more threads than there are cores. So we start a second team of threads,
    which sleeps as long as this process lives.
    """
    global _second_team_started
    chosen = {
        "GOMP_SPINCOUNT",
        "OMP_WAIT_POLICY",
    } & os.environ.keys()  # by the user, or by our command line
    is_slow = device.type == "cpu" and sys.platform == "linux" and torch.get_num_threads() > 1
    if _second_team_started or chosen or not is_slow:
        return
    _second_team_started = True
    ready = Event()

    def hold_a_team() -> None:
        torch.ones(2**20).add_(1)  # large enough for torch to use all threads
        ready.set()
        Event().wait()

    Thread(target=hold_a_team, daemon=True, name="smoothcert-openmp").start()
    ready.wait()


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error means that memory ran out.

    torch has no error type of its own for the memory of the host, and the compiler wraps errors in its own type, so
    this function also reads the message.
    """
    messages = ("can't allocate memory", "out of memory")
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in messages)


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

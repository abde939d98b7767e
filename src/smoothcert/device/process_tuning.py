"""Settings of the process that make small networks faster on a CPU: malloc, and waiting threads."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from functools import cache
from threading import Event, Thread

import torch

# Constants of malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BLOCK_BYTES = 2**30
_KEPT_HEAP_BYTES = 2**31 - 1

_PARALLEL_ELEMENTS = 2**20
"""An operation on this many numbers uses all threads of torch."""


def tune_process(device: torch.device) -> None:
    """Tune the memory and the threads of this process, if the device is a CPU."""
    if device.type == "cpu":
        _keep_freed_memory()
        _shorten_busy_waiting()


def _keep_freed_memory() -> None:
    """Make the C library keep freed memory for the next batch.

    By default, glibc returns large blocks to the operating system and requests them again, page by
    page, for every layer of every batch. That takes up to half of the time of a small network.
    """
    with suppress(OSError, AttributeError, TypeError):  # other C libraries have no mallopt
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_HEAP_BYTES)


@cache  # once in a process
def _shorten_busy_waiting() -> None:
    """Make waiting threads sleep soon instead of spinning, as `GOMP_SPINCOUNT=1000` does.

    On busy cores, spinning threads keep the thread that they wait for from running, and networks
    run several times slower. torch's OpenMP library reads the variable while torch is imported,
    which has often happened before. But it also spins only briefly while it manages more threads
    than there are cores. So we start a second team of threads, which sleeps as long as this process
    lives.
    """
    user_decided = not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}.isdisjoint(os.environ)
    if user_decided or sys.platform != "linux" or torch.get_num_threads() == 1:
        return
    started = Event()

    def hold_team() -> None:
        torch.ones(_PARALLEL_ELEMENTS).add_(1)
        started.set()
        Event().wait()

    Thread(target=hold_team, daemon=True, name="smoothcert-openmp").start()
    started.wait()

"""Memory of the host and the device: keep it between batches, and recognise when it runs out."""

from __future__ import annotations

import ctypes
from contextlib import suppress

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # constants of malloc.h


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


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error means that memory ran out.

    torch has no error type of its own for the memory of the host, and the compiler wraps errors in its own type, so
    this function also reads the message.
    """
    messages = ("can't allocate memory", "out of memory")
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in messages)

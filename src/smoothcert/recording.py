"""A fixed piece of work on a GPU, recorded once as a CUDA graph and replayed.

A small network is hundreds of kernels that each take hardly longer than their launch; a replay launches all at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")

_WARM_UP = 3  # runs before recording: compilation, choice of kernels, allocation


def record(work: Callable[[], T]) -> tuple[Callable[[], None], T]:
    """A replay of `work` on the current device, and what it returned when recorded: tensors that a replay writes anew.

    RuntimeError where it cannot be recorded; work that waits for the device, for example.
    """
    # Recording forbids what a first run does, so there are some before, on the side.
    stream, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(stream)
    with torch.cuda.stream(aside):
        for _ in range(_WARM_UP):
            work()
        with _refusing_to_wait():  # which would spoil a recording under way
            work()
    stream.wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream), torch.cuda.graph(graph):  # the former takes us back if the latter fails
        result = work()
    return graph.replay, result


@contextmanager
def _refusing_to_wait() -> Iterator[None]:
    """A RuntimeError for whoever waits for the device."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that not all waiting is found
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)

"""Running a fixed piece of work on a GPU: kernels chosen by timing, and the whole recorded as a CUDA graph.

A small network is hundreds of kernels that each take hardly longer than their launch; a replay launches all at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

T = TypeVar("T")

_WARM_UP = 3  # runs before recording: compilation, choice of kernels, allocation


@dataclass(frozen=True)
class Recording(Generic[T]):
    """Work that can be replayed."""

    replay: Callable[[], None]
    result: T
    """What the work returned: tensors that every replay writes anew."""
    work: Callable[[], T]
    """Kept, since a replay reads what the work owns where it lay when recorded: weights, for example."""


def record(work: Callable[[], T]) -> Recording[T]:
    """Record `work` on the current device. RuntimeError where that is impossible: it waits for the device, say."""
    stream, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(stream)
    try:
        with torch.cuda.stream(aside):  # recording forbids what a first run does, so there are some before
            for _ in range(_WARM_UP):
                work()
            with _refusing_to_wait():  # which would spoil a recording under way
                work()
    finally:
        stream.wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with (
        torch.cuda.stream(stream),  # takes us back if recording fails
        torch.cuda.graph(graph, stream=aside, capture_error_mode="thread_local"),
    ):
        result = work()
    return Recording(graph.replay, result, work)


@contextmanager
def kernels_by_timing() -> Iterator[None]:
    """On CUDA, convolutions are chosen by timing them when they are first met; all else stays as the caller has it."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


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

"""The choice of the batch size, by timing the classifier on this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from math import prod

from torch import Tensor

from smoothcert.device.host import is_out_of_memory
from smoothcert.device.runtime import Runtime, blank, synchronize

_SMALLEST_BATCH = 64
_LARGEST_BATCH = {"cuda": 2048, "mps": 1024, "cpu": 1024}
_CUDA_ELEMENTS = 2**26  # numbers in a batch that keeps a GPU busy: 512 images of 3x224x224
_LONGEST_BATCH_SECONDS = 0.5  # longer batches would make the progress display and the read-back of votes coarse
_SMALLEST_GAIN = 0.03  # a larger batch must make a row cheaper by at least this share
_TIMING_ROUNDS = 5
_TIMING_SECONDS = 0.5


def fastest_batch(classify: Callable[[Tensor], Tensor], shape: tuple[int, ...], runtime: Runtime) -> int:
    """Double the batch size as long as that makes a row cheaper and the batch fits into memory.

    Each round times both sizes, one after the other, so that other load on the machine slows down both. On CUDA, where
    every new size makes cuDNN choose its kernels again, only two sizes are timed.
    """
    batch, largest = _SMALLEST_BATCH, _LARGEST_BATCH[runtime.torch_device.type]
    if runtime.torch_device.type == "cuda":
        while 4 * batch <= largest and 4 * batch * prod(shape) <= _CUDA_ELEMENTS:
            batch *= 2
        largest = 2 * batch
    try:
        if 2 * _batch_seconds(classify, blank(shape, runtime, batch), repeats=1) > _LONGEST_BATCH_SECONDS:
            return batch
        while 2 * batch <= largest:
            small, large = blank(shape, runtime, batch), blank(shape, runtime, 2 * batch)
            small_seconds = large_seconds = math.inf
            deadline = time.perf_counter() + _TIMING_SECONDS
            for _ in range(_TIMING_ROUNDS):
                small_seconds = min(small_seconds, _batch_seconds(classify, small))
                large_seconds = min(large_seconds, _batch_seconds(classify, large))
                if time.perf_counter() > deadline:
                    break
            if large_seconds > min((1 - _SMALLEST_GAIN) * 2 * small_seconds, _LONGEST_BATCH_SECONDS):
                break
            batch *= 2
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    return batch


def _batch_seconds(classify: Callable[[Tensor], Tensor], x: Tensor, repeats: int = 2) -> float:
    """The fastest of several passes, after one pass that loads kernels and allocates memory."""
    classify(x)
    synchronize(x.device)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        classify(x)
        synchronize(x.device)
        seconds.append(time.perf_counter() - start)
    return min(seconds)

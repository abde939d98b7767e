"""The check of a reduced number format: on noisy inputs, it must give the labels of float32.

A certificate is about the classifier as it was run. In bfloat16, numbers have 8 significant bits. That is enough for
images in [0, 1] and trained networks, but for inputs in the thousands it is another classifier.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from smoothcert._agreement import REDUCED_FORMAT, differing_labels
from smoothcert.device.runtime import Runtime, blank, place
from smoothcert.errors import SmoothcertWarning, setting
from smoothcert.models.outputs import LabelClassifier, SeededRows
from smoothcert.noises import Noise
from smoothcert.sampling.streams import MOST_IDS, HostStream, Segment

COMPARED_INPUTS = 8
"""At most so many inputs are compared."""

_ROWS = 512
_ROWS_OF_INPUT = 64
_CUDA_ELEMENTS = 2**24
"""Numbers in one batch on CUDA, where few large batches are much faster than many small ones."""
_MOST_SECONDS = 2.0


def settle_number_format(
    runtime: Runtime, module: Callable[[Tensor], Any], inputs: Sequence[Tensor], *, classes: int, noise: Noise
) -> Runtime:
    """The runtime, or the same in a finer number format if labels often differ from those in float32.

    The format is replaced, with one warning, if more than 2% of the labels of noisy inputs differ: on CUDA, bfloat16 by
    float16, which is as fast and has three more significant bits, or else by float32. A module that is random by design
    cannot be compared.
    """
    if runtime.torch_dtype.itemsize >= 4 or isinstance(module, SeededRows):
        return runtime
    inputs = [x for x in inputs[:COMPARED_INPUTS] if bool(x.isfinite().all())]
    if not inputs:
        return runtime
    to_try = [runtime.dtype]
    if runtime.torch_device.type == "cuda" and runtime.dtype == "bfloat16":
        to_try.append("float16")
    shares = []
    for dtype in to_try:
        try:
            shares.append(_differing(replace(runtime, dtype=dtype), module, inputs, classes, noise))
        except Exception:  # a classifier that fails, for any reason, is reported when it is prepared
            return runtime
        if shares[-1] <= REDUCED_FORMAT.labels:
            break
    else:
        dtype = "float32"
    if dtype != runtime.dtype:
        message = (
            f"in {runtime.dtype}, {shares[0]:.0%} of the labels of noisy inputs differ from those in float32, so the "
            f"classifier runs in {dtype}; give {setting('dtype', runtime.dtype)} to keep {runtime.dtype}"
        )
        warnings.warn(SmoothcertWarning(message), stacklevel=3)
    return replace(runtime, dtype=dtype)


@torch.inference_mode()
def _differing(
    runtime: Runtime, module: Callable[[Tensor], Any], inputs: Sequence[Tensor], classes: int, noise: Noise
) -> float:
    """The share of labels that differ, over noisy copies of the inputs in turn, as many as two seconds allow."""
    if runtime.torch_device.type == "cuda" and not torch.cuda.is_available():  # the workers have the device
        runtime = replace(runtime, device="cpu")
    shape = noise.draw.output_shape(tuple(inputs[0].shape))
    exact_runtime = replace(runtime, dtype="float32")
    reduced, exact = (LabelClassifier(place(module, like, shape), classes).eval() for like in (runtime, exact_runtime))
    stream = HostStream(0, noise.draw)
    clean = torch.stack([x.float() for x in inputs]).to(runtime.torch_device)
    together = _CUDA_ELEMENTS // (_ROWS_OF_INPUT * prod(shape)) if runtime.torch_device.type == "cuda" else 1
    step = _ROWS_OF_INPUT * min(max(together, 1), _ROWS // _ROWS_OF_INPUT)
    rows, differing = 0, 0.0
    deadline = time.perf_counter() + _MOST_SECONDS
    while rows < _ROWS and (not rows or time.perf_counter() < deadline):
        noisy = blank(shape, exact_runtime, step)
        for first in range(rows, rows + step, _ROWS_OF_INPUT):
            slot = first // _ROWS_OF_INPUT % len(inputs)
            # No input of a run has such a number, so these noisy copies are used for nothing else.
            segment = Segment(slot, MOST_IDS + slot, first, _ROWS_OF_INPUT)
            stream.write(noisy[first - rows :], clean, [segment], torch.empty(0))
        differing += differing_labels(reduced(noisy.to(runtime.torch_dtype)), exact(noisy)) * step
        rows += step
    return differing / rows

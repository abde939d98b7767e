"""The choice of a reduced number format, by comparing labels with those in float32."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from smoothcert._agreement import OTHER_FORM, differing_labels
from smoothcert.device.runtime import Runtime, blank, place
from smoothcert.errors import SmoothcertWarning, setting
from smoothcert.models.outputs import LabelClassifier, SeededRows
from smoothcert.noises import Noise
from smoothcert.sampling.streams import MOST_IDS, HostStream, Segment

COMPARED_INPUTS = 8
"""The most inputs that are compared."""
_ROWS = 512
"""Noisy copies of all inputs together."""
_ROWS_OF_INPUT = 64
"""Noisy copies of one input in turn."""
_COMPARED_ELEMENTS = 2**24
"""Numbers in one batch on CUDA, where few large batches are much faster than many small ones."""
_MOST_SECONDS = 2.0


def settle_number_format(
    runtime: Runtime,
    module: Callable[[Tensor], Any],
    inputs: Sequence[Tensor],
    *,
    classes: int,
    noise: Noise,
) -> Runtime:
    """The runtime, or the same in a finer number format if labels often differ from float32.

    The format is replaced, with one warning, if more than 2% of the labels of noisy inputs differ:
    on CUDA, bfloat16 by float16, which is as fast and has three more significant bits, or else by
    float32. A module that is random by design cannot be compared.
    """
    if runtime.torch_dtype.itemsize >= 4 or isinstance(module, SeededRows):
        return runtime
    inputs = [x for x in inputs[:COMPARED_INPUTS] if bool(x.isfinite().all())]
    if not inputs:
        return runtime
    shares: dict[str, float] = {}
    for dtype in _formats_to_try(runtime):
        candidate = replace(runtime, dtype=dtype)
        try:
            shares[dtype] = _differing(candidate, module, inputs, classes, noise)
        except (
            Exception
        ):  # a classifier that fails, for any reason, is reported when it is prepared
            return runtime
        if shares[dtype] <= OTHER_FORM.labels:
            break
    else:
        dtype = "float32"
    if dtype != runtime.dtype:
        warning = SmoothcertWarning(
            "other-number-format",
            "in {dtype}, {share:.0%} of the labels of noisy inputs differ from those in float32, "
            "so the classifier runs in {chosen}; give {keep} to keep {dtype}",
            dtype=runtime.dtype,
            share=shares[runtime.dtype],
            chosen=dtype,
            keep=setting("dtype", runtime.dtype),
        )
        warnings.warn(warning, stacklevel=3)
    return replace(runtime, dtype=dtype)


def _formats_to_try(runtime: Runtime) -> list[str]:
    """Formats in the order in which they are tried, before float32."""
    if runtime.torch_device.type == "cuda" and runtime.dtype == "bfloat16":
        return ["bfloat16", "float16"]
    return [runtime.dtype]


@torch.inference_mode()
def _differing(
    runtime: Runtime,
    module: Callable[[Tensor], Any],
    inputs: Sequence[Tensor],
    classes: int,
    noise: Noise,
) -> float:
    """The share of labels that differ, over noisy copies of the inputs in turn.

    There are as many copies as two seconds allow.
    """
    on_cuda = runtime.torch_device.type == "cuda"
    if on_cuda and not torch.cuda.is_available():  # the workers have the device
        runtime = replace(runtime, device="cpu")
        on_cuda = False
    shape = noise.draw.output_shape(tuple(inputs[0].shape))
    exact_runtime = replace(runtime, dtype="float32")
    reduced = LabelClassifier(place(module, runtime, shape), classes).eval()
    exact = LabelClassifier(place(module, exact_runtime, shape), classes).eval()
    stream = HostStream(0, noise.draw)
    clean = torch.stack([x.float() for x in inputs]).to(runtime.torch_device)
    together = 1
    if on_cuda:
        affordable = _COMPARED_ELEMENTS // (_ROWS_OF_INPUT * prod(shape))
        together = min(max(affordable, 1), _ROWS // _ROWS_OF_INPUT)
    step = _ROWS_OF_INPUT * together
    rows = 0
    differing = 0.0
    deadline = time.perf_counter() + _MOST_SECONDS
    while rows < _ROWS and (not rows or time.perf_counter() < deadline):
        noisy = blank(shape, exact_runtime, step)
        for first in range(rows, rows + step, _ROWS_OF_INPUT):
            slot = first // _ROWS_OF_INPUT % len(inputs)
            # No input of a run has such a number, so these noisy copies are used for nothing else.
            segment = Segment(slot, MOST_IDS + slot, first, _ROWS_OF_INPUT)
            stream.write(noisy[first - rows :], clean, [segment], torch.empty(0))
        labels = reduced(noisy.to(runtime.torch_dtype))
        differing += differing_labels(labels, exact(noisy)) * step
        rows += step
    return differing / rows

"""The choice of a reduced number format, by comparing labels with those in float32.

On CUDA, float16 comes first. It is as fast as bfloat16 and has three more significant bits, so
seven times fewer labels differ. But it overflows earlier: outputs that are not finite would be no
votes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from smoothcert._agreement import OTHER_FORM
from smoothcert.device.runtime import Runtime, blank, place
from smoothcert.errors import warn
from smoothcert.models.base import Network
from smoothcert.models.outputs import LabelClassifier
from smoothcert.models.wrappers import SeededRows
from smoothcert.noises import Noise
from smoothcert.sampling.streams import MOST_IDS, HostStream, Segment

_ROWS = 512
"""Noisy copies of all inputs together."""
_ROWS_OF_INPUT = 64
"""Noisy copies of one input in turn."""
_COMPARED_ELEMENTS = 2**24
"""Numbers in one batch on CUDA, where few large batches are much faster than many small ones."""
_MOST_SECONDS = 2.0


class Comparison(NamedTuple):
    """How the labels of noisy inputs in a number format compare with those in float32."""

    dtype: str
    rows: int
    differing: int
    """Rows with another label."""
    lost: int
    """Rows whose outputs are not finite, where those in float32 are. They would be no votes."""

    @property
    def agrees(self) -> bool:
        """Whether the format may be used."""
        return not self.lost and self.differing <= OTHER_FORM.labels * self.rows

    def __str__(self) -> str:
        if self.lost:
            return f"{self.lost} of {self.rows} outputs are not finite"
        return f"{self.differing} of {self.rows} labels differ from float32"


class NumberFormat(NamedTuple):
    """A runtime in the number format that was chosen, and why, in words."""

    runtime: Runtime
    comparison: str = ""


def settle_number_format(
    runtime: Runtime,
    module: Network,
    inputs: Sequence[Tensor],
    *,
    classes: int,
    noise: Noise,
) -> NumberFormat:
    """The runtime, or the same in another number format if labels often differ from float32.

    A module that is random by design cannot be compared, and a classifier that fails, for any
    reason, is reported when it is prepared.
    """
    inputs = [x for x in inputs if bool(x.isfinite().all())]
    is_reduced = runtime.torch_dtype.itemsize < 4
    if not is_reduced or isinstance(module, SeededRows) or not inputs:
        return NumberFormat(runtime)
    try:
        dtype, tried = choose_format(
            runtime.formats,
            lambda dtype: _compared(replace(runtime, dtype=dtype), module, inputs, classes, noise),
        )
    except Exception:
        return NumberFormat(runtime)
    if dtype == runtime.dtype:
        return NumberFormat(runtime, str(tried[0]))
    comparison = ", ".join(f"in {other.dtype} {other}" for other in tried)
    warn(
        "other-number-format",
        "noisy inputs: {comparison}; so the classifier runs in {chosen}; give `dtype={keep}` to "
        "keep {dtype}",
        comparison=comparison,
        dtype=runtime.dtype,
        chosen=dtype,
        keep=runtime.dtype,
    )
    return NumberFormat(replace(runtime, dtype=dtype), comparison)


def choose_format(
    formats: Sequence[str], compare: Callable[[str], Comparison]
) -> tuple[str, list[Comparison]]:
    """The first number format that agrees with float32, else float32; and all comparisons.

    A format agrees if all outputs are finite and at most 2% of the labels of noisy inputs differ.

    Args:
        formats: Reduced formats, in the order in which they are tried.
        compare: Compares a format with float32.
    """
    tried: list[Comparison] = []
    for dtype in formats:
        tried.append(compare(dtype))
        if tried[-1].agrees:
            return dtype, tried
    return "float32", tried


@torch.inference_mode()
def _compared(
    runtime: Runtime,
    module: Network,
    inputs: Sequence[Tensor],
    classes: int,
    noise: Noise,
) -> Comparison:
    """The labels in the format of the runtime against float32, for noisy copies of the inputs.

    There are as many copies as two seconds allow.
    """
    runtime = replace(runtime, device=str(runtime.device_here))
    on_cuda = runtime.torch_device.type == "cuda"
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
    differing = 0
    lost = 0
    deadline = time.perf_counter() + _MOST_SECONDS
    while rows < _ROWS and (not rows or time.perf_counter() < deadline):
        noisy = blank(shape, exact_runtime, step)
        for first in range(rows, rows + step, _ROWS_OF_INPUT):
            slot = first // _ROWS_OF_INPUT % len(inputs)
            # No input of a run has such a number, so these noisy copies are used for nothing else.
            segment = Segment(slot, MOST_IDS + slot, first, _ROWS_OF_INPUT)
            stream.write(noisy[first - rows :], clean, [segment], torch.empty(0))
        labels = reduced(noisy.to(runtime.torch_dtype))
        exact_labels = exact(noisy)
        differing += int((labels != exact_labels).sum())
        lost += int(((labels == classes) & (exact_labels != classes)).sum())
        rows += step
    return Comparison(runtime.dtype, rows, differing, lost)

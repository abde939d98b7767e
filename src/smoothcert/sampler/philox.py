"""Noise made where it is used: one Triton kernel draws, scales, adds and casts a whole batch.

Philox-4x32-10 is a function from a key and a counter to four random words. The key is the run's seed, the counter is
(element, sample, input): nothing is shared between two samples, and nothing has to be kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from smoothcert.sampler.packing import Segment
from smoothcert.sampler.streams import Stream

_BLOCK = 512


class PhiloxStream(Stream):
    def write(self, out: Tensor, inputs: Tensor, sigma: float, segments: Sequence[Segment], rows: Tensor) -> None:
        size = out[0].numel()
        quarter = triton.cdiv(size, 4)
        grid = (len(out), triton.cdiv(quarter, _BLOCK))
        with torch.cuda.device(out.device):
            _noisy_rows[grid](out, inputs, rows, sigma, self.seed, len(out), size, quarter, BLOCK=_BLOCK)


@triton.jit  # type: ignore[untyped-decorator]
def _noisy_rows(out, inputs, rows, sigma, seed, batch, size, quarter, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    slot = tl.load(rows + row).to(tl.int64)
    id = tl.load(rows + batch + row)
    sample = tl.load(rows + 2 * batch + row)
    # One counter gives four numbers; they go to the four quarters of the input so that neighbours write together.
    element = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    a, b, c, d = tl.philox(seed, element, sample, id, 0)
    z0, z1 = tl.pair_uniform_to_normal(tl.uint_to_uniform_float(a), tl.uint_to_uniform_float(b))
    z2, z3 = tl.pair_uniform_to_normal(tl.uint_to_uniform_float(c), tl.uint_to_uniform_float(d))
    source = inputs + slot * size
    target = out + row.to(tl.int64) * size
    inside = element < quarter
    _add(target, source, element, z0, sigma, inside & (element < size))
    _add(target, source, element + quarter, z1, sigma, inside & (element + quarter < size))
    _add(target, source, element + 2 * quarter, z2, sigma, inside & (element + 2 * quarter < size))
    _add(target, source, element + 3 * quarter, z3, sigma, inside & (element + 3 * quarter < size))


@triton.jit
def _add(target, source, where, z, sigma, mask):  # type: ignore[no-untyped-def]
    noisy = tl.load(source + where, mask=mask) + sigma * z
    tl.store(target + where, noisy.to(target.dtype.element_ty), mask=mask)

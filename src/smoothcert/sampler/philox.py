"""Noise drawn where it is used: one Triton kernel draws, scales, adds and casts a whole batch.

Philox-4x32-10 is a function from a key and a counter to four random words. The key is the run's seed, the counter is
(element, sample, input). So two samples share nothing, and the generator has no state.
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


# The laws of `noises.base.Additive` as the kernel's constants.
_LAWS = {"normal": 0, "uniform": 1, "laplace": 2}


class PhiloxStream(Stream):
    """Draws noise with a counter-based generator inside the kernel that adds it; for CUDA devices."""

    def write(self, out: Tensor, inputs: Tensor, segments: Sequence[Segment], rows: Tensor) -> None:
        size = out[0].numel()
        quarter = triton.cdiv(size, 4)
        grid = (len(out), triton.cdiv(quarter, _BLOCK))
        with torch.cuda.device(out.device):
            _noisy_rows[grid](
                out,
                inputs,
                rows,
                self.draw.scale,
                self.seed,
                len(out),
                size,
                quarter,
                LAW=_LAWS[self.draw.law],
                BLOCK=_BLOCK,
            )


@triton.jit  # type: ignore[untyped-decorator]
def _noisy_rows(  # type: ignore[no-untyped-def]
    out, inputs, rows, scale, seed, batch, size, quarter, LAW: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    slot = tl.load(rows + row).to(tl.int64)
    id = tl.load(rows + batch + row)
    sample = tl.load(rows + 2 * batch + row)
    # One counter gives four numbers. They go to the four quarters of the input, so that neighbours write together.
    element = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    a, b, c, d = tl.philox(seed, element, sample, id, 0)
    if LAW == 0:
        z0, z1 = tl.pair_uniform_to_normal(tl.uint_to_uniform_float(a), tl.uint_to_uniform_float(b))
        z2, z3 = tl.pair_uniform_to_normal(tl.uint_to_uniform_float(c), tl.uint_to_uniform_float(d))
    else:
        z0 = _signed(a, LAW)
        z1 = _signed(b, LAW)
        z2 = _signed(c, LAW)
        z3 = _signed(d, LAW)
    source = inputs + slot * size
    target = out + row.to(tl.int64) * size
    inside = element < quarter
    _add(target, source, element, z0, scale, inside & (element < size))
    _add(target, source, element + quarter, z1, scale, inside & (element + quarter < size))
    _add(target, source, element + 2 * quarter, z2, scale, inside & (element + 2 * quarter < size))
    _add(target, source, element + 3 * quarter, z3, scale, inside & (element + 3 * quarter < size))


@triton.jit  # type: ignore[untyped-decorator]
def _signed(word, LAW: tl.constexpr):  # type: ignore[no-untyped-def]
    """A number of the law: uniform on (-1, 1), or Laplace by the inverse of its distribution function."""
    u = word.to(tl.int32, bitcast=True).to(tl.float32) * (1.0 / 2147483648.0)
    if LAW == 2:
        size = -tl.log(tl.maximum(1.0 - tl.abs(u), 5.9604645e-8))
        u = tl.where(u < 0, -size, size)
    return u


@triton.jit
def _add(target, source, where, z, scale, mask):  # type: ignore[no-untyped-def]
    noisy = tl.load(source + where, mask=mask) + scale * z
    tl.store(target + where, noisy.to(target.dtype.element_ty), mask=mask)

"""Noise drawn where it is used: one Triton kernel draws, scales, adds and casts a whole batch.

Philox-4x32-10 is a function from a key and a counter to four random words. The key is the run's
seed, the counter is (element, sample, input). So two samples share nothing, and the generator has
no state.

As on the host (`drawing.py`), normal and Laplace numbers are never smaller than those of the
theorem. Their absolute value decreases in a uniform number, which is rounded down: to the lower
edge of its cell, or with 63 bits where it is below 2^-20. `OUTWARD` covers the rounding of
logarithm, root, sine, cosine and product. An angle is the middle of its cell, half of which has a
probability of at most 2^-32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from smoothcert.sampling.grid_noise import GridNoise

_BLOCK = 512
"""Elements that one program draws."""
_LAWS = {"normal": 0, "uniform": 1, "laplace": 2, "grid": 3}
"""The laws of `noises.base.Additive`, and noise on a grid, as the kernel's constants."""


def add_noise(
    out: Tensor,
    inputs: Tensor,
    rows: Tensor,
    seed: int,
    law: str,
    scale: float,
    grid: GridNoise | None = None,
) -> None:
    """Draw, scale and add noise in one kernel.

    Args:
        out: Takes the noisy rows.
        inputs: The clean inputs, by slot.
        rows: Slot, id and sample of every row.
        seed: The key of the noise.
        law: A name in `_LAWS`.
        scale: What the numbers of the law are multiplied by; the step of a grid.
        grid: The thresholds, for noise on a grid.
    """
    size = out[0].numel()
    quarter = triton.cdiv(size, 4)
    steps = 0
    if grid is None:
        grid = GridNoise(rows, smallest=0, ratio=0.0, step=0.0, tail=0.0)  # which is not read
    else:
        steps = len(grid.table).bit_length()
    with torch.cuda.device(out.device):
        _noisy_rows[len(out), triton.cdiv(quarter, _BLOCK)](
            out,
            inputs,
            rows,
            scale,
            grid.table,
            grid.ratio,
            grid.tail,
            grid.smallest,
            len(grid.table),
            seed,
            len(out),
            size,
            quarter,
            LAW=_LAWS[law],
            STEPS=steps,
            BLOCK=_BLOCK,
        )


def random_words(rows: Tensor, batch: int, seed: int, words: int) -> Tensor:
    """64-bit words, the same number for every row of a batch."""
    pairs = triton.cdiv(words, 2)
    drawn = torch.empty((batch, 2 * pairs), dtype=torch.int64, device=rows.device)
    with torch.cuda.device(rows.device):
        _random_words[batch, triton.cdiv(pairs, _BLOCK)](
            drawn, rows, seed, batch, pairs, BLOCK=_BLOCK
        )
    return drawn[:, :words].contiguous()


@triton.jit  # type: ignore[untyped-decorator]
def _place(rows, batch, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The row of a program, its id and sample, and the elements that the program draws."""
    row = tl.program_id(0)
    element = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    return row, tl.load(rows + batch + row), tl.load(rows + 2 * batch + row), element


@triton.jit  # type: ignore[untyped-decorator]
def _noisy_rows(  # type: ignore[no-untyped-def]
    out, inputs, rows, scale, table, ratio, tail, smallest, length, seed, batch, size, quarter,
    LAW: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, id, sample, element = _place(rows, batch, BLOCK)
    slot = tl.load(rows + row).to(tl.int64)
    # One counter gives four numbers. They go to the four quarters of the input, so that neighbours
    # write together.
    a, b, c, d = tl.philox(seed, element, sample, id, 0)
    if LAW == 1:
        z0 = _unit(a)
        z1 = _unit(b)
        z2 = _unit(c)
        z3 = _unit(d)
    elif LAW == 0:
        u0 = _below(a)
        u2 = _below(c)
        # Below 2^-20, 31 random bits are too few for the tails. One block in a thousand draws 32
        # more.
        if tl.min(tl.minimum(_folded(a), _folded(c)), axis=0) < 2048:
            e, _f, g, _h = tl.philox(seed, element, sample, id, 1)
            u0 = _finer(a, e, u0)
            u2 = _finer(c, g, u2)
        z0, z1 = _box_muller(u0, b)
        z2, z3 = _box_muller(u2, d)
    elif LAW == 2:
        u0 = _below(a)
        u1 = _below(b)
        u2 = _below(c)
        u3 = _below(d)
        least = tl.minimum(tl.minimum(_folded(a), _folded(b)), tl.minimum(_folded(c), _folded(d)))
        if tl.min(least, axis=0) < 2048:
            e, f, g, h = tl.philox(seed, element, sample, id, 1)
            u0 = _finer(a, e, u0)
            u1 = _finer(b, f, u1)
            u2 = _finer(c, g, u2)
            u3 = _finer(d, h, u3)
        z0 = tl.where(_unit(a) < 0, tl.log(u0), -tl.log(u0))
        z1 = tl.where(_unit(b) < 0, tl.log(u1), -tl.log(u1))
        z2 = tl.where(_unit(c) < 0, tl.log(u2), -tl.log(u2))
        z3 = tl.where(_unit(d) < 0, tl.log(u3), -tl.log(u3))
    else:
        z0, open0 = _grid_number(a, table, ratio, tail, smallest, length)
        z1, open1 = _grid_number(b, table, ratio, tail, smallest, length)
        z2, open2 = _grid_number(c, table, ratio, tail, smallest, length)
        z3, open3 = _grid_number(d, table, ratio, tail, smallest, length)
        # 32 bits decide nearly every number. One block in a thousand compares all 64 with the
        # thresholds.
        if tl.max((open0 | open1 | open2 | open3).to(tl.int32), axis=0) > 0:
            e, f, g, h = tl.philox(seed, element, sample, id, 1)
            z0 = tl.where(open0, _search(_word(a, e), table, smallest, length, STEPS), z0)
            z1 = tl.where(open1, _search(_word(b, f), table, smallest, length, STEPS), z1)
            z2 = tl.where(open2, _search(_word(c, g), table, smallest, length, STEPS), z2)
            z3 = tl.where(open3, _search(_word(d, h), table, smallest, length, STEPS), z3)
    source = inputs + slot * size
    target = out + row.to(tl.int64) * size
    inside = element < quarter
    _add(target, source, element, z0, scale, inside, size, LAW)
    _add(target, source, element + quarter, z1, scale, inside, size, LAW)
    _add(target, source, element + 2 * quarter, z2, scale, inside, size, LAW)
    _add(target, source, element + 3 * quarter, z3, scale, inside, size, LAW)


@triton.jit
def _folded(word):  # type: ignore[no-untyped-def]
    """The word as a signed number, without its sign: from 0 to 2^31 - 1."""
    signed = word.to(tl.int32, bitcast=True)
    return tl.where(signed < 0, -signed - 1, signed)


@triton.jit
def _below(word):  # type: ignore[no-untyped-def]
    """A number from [0, 1) that is never above the uniform number that the word stands for."""
    return _folded(word).to(tl.float32) * 4.656611762854368e-10  # 2^-31 (1 - 2^-22)


@triton.jit
def _finer(word, more, coarse):  # type: ignore[no-untyped-def]
    """The same with 32 more bits where it is below 2^-20; it is never 0."""
    units = _folded(word)
    fine = tl.fma(more.to(tl.float32) + 0.5, 2.3283064365386963e-10, units.to(tl.float32))
    return tl.where(units < 2048, fine * 4.656612873077393e-10, coarse)


@triton.jit
def _box_muller(u, word):  # type: ignore[no-untyped-def]
    """Two normal numbers. Two bits choose a quadrant, the others an angle from -pi/4 to pi/4.

    There, sine and cosine are accurate to a few units in the last place, also near 0.
    """
    r = tl.sqrt(-2.0 * tl.log(u))
    quadrant = word >> 30
    steps = (word & 0x3FFFFFFF).to(tl.int32) - 536870912
    angle = (steps.to(tl.float32) + 0.5) * 1.4629180792671596e-09  # pi / 2 * 2^-30
    c = r * tl.cos(angle)
    s = r * tl.sin(angle)
    odd = (quadrant & 1) == 1
    x = tl.where(odd, s, c)
    y = tl.where(odd, c, s)
    return tl.where(((quadrant + 1) & 2) == 2, -x, x), tl.where((quadrant & 2) == 2, -y, y)


@triton.jit
def _unit(word):  # type: ignore[no-untyped-def]
    """A uniform number on [-1, 1]."""
    return (word.to(tl.int32, bitcast=True).to(tl.float32) + 0.5) * (1.0 / 2147483648.0)


@triton.jit  # type: ignore[untyped-decorator]
def _add(  # type: ignore[no-untyped-def]
    target, source, where, z, scale, inside, size, LAW: tl.constexpr
):  # fmt: skip
    mask = inside & (where < size)
    x = tl.load(source + where, mask=mask)
    # Left to the compiler, a sum would be rounded once or twice, depending on the alignment of the
    # input.
    noisy = (tl.floor(x / scale + 0.5) + z) * scale if LAW == 3 else tl.fma(z, scale, x)
    tl.store(target + where, noisy.to(target.dtype.element_ty), mask=mask)


@triton.jit  # type: ignore[untyped-decorator]
def _random_words(out, rows, seed, batch, pairs, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, id, sample, element = _place(rows, batch, BLOCK)
    a, b, c, d = tl.philox(seed, element, sample, id, 0)
    target = out + row.to(tl.int64) * (2 * pairs) + element
    inside = element < pairs
    tl.store(target, _word(a, b), mask=inside)
    tl.store(target + pairs, _word(c, d), mask=inside)


@triton.jit
def _word(high, low):  # type: ignore[no-untyped-def]
    """64 random bits as a signed number."""
    return (high.to(tl.int32, bitcast=True).to(tl.int64) << 32) | low.to(tl.int64)


@triton.jit
def _grid_number(word, table, ratio, tail, smallest, length):  # type: ignore[no-untyped-def]
    """The rounded normal number that 32 bits give, and whether more bits have to decide it.

    float32 estimates the quantile. Only an estimate next to the boundary of two numbers has to be
    compared with the thresholds.
    """
    signed = word.to(tl.int32, bitcast=True)
    # The probability of the nearer tail.
    p = ((2147483647 - _folded(word)).to(tl.float32) + 0.5) * 2.3283064365386963e-10
    y = ratio * 1.4142135623730951 * _erfinv(p)
    y = tl.where(signed < 0, -y, y)
    k = tl.floor(y + 0.5)
    near = tl.abs(y - k) > 0.48
    # Thresholds that are at most the bits, if the estimate is right.
    count = k.to(tl.int32) - smallest
    below = tl.load(
        table + count - 1, mask=near & (count >= 1) & (count <= length), other=-9223372036854775807
    )
    above = tl.load(
        table + count, mask=near & (count >= 0) & (count < length), other=9223372036854775807
    )
    low = (below >> 32).to(tl.int32)
    high = (above >> 32).to(tl.int32)
    k = tl.where(near & (signed < low), k - 1.0, tl.where(near & (signed > high), k + 1.0, k))
    unsettled = (p < tail) | (near & ((signed == low) | (signed == high)))
    return k, unsettled


@triton.jit
def _erfinv(p):  # type: ignore[no-untyped-def]
    """erfinv(1 - 2 p) for the probability p of a tail, by the polynomials of Giles (2010)."""
    w = -tl.log(4.0 * p * (1.0 - p))
    v = w - 2.5
    centre = 2.81022636e-08 * v + 3.43273939e-07
    centre = centre * v - 3.5233877e-06
    centre = centre * v - 4.39150654e-06
    centre = centre * v + 0.00021858087
    centre = centre * v - 0.00125372503
    centre = centre * v - 0.00417768164
    centre = centre * v + 0.246640727
    centre = centre * v + 1.50140941
    v = tl.sqrt(tl.maximum(w, 0.0)) - 3.0
    tail = -0.000200214257 * v + 0.000100950558
    tail = tail * v + 0.00134934322
    tail = tail * v - 0.00367342844
    tail = tail * v + 0.00573950773
    tail = tail * v - 0.0076224613
    tail = tail * v + 0.00943887047
    tail = tail * v + 1.00167406
    tail = tail * v + 2.83297682
    return tl.where(w < 5.0, centre, tail) * (1.0 - 2.0 * p)


@triton.jit  # type: ignore[untyped-decorator]
def _search(word, table, smallest, length, STEPS: tl.constexpr):  # type: ignore[no-untyped-def]
    """`smallest` plus the number of thresholds that are at most the word, by bisection."""
    low = tl.zeros(word.shape, tl.int32)
    high = low + length
    for _ in range(STEPS):
        middle = (low + high) // 2
        reached = (low < high) & (word >= tl.load(table + middle, mask=middle < length, other=0))
        high = tl.where((low < high) & (reached == 0), middle, high)
        low = tl.where(reached, middle + 1, low)
    return (low + smallest).to(tl.float32)

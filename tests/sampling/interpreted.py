"""Runs a part of the noise kernel on the CPU.

Triton's interpreter has to be chosen before triton is imported.
Use: TRITON_INTERPRET=1 python interpreted.py WORDS.npy NUMBERS.npy RATIO
"""

import sys

import numpy as np
import torch
import triton
import triton.language as tl

from smoothcert.noises.base import AdditiveGrid
from smoothcert.sampling import philox
from smoothcert.sampling.grid_noise import grid_noise


@triton.jit
def decide(
    out,
    high,
    low,
    table,
    ratio,
    tail,
    smallest,
    length,
    count,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    word = tl.load(high + i, mask=inside, other=0).to(tl.uint32, bitcast=True)
    more = tl.load(low + i, mask=inside, other=0).to(tl.uint32, bitcast=True)
    k, is_open = philox._grid_number(word, table, ratio, tail, smallest, length)
    k = tl.where(
        is_open, philox._search(philox._word(word, more), table, smallest, length, STEPS), k
    )
    tl.store(out + i, k, mask=inside)


def main(words_file, numbers_file, ratio):
    words = np.load(words_file)
    high, low = (
        torch.from_numpy((words >> np.uint64(shift)).astype(np.uint32).view(np.int32))
        for shift in (32, 0)
    )
    grid = grid_noise(AdditiveGrid(float(ratio) / 255, 1 / 255), torch.device("cpu"))
    out, block, length = torch.empty(len(words)), 2**16, len(grid.table)
    decide[(triton.cdiv(len(words), block),)](
        out,
        high,
        low,
        grid.table,
        grid.ratio,
        grid.tail,
        grid.smallest,
        length,
        len(words),
        STEPS=length.bit_length(),
        BLOCK=block,
    )
    np.save(numbers_file, out.numpy())


if __name__ == "__main__":
    main(*sys.argv[1:])

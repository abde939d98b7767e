"""Draws noise in another process, which reads lines of JSON and answers with paths of .npy files.

`host` and `cuda` are the streams of those devices; `interpreted` is the CUDA kernel run by Triton's
interpreter, which has to be chosen before Triton is imported.
"""

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path

kind, folder = sys.argv[1], Path(sys.argv[2])
if kind == "interpreted":
    os.environ["TRITON_INTERPRET"] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402

from smoothcert._registry import restore  # noqa: E402
from smoothcert.noises import Additive  # noqa: E402
from smoothcert.sampling.sampler import Batch, _HostBuffer  # noqa: E402
from smoothcert.sampling.streams import HostStream, PhiloxStream, Segment  # noqa: E402

device = torch.device("cuda" if kind == "cuda" else "cpu")
if kind == "host":
    make = HostStream
else:
    from smoothcert.sampling import philox

    make = PhiloxStream
    if kind == "interpreted":
        torch.cuda.device = lambda device: nullcontext()


def draw(
    seed: int,
    segments: list[list[int]],
    shape: list[int],
    batch: int,
    law: str,
    scale: float,
    x: float,
    dtype: str,
    noise: dict | None = None,
):
    """The noisy rows of segments (id, first sample, count) of an input whose values are all `x`."""
    description = Additive(law, scale) if noise is None else restore(noise).draw
    exact = torch.float64 if dtype == "float64" else torch.float32  # as `VoteCounter` keeps them
    inputs = torch.full((2, *shape), x, device=device, dtype=exact)
    noisy_shape = description.output_shape(tuple(shape))
    out = torch.full((batch, *noisy_shape), torch.nan, device=device, dtype=getattr(torch, dtype))
    parts = [Segment(0, id, first, count) for id, first, count in segments]
    rows = _HostBuffer(batch, device).send(Batch(parts, []), batch, padding=1)
    if kind == "interpreted":  # it is slow for many blocks, and for blocks that are mostly empty
        philox._BLOCK = min(8192, 2 ** max(4, inputs[0].numel().bit_length()))
    make(seed, description).write(out, inputs, parts, rows)
    return out[: sum(part.count for part in parts)].to(exact).cpu().numpy()


for number, line in enumerate(sys.stdin):
    path = folder / f"{number}.npy"
    np.save(path, draw(**json.loads(line)))
    print(path, flush=True)

"""Local smoothing: the classifier's mean over small noises behind the denoiser."""

from __future__ import annotations

from contextlib import suppress
from math import inf

import torch
from torch import Tensor

from smoothcert.errors import InvalidInput
from smoothcert.noises import Gaussian
from smoothcert.noises.base import Shape
from smoothcert.sampling.streams import HostStream, Segment, key_for

_MOST_NOISES = 1_000
"""Each is a forward pass of the classifier for every sample."""


def checked_local(local: str | tuple[int, float]) -> str:
    """The number and the standard deviation of local noises, as a text that a run records."""
    with suppress(ValueError, TypeError):
        number, deviation = local.split(",") if isinstance(local, str) else local
        if 1 <= int(number) <= _MOST_NOISES and 0 < float(deviation) < inf:
            return f"{int(number)},{float(deviation)!r}"
    raise InvalidInput(
        "not-local",
        "`local={local}` must be a number of noises, at most {most:,}, and their standard "
        "deviation, as in 5,0.25",
        local=local,
        most=_MOST_NOISES,
    )


def local_noises(local: str, shape: Shape) -> Tensor:
    """The noises of local smoothing. They are a part of the classifier, so they have one key."""
    number, deviation = local.split(",")
    noises = torch.empty((int(number), *shape))
    stream = HostStream(key_for(0, "local"), Gaussian(float(deviation)).for_shape(shape).draw)
    copies = Segment(0, 0, 0, len(noises))
    stream.write(noises, torch.zeros((1, *shape)), [copies], torch.empty(0))
    return noises

"""Learning-rate schedules as functions of how much of the training is done."""

from __future__ import annotations

import math
from collections.abc import Callable

_RISE = 0.3  # the share of a one-cycle run in which the rate goes up
_START = 1 / 25  # and from where it does


def cosine(done: float) -> float:
    """From 1 to 0 along half a cosine."""
    return (1 + math.cos(math.pi * done)) / 2


def step(done: float) -> float:
    """1, then a tenth after each third: the usual 30 of 90 epochs."""
    return 0.1 ** math.floor(3 * done)


def onecycle(done: float) -> float:
    """Up from 1/25 to 1 and down to 0, along half a cosine each (Smith & Topin 2018)."""
    if done < _RISE:
        return 1 - (1 - _START) * cosine(done / _RISE)
    return cosine((done - _RISE) / (1 - _RISE))


SCHEDULES: dict[str, Callable[[float], float]] = {"cosine": cosine, "step": step, "onecycle": onecycle}
"""The factor on the learning rate, by the share of the steps that is done (0 up to, not including, 1)."""

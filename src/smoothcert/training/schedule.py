"""Learning-rate schedules: the factor on the learning rate as a function of the progress of the training."""

from __future__ import annotations

import math
from collections.abc import Callable

_ONECYCLE_WARM_UP = 0.3  # the share of the steps in which the rate rises
_ONECYCLE_START = 1 / 25  # the factor at the first step


def cosine(done: float) -> float:
    """Fall from 1 to 0 along half a cosine.

    >>> cosine(0.5)
    0.5
    """
    return (1 + math.cos(math.pi * done)) / 2


def step(done: float) -> float:
    """Divide by ten after each third of the training, as in the usual 30 of 90 epochs.

    >>> step(0.5)
    0.1
    """
    return 0.1 ** math.floor(3 * done)


def onecycle(done: float) -> float:
    """Rise from 1/25 to 1 and fall to 0, along half a cosine each (Smith & Topin 2018).

    >>> onecycle(0.3)
    1.0
    """
    if done < _ONECYCLE_WARM_UP:
        return 1 - (1 - _ONECYCLE_START) * cosine(done / _ONECYCLE_WARM_UP)
    return cosine((done - _ONECYCLE_WARM_UP) / (1 - _ONECYCLE_WARM_UP))


SCHEDULES: dict[str, Callable[[float], float]] = {"cosine": cosine, "step": step, "onecycle": onecycle}
"""The schedules by name. Each takes the share of the steps that are done, in [0, 1)."""

"""A smoothed classifier that runs its model where the model is, in the number format that the model has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert import _check
from smoothcert.data import find_dataset
from smoothcert.plans import Fixed, InputSpecific, Plan
from smoothcert.plans.one_look import OneLook
from smoothcert.sampling.streams import key_for
from smoothcert.smoothed import Smoothed
from smoothcert.statistics.comparison import mcnemar

_MOST_ROWS, _FEW_NUMBERS = 8192, 2**18  # small inputs get larger batches: there, calls cost more than rows
_FORMATS = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float64: "float64"}


class Current:
    """`Smoothed` for the model where it is now, by batch size, as the programs do that the classes stand in for.

    `device` is None for where the model is. The other settings are those of `Smoothed`.
    """

    def __init__(self, model: Callable[[Tensor], Tensor], *, device: str | None = None, **settings: Any) -> None:
        self._model, self._device = model, device
        self._settled = Smoothed(model, compile="none", device="cpu", **settings)
        self._smoothed: dict[tuple[int, str, str], Smoothed] = {}

    def smoothed(self, batch: int, example: Any, shape: Sequence[int]) -> Smoothed:
        """The smoothed classifier for batches of this size, or more for small inputs.

        `example` tells the device if the model has no weights.
        """
        batch = max(_check.whole("batch_size", batch, least=1), min(_MOST_ROWS, _FEW_NUMBERS // prod(shape)))
        first = None
        if isinstance(self._model, nn.Module):
            self._model.eval()
            first = next(self._model.parameters(), next(self._model.buffers(), None))
        device = self._device or str(getattr(example if first is None else first, "device", "cpu"))
        dtype = _FORMATS.get(getattr(first, "dtype", torch.float32), "float32")
        place = (batch, device, dtype)
        if place not in self._smoothed:
            self._smoothed[place] = self._settled.asking(batch=batch, batch_at_most=True, device=device, dtype=dtype)
        return self._smoothed[place]


@cache
def plan_for(samples: int, *, pilot: int, alpha: float, decline: float | None) -> Plan:
    """Fixed sampling, as published, or input-specific sampling with the same ceiling."""
    if decline is None:
        return Fixed(samples, pilot=pilot, alpha=alpha)
    return InputSpecific(samples, pilot=pilot, alpha=alpha, decline=decline)


def vote(smoothed: Smoothed, x: Any, *, samples: int, alpha: float) -> list[tuple[int | None, bool]]:
    """The class with most votes among `samples` for each input, and whether it leads beyond chance.

    This is the test of Cohen et al.: the two leading classes would share their votes as they do with a probability of
    at most alpha if both were equally likely.
    """
    plan = OneLook(_check.whole("samples", samples, least=1))
    alpha = _check.between("alpha", alpha, 0, 1)
    dataset = find_dataset(x)
    ids = list(range(len(dataset)))
    subject = smoothed.bind(dataset, ids, flexible=True)
    key = key_for(smoothed.seed, "interactive", smoothed.next_call())
    engine = smoothed.prepared(subject).engine(plan, seed=key)
    looks = {c.id: c.looks[0] for c in engine.certify(subject.read(dataset, id) for id in ids)}
    answers: list[tuple[int | None, bool]] = []
    for id in ids:
        first, second, *_ = [*sorted(looks[id].votes.values(), reverse=True), 0, 0]
        answers.append((looks[id].top, mcnemar(first, second) <= alpha))
    return answers

"""What a run will cost: a survey of a few noisy copies of some inputs, and the forecast that follows from it.

The survey draws noise of its own. No vote of it counts in a certificate.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from smoothcert.executors import Executor, Job
from smoothcert.noises import Noise
from smoothcert.plans import Certificate, OneLook, Plan
from smoothcert.plans.outlook import expected_samples, is_adaptive
from smoothcert.sampling.streams import key_for
from smoothcert.statistics.population import P, distribution, posterior

_FIRST, _GROWTH = 64, 8
"""Samples of the first round of a survey, and how much larger each round is than the one before."""
_COPIES, _MOST_COPIES, _MOST_INPUTS = 25, 100, 256
_SECONDS = 0.5
"""A round that takes this long measures the rate well enough."""
_LONGEST = 10.0
_TIMED_BATCHES, _TIMED_INPUTS, _TIMED_SECONDS = 4, 16, 0.1

Tally = Counter[tuple[int, int]]
"""How many inputs have how many votes for the class in how many samples."""


@dataclass(frozen=True)
class Survey:
    """The votes of a few noisy copies of some inputs, and how fast they were drawn."""

    votes: Tally
    samples: int
    """Forward passes that it took."""
    rate: float
    """Samples per second."""


@dataclass(frozen=True)
class Forecast:
    """What a run will cost.

    Args:
        inputs: The number of inputs.
        samples: Forward passes, as expected.
        error: Two standard errors of `samples`, as a share of it.
        rate: Samples per second, as measured.
    """

    inputs: int
    samples: float
    error: float
    rate: float

    @property
    def seconds(self) -> float:
        """How long sampling will take."""
        return self.samples / self.rate

    def __str__(self) -> str:
        minutes = f"{self.seconds / 60:.3g} minutes" if self.seconds >= 60 else f"{self.seconds:.1f} s"
        samples, each = (f"{float(f'{number:.3g}'):,.0f}" for number in (self.samples, self.samples / self.inputs))
        return f"{samples} samples ±{self.error:.0%} ({each} per input), {minutes} at {self.rate:,.0f} samples/s"


def order(ids: Sequence[int], seed: int) -> list[int]:
    """The inputs in a random order that depends on nothing but the seed."""
    return [int(id) for id in np.random.default_rng(key_for(seed, "order")).permutation(sorted(ids))]


def survey(executor: Executor, job: Job, ids: Sequence[int], most: Callable[[Survey], float], *, timed: bool) -> Survey:
    """Draw ever larger rounds of noisy copies, as long as they are worth their cost.

    Args:
        executor: Where to compute. It has started the job.
        job: The job.
        ids: The inputs of the run.
        most: Given what was found, how many samples a survey may cost.
        timed: Whether its size may depend on the clock, to measure the rate well and to end soon.
    """
    shuffled, key = order(ids, job.subject.seed), key_for(job.subject.seed, "survey")
    enough = _MOST_COPIES * min(len(ids), _MOST_INPUTS)
    size, spent, forwarded, rows = _FIRST, 0, 0, 0
    while True:
        part = shuffled[: min(max(size // _COPIES, 4), _MOST_INPUTS)]
        plan = OneLook(max(size // len(part), 1))
        start, before = time.perf_counter(), forwarded
        votes = Tally(first_votes(c, job.plan) for found in executor.certify(part, plan, key) for c in found)
        seconds, forwarded = time.perf_counter() - start, executor.status().forwarded
        rows = rows or forwarded  # those of the first round, which is one batch
        spent += len(part) * plan.pilot
        result = Survey(votes, spent, (forwarded - before) / seconds)
        larger = min(_GROWTH * size, enough) if size < enough else _GROWTH * size
        settled = size >= enough and not (timed and seconds < _SECONDS)
        if settled or spent + larger > most(result) or (timed and larger > _LONGEST * result.rate):
            few = forwarded - before < _TIMED_BATCHES * rows
            too_short = timed and (few or seconds < _TIMED_SECONDS)
            return replace(result, rate=_full_rate(executor, part, rows, key)) if too_short else result
        size = larger


def _full_rate(executor: Executor, ids: Sequence[int], rows: int, key: int) -> float:
    """Samples per second in full batches. A round of few samples is mostly padding and waiting on a fast device."""
    few = ids[:_TIMED_INPUTS]

    def timed(batches: int) -> tuple[int, float]:
        start, before = time.perf_counter(), executor.status().forwarded
        for _ in executor.certify(few, OneLook(max(batches * rows // len(few), 1)), key):
            pass
        return executor.status().forwarded - before, time.perf_counter() - start

    forwarded, seconds = timed(_TIMED_BATCHES)
    if seconds < _TIMED_SECONDS:  # the first and the last batch wait for the host, so only what is added counts
        more, longer = timed(5 * _TIMED_BATCHES)
        forwarded, seconds = more - forwarded, max(longer - seconds, longer / 5)
    return forwarded / seconds


def first_votes(certificate: Certificate, plan: Plan) -> tuple[int, int]:
    """The votes for the class in the first look at an input, and the samples of that look."""
    look = certificate.looks[0]
    return look.of(certificate.label if plan.known_labels else look.top), look.samples


@lru_cache(maxsize=512)
def costs(plan: Plan, noise: Noise) -> Any:
    """The samples that an input is expected to cost, for every p of the grid."""
    return expected_samples(plan, P, noise)


def foresee(found: Survey, plan: Plan, noise: Noise, inputs: int) -> Forecast:
    """What a plan will cost on so many inputs, according to a survey."""
    if not is_adaptive(plan):
        return Forecast(inputs, float(inputs * plan.most_samples), 0.0, found.rate)
    cost = costs(plan, noise)
    count, samples = np.array(list(found.votes.elements())).T
    given = posterior(count, samples, distribution(found.votes))
    mean, square = given @ cost, given @ cost**2
    # What is not known about the inputs of the survey, and about the others.
    variance = max((square - mean**2).mean(), 0) / inputs + mean.var() / len(mean) * max(1 - len(mean) / inputs, 0)
    return Forecast(inputs, float(inputs * mean.mean()), float(2 * np.sqrt(variance) / mean.mean()), found.rate)


def forecast_of(executor: Executor, job: Job, ids: Sequence[int], share: float) -> Forecast:
    """The forecast of a job without a budget, from a survey that costs at most this share of it."""

    def after(found: Survey) -> Forecast:
        return foresee(found, job.plan, job.subject.noise, len(ids))

    return after(survey(executor, job, ids, lambda found: share * after(found).samples, timed=True))

"""What a run will cost: a survey of a few noisy copies of some inputs, and the forecast from it.

The survey draws noise of its own. No vote of it counts in a certificate.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from smoothcert.executors import Executor, Job
from smoothcert.noises import Noise
from smoothcert.plans import Certificate, Plan, SingleDraw
from smoothcert.plans.expected import expected_samples
from smoothcert.runs.words import duration
from smoothcert.sampling.streams import key_for
from smoothcert.statistics.empirical_bayes import P, distribution, posterior

_FIRST_SAMPLES = 64
"""Samples of the first round of a survey."""
_GROWTH = 8
"""How many times as many samples the next round has."""
_FIRST_COPIES = 25
"""Noisy copies of an input in the first rounds."""
_MOST_COPIES = 800
"""The most copies. With 800 copies, forecasts are off by 2%, with 100 by up to 9%."""
_FEWEST_INPUTS = 4
_MOST_INPUTS = 256
_LONGEST_ROUND = 10.0
"""Seconds of the longest round, where the clock matters."""
_TIMED_INPUTS = 16
_TIMED_GROWTH = 5
_SECONDS_FOR_RATE = 0.25
"""Batches that take this long tell the rate within a few percent."""

Votes = tuple[int, int]
"""The votes for the class of an input, and the samples that they are of."""


@dataclass(frozen=True)
class Survey:
    """The votes of a few noisy copies of some inputs, and how fast they were drawn."""

    votes: Mapping[int, Votes]
    """By input."""
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
        return self.samples / self.rate if self.samples else 0.0

    def __str__(self) -> str:
        if not self.inputs:
            return "nothing is left to certify"
        samples = float(f"{self.samples:.3g}") if self.error else self.samples
        each = f"{samples / self.inputs:,.0f} per input"
        took = f"{duration(self.seconds)} at {self.rate:,.0f} samples/s"
        return f"{samples:,.0f} samples ±{self.error:.0%} ({each}), {took}"


def order(ids: Sequence[int], seed: int) -> list[int]:
    """The inputs in a random order that depends on nothing but the seed."""
    shuffled = np.random.default_rng(key_for(seed, "order")).permutation(sorted(ids))
    return [int(id) for id in shuffled]


def survey(
    executor: Executor,
    job: Job,
    ids: Sequence[int],
    most: Callable[[Survey], float],
    *,
    timed: bool,
) -> Survey:
    """Draw ever larger rounds of noisy copies, as long as they are worth their cost.

    Args:
        executor: Where to compute. It has started the job.
        job: The job.
        ids: The inputs of the run.
        most: Given the survey so far, how many samples a survey may cost.
        timed: Whether its size may depend on the clock, to end soon and to measure the rate well.
    """
    shuffled = order(ids, job.subject.seed)
    most_samples = _MOST_COPIES * min(len(ids), _MOST_INPUTS)
    size = _FIRST_SAMPLES
    spent = 0
    while True:
        inputs = shuffled[: min(max(size // _FIRST_COPIES, _FEWEST_INPUTS), _MOST_INPUTS)]
        result = _draw(executor, job, inputs, max(size // len(inputs), 1))
        spent += result.samples
        result = replace(result, samples=spent)
        last = size
        size = int(min(_GROWTH * size, most_samples, most(result) - spent))
        too_long = timed and size > _LONGEST_ROUND * result.rate
        if size < 2 * last or too_long:
            break
    if timed:
        result = replace(result, rate=_rate(executor, job, shuffled[:_TIMED_INPUTS]))
    return result


def _draw(executor: Executor, job: Job, inputs: Sequence[int], copies: int) -> Survey:
    """The votes of so many noisy copies of each input, and how fast they were drawn."""
    start = time.perf_counter()
    rows_at_start = executor.status().forwarded
    votes: dict[int, Votes] = {}
    key = key_for(job.subject.seed, "survey")
    for finished in executor.certify(inputs, SingleDraw(copies), key):
        votes |= {c.id: votes_of(c, job.plan) for c in finished}
    rows = executor.status().forwarded - rows_at_start
    return Survey(votes, len(inputs) * copies, rows / (time.perf_counter() - start))


def _rate(executor: Executor, job: Job, inputs: Sequence[int]) -> float:
    """Samples per second in full batches, from ever more of them until they take long enough."""
    copies = 1
    while True:
        start = time.perf_counter()
        rate = _draw(executor, job, inputs, copies).rate
        seconds = time.perf_counter() - start
        if seconds >= _SECONDS_FOR_RATE:
            return rate
        copies = max(int(_TIMED_GROWTH * seconds * rate) // len(inputs), 1)


def survey_again(executor: Executor, job: Job, votes: Mapping[int, Votes]) -> dict[int, Votes]:
    """The votes of inputs of an earlier survey, drawn again."""
    again: dict[int, Votes] = {}
    for id, (_, samples) in votes.items():
        again |= _draw(executor, job, [id], min(samples, _MOST_COPIES)).votes
    return again


def votes_of(certificate: Certificate, plan: Plan) -> Votes:
    """The votes for the class in all looks at an input, and their samples."""
    looks = certificate.looks
    chosen = certificate.label if plan.known_labels else looks[0].top
    return sum(look.of(chosen) for look in looks), sum(look.samples for look in looks)


@lru_cache(maxsize=512)
def costs(plan: Plan, noise: Noise) -> Any:
    """The samples that an input is expected to cost, for every p of the grid."""
    return expected_samples(plan, P, noise)


def foresee(survey: Survey, plan: Plan, noise: Noise, inputs: int) -> Forecast:
    """What a plan will cost on so many inputs, according to a survey."""
    if not plan.adaptive:
        return Forecast(inputs, float(inputs * plan.most_samples), 0.0, survey.rate)
    cost = costs(plan, noise)
    votes = list(survey.votes.values())
    weights = posterior(votes, distribution(Counter(votes)))
    mean = weights @ cost
    square = weights @ cost**2
    # What is not known about the inputs of the survey, and about the others.
    given_votes = max((square - mean**2).mean(), 0)
    unseen_share = max(1 - len(mean) / inputs, 0)
    variance = given_votes / inputs + mean.var() / len(mean) * unseen_share
    error = float(2 * np.sqrt(variance) / mean.mean())
    return Forecast(inputs, float(inputs * mean.mean()), error, survey.rate)


def forecast_of(executor: Executor, job: Job, ids: Sequence[int], share: float) -> Forecast:
    """The forecast of a job without a budget, from a survey that costs at most this share of it."""

    def after(seen: Survey) -> Forecast:
        return foresee(seen, job.plan, job.subject.noise, len(ids))

    return after(survey(executor, job, ids, lambda seen: share * after(seen).samples, timed=True))

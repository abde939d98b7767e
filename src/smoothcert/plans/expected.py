"""What a plan is expected to cost and to prove (ASN) for inputs whose class has a known
probability.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers
from smoothcert.plans.base import Plan
from smoothcert.plans.simulation import needed_probability, simulated_stops
from smoothcert.plans.stopping import StoppingDistribution, is_countable

_SIMULATED = 10_000
"""Simulated inputs for each p; of a plan that decides radii, for all p together."""
_FEWEST = 100
"""Simulated inputs for each p, at least."""
_TO_PLAN = 10
"""Simulated inputs for each p, where only the cost on average matters."""


class Expected(NamedTuple):
    """What a plan does with inputs whose class has a known probability; one entry per
    probability.
    """

    samples: Numbers
    """Samples as planned, without `pilot_not_counted`; if `average`, the expectation of all
    samples."""
    proved: dict[str, Numbers]
    """What is proved, by column title: radii, or probabilities to prove a radius."""
    average: bool = False
    """Whether `samples` is an expectation and not the plan of the method."""
    simulated: bool = False
    """Whether both are shares and averages over simulated inputs."""
    pilot_not_counted: int = 0
    """Samples of a pilot that an input costs in addition to `samples`."""


def expected(plan: Plan, noise: Noise, p: ArrayLike, *, simulated: int = _SIMULATED) -> Expected:
    """What a plan does with inputs whose class has probability p.

    Args:
        plan: The plan. Of a combined plan, the one that certifies.
        noise: The smoothing noise.
        p: Probabilities of the class.
        simulated: Simulated inputs in all, for a plan that decides radii and needs a simulation.
    """
    primary = plan.primary.for_noise(noise)
    values = np.atleast_1d(_check.probabilities("p", p))
    derived = primary.expected(values, noise)
    if derived is not None:
        return derived
    if is_countable(primary, noise):
        return _by_counting(primary, values, noise)
    return _by_simulation(primary, values, noise, simulated)


def expected_samples(plan: Plan, p: Numbers, noise: Noise) -> Numbers:
    """The samples that an input costs on average if its class has probability p, every forward pass
    counted.
    """
    derived = plan.expected_samples(p, noise)
    if derived is not None:
        return derived
    rng = np.random.default_rng(0)
    return simulated_stops(plan, noise, p, repetitions=_TO_PLAN, rng=rng).samples.mean(axis=1)


def _by_counting(plan: Plan, p: Numbers, noise: Noise) -> Expected:
    stopping = StoppingDistribution(plan, noise)
    samples = np.array([stopping.at(q, limit=np.inf).samples for q in p.tolist()])
    proved = {}
    for title, limit in _claims(plan, noise).items():
        failed = [stopping.at(q, limit=limit).failed for q in p.tolist()]
        proved[title] = without_rounding_errors(failed)
    return Expected(samples, proved, average=True)


def _by_simulation(plan: Plan, p: Numbers, noise: Noise, simulated: int) -> Expected:
    repetitions = _SIMULATED if plan.radii is None else max(simulated // len(p), _FEWEST)
    rng = np.random.default_rng(0)
    stops = simulated_stops(plan, noise, p, repetitions=repetitions, rng=rng)
    needed = needed_probability(plan, noise, stops.proof)
    proved = {title: (needed > limit).mean(axis=1) for title, limit in _claims(plan, noise).items()}
    return Expected(stops.samples.mean(axis=1), proved, average=True, simulated=True)


def _claims(plan: Plan, noise: Noise) -> dict[str, float]:
    """Which probability the claims of a plan have to exceed, by column title."""
    if plan.radii is None:
        return {"certified": 0.5}
    return {
        f"proves {radius:g}": float(np.nextafter(noise.needed_probability(radius), 0))
        for radius in plan.radii
    }


def without_rounding_errors(sums: ArrayLike) -> NDArray[np.float64]:
    """Sums of probabilities, which floating-point errors can move above 1."""
    return np.round(np.clip(sums, 0, 1), 12)

"""What a plan would have cost and certified on a published log, or on a run of our own.

Each radius of the log gives its count back (a run tells it), count / samples is taken as p, and the plan is simulated
with seeded binomial draws. The radius at the full ceiling continues the same draws, so that declines are on the same
noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check, metrics
from smoothcert.bounds import lower_bound
from smoothcert.errors import InvalidInput
from smoothcert.logs import Log, votes
from smoothcert.noise import Noise
from smoothcert.plans.base import PilotPlan
from smoothcert.runs.results import Results

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """Averages over repetitions of one way of sampling."""

    samples: float
    """Average samples per input; every forward pass counts, pilots and abstentions included."""
    acr: float
    mad: float
    abstained: float
    """Share of inputs without a certificate."""
    certified_accuracy: dict[float, float]


@dataclass(frozen=True)
class Replay:
    """A plan beside fixed sampling at the same average cost, and at the full ceiling."""

    inputs: int
    repetitions: int
    plan: Outcome
    fixed: Outcome
    ceiling: Outcome


def probabilities(log: Log, *, noise: Noise, samples: int, alpha: float, abstained_p: float = 0.49) -> Array:
    """p of every input of a log made with these settings; a log does not tell it where the input was abstained on."""
    _check.between("abstained_p", abstained_p, 0, 1)
    return np.where(log.abstained, abstained_p, votes(log, noise=noise, samples=samples, alpha=alpha) / samples)


def measured_probabilities(results: Results, *, noise: Noise, abstained_p: float = 0.49) -> Array:
    """p of every input of a run or an export, from its own votes; `abstained_p` where no votes were counted."""
    if results.noise != noise:
        raise InvalidInput(f"{results.name} was certified under {results.noise}, its votes tell nothing of {noise}")
    _check.between("abstained_p", abstained_p, 0, 1)
    return np.where(np.isnan(results.p), abstained_p, results.p)


def replay(
    log: Log,
    plan: PilotPlan,
    *,
    noise: Noise,
    log_samples: int = 100_000,
    log_alpha: float | None = None,
    abstained_p: float = 0.49,
    radii: list[float] | None = None,
    repetitions: int = 20,
    seed: int = 0,
) -> Replay:
    """Simulate `plan` on the inputs of `log`.

    `log_samples` and `log_alpha` are those the log was made with (if not given, the alpha is taken to be the plan's).
    """
    alpha = plan.alpha if log_alpha is None else log_alpha
    p = probabilities(log, noise=noise, samples=log_samples, alpha=alpha, abstained_p=abstained_p)
    return simulate(p, log.correct, plan, noise=noise, radii=radii, repetitions=repetitions, seed=seed)


def simulate(
    p: ArrayLike,
    correct: ArrayLike,
    plan: PilotPlan,
    *,
    noise: Noise,
    radii: list[float] | None = None,
    repetitions: int = 20,
    seed: int = 0,
) -> Replay:
    """Simulate `plan` on inputs whose top class has probability `p` and is `correct` or not."""
    p, correct = _check.probabilities("p", p), np.asarray(correct, bool)
    _check.whole("repetitions", repetitions, least=1)
    _check.whole("seed", seed)
    plan.check(noise)
    rng = np.random.default_rng(seed)
    pilot = rng.binomial(plan.pilot, p, size=(repetitions, len(p)))
    drawn = plan.after_pilot(pilot, noise)
    before = plan.counted_before()
    counted = drawn + before
    count = rng.binomial(drawn, p) + (pilot if before else 0)
    cost = plan.pilot + float(np.mean(drawn))
    full = count + rng.binomial(plan.samples - counted, p)

    # Fixed sampling that costs as much: its pilot is paid like the plan's.
    n = max(round(cost) - (plan.pilot - before), 1)
    fixed = rng.binomial(n, p, size=pilot.shape)
    full_of_fixed = fixed + rng.binomial(plan.samples - n, p, size=pilot.shape)

    def radius(count: NDArray[np.int64], samples: ArrayLike) -> Array:
        bound = lower_bound(count, np.maximum(samples, 1), alpha=plan.alpha)  # 0 of 0 votes prove as little as 0 of 1
        return np.asarray(np.maximum(noise.radius(bound), 0))

    reference = radius(full, plan.samples)
    outcomes = [
        (cost, radius(count, counted), reference),
        (cost, radius(fixed, n), radius(full_of_fixed, plan.samples)),
        (plan.ceiling_cost, reference, reference),
    ]
    largest = float(noise.radius(lower_bound(plan.samples, plan.samples, alpha=plan.alpha)))
    radii = metrics.default_radii(largest) if radii is None else _checked(radii)
    summaries = [_summary(c, r, full, correct, radii) for c, r, full in outcomes]
    return Replay(p.size, repetitions, *summaries)


def _checked(radii: list[float]) -> list[float]:
    for radius in radii:
        if not 0 <= radius < np.inf:
            raise InvalidInput(f"radii must be finite numbers of at least 0, got {radius}")
    return radii


def _summary(cost: float, radius: Array, reference: Array, correct: NDArray[np.bool_], radii: list[float]) -> Outcome:
    accuracy = metrics.certified_accuracy(radius, np.broadcast_to(correct, radius.shape), radii)
    return Outcome(
        samples=cost,
        acr=metrics.average_certified_radius(radius, correct),
        mad=float(np.mean([metrics.largest_decline(r, f) for r, f in zip(radius, reference, strict=True)])),
        abstained=float(np.mean(radius <= 0)),
        certified_accuracy=dict(zip(radii, np.mean(np.atleast_2d(accuracy), axis=0).tolist(), strict=True)),
    )

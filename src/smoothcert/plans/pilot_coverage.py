"""The exact failure probability of a plan of two looks, by enumeration over the pilot's outcome.

A certificate fails when the bound it rests on exceeds the true probability p. Given `a0` votes in the pilot the
number of counted samples n(a0) is fixed, so

    failure(p) = sum over a0 of  P(a0 | pilot, p) * P(enough further votes that L(count, n(a0), alpha) > p)

which is a finite sum. Nothing is simulated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert.noises import Noise
from smoothcert.statistics.binomial import pmf, tail
from smoothcert.statistics.bounds import critical_count, lower_bound

if TYPE_CHECKING:
    from smoothcert.plans.pilot import PilotPlan

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

# Outcomes of the pilot rarer than this share of alpha are left out of the sum and added to the failure instead.
_NEGLIGIBLE = 1e-15
# How many pairs of (p, outcome of the pilot) are held in memory at once, and up to how many a plan is small: about a
# second's work.
_AT_ONCE = 1_000_000
_SMALL = 3_000_000


def failure_probability(plan: PilotPlan, noise: Noise, p: ArrayLike) -> Array:
    """failure(p) for a class fixed in advance whose true probability is p.

    Below 1/2 any certificate is wrong, so the bound has to exceed max(p, 1/2).
    """
    p = np.atleast_1d(_check.probabilities("p", p))
    parts = np.array_split(p, 1 + len(p) * plan.pilot // _AT_ONCE)
    return np.concatenate([_failure(plan, noise, part) for part in parts])


def tie_failure(plan: PilotPlan, noise: Noise) -> float:
    """Two classes at p = 1/2 each: the pilot picks one, or the label does, and any certificate for it is wrong."""
    if plan.known_labels:
        return float(failure_probability(plan, noise, 0.5)[0])
    first = np.arange(plan.pilot + 1)
    top = np.maximum(first, plan.pilot - first)
    failed = _failure_after_pilot(plan, noise, top, np.full(len(top), 0.5))
    return float(np.sum(pmf(first, plan.pilot, 0.5) * failed))


def worst_case(plan: PilotPlan, noise: Noise) -> tuple[float, float]:
    """The largest failure(p) over p and where it is.

    failure(p) is a saw: it climbs with p and drops where p passes a value that the bound can take, L(t, n). So the
    worst p lies just below such a break point. Small plans have few, and all are tried. A plan of 100,000 samples has
    millions: they are searched next to a grid of p that is refined towards 1, then, ever closer, around the best
    candidates for the sample sizes that are likely there. This is a lower bound: it may miss the very worst tooth.
    p below 1/2 cannot be worse than 1/2.
    """
    sizes = np.unique(plan.counted_before() + plan.after_pilot(np.arange(plan.pilot + 1), noise))
    if sizes.sum() * max(plan.pilot, 1) <= _SMALL:
        every = [lower_bound(np.arange(n + 1), n, alpha=plan.alpha) for n in sizes[sizes > 0]]
        return _highest(plan, noise, _just_below(np.concatenate(every)))[0]
    grid = np.concatenate([np.linspace(0.5, 0.999, 200), 1 - np.geomspace(1e-3, 1e-7, 40)])
    found = _highest(plan, noise, _break_point(plan, noise, np.rint(grid * plan.pilot).astype(int), grid))
    for width, candidates in ((0.02, 5), (4e-3, 3), (4e-4, 2)):
        apart: list[float] = []
        for _, p in found:
            if len(apart) < candidates and all(abs(p - other) > width * (1 - other) for other in apart):
                apart.append(p)
        for p in apart:
            found += _highest(plan, noise, _break_points_around(plan, noise, p, 2 * width * (1 - p)))[:8]
        found.sort(reverse=True)
    return found[0]


def _break_points_around(plan: PilotPlan, noise: Noise, p: float, width: float) -> Array:
    spread = np.sqrt(p * (1 - p) * plan.pilot)
    likely = np.clip(np.rint(p * plan.pilot + spread * np.linspace(-2, 2, 5)), 0, plan.pilot).astype(int)
    nearby = np.linspace(max(p - width, 0.5), p + width, 25)
    a0, where = np.meshgrid(likely, nearby)
    return _break_point(plan, noise, a0.ravel(), where.ravel())


def _highest(plan: PilotPlan, noise: Noise, p: Array) -> list[tuple[float, float]]:
    """(failure, p) for these p, the largest failure first."""
    p = np.unique(p)
    return sorted(zip(failure_probability(plan, noise, p).tolist(), p.tolist(), strict=True), reverse=True)


def _break_point(plan: PilotPlan, noise: Noise, a0: Counts, p: Array) -> Array:
    """The first value above p that the bound can take after a0 votes in the pilot, or just below it."""
    n = plan.counted_before() + plan.after_pilot(a0, noise)
    drawn = n > 0
    n, p = n[drawn], p[drawn]
    bound = lower_bound(critical_count(p, n, alpha=plan.alpha).clip(max=n), n, alpha=plan.alpha)
    return _just_below(bound)


def _just_below(bound: Array) -> Array:
    """A number just below each bound; 1/2 stands for all that cannot certify."""
    return np.maximum(bound * (1 - 1e-12), 0.5)


def _failure(plan: PilotPlan, noise: Noise, p: Array) -> Array:
    share = pmf(np.arange(plan.pilot + 1), plan.pilot, p[:, None])
    of, a0 = np.nonzero(share > _NEGLIGIBLE * plan.alpha)
    share[of, a0] *= _failure_after_pilot(plan, noise, a0, p[of])
    return np.asarray(share.sum(axis=1))


def _failure_after_pilot(plan: PilotPlan, noise: Noise, a0: Counts, p: Array) -> Array:
    """P(the bound exceeds max(p, 1/2)) given a0 votes for the class in the pilot."""
    drawn = plan.after_pilot(a0, noise)
    before = plan.counted_before()
    critical = critical_count(np.maximum(p, 0.5), before + drawn, alpha=plan.alpha)
    return tail(critical - (a0 if before else 0), drawn, p)

"""The exact failure probability of a plan, by enumeration over the pilot's outcome.

A certificate fails when the bound it rests on exceeds the true probability p. Given `a0` votes in the pilot the
number of counted samples n(a0) is fixed, so

    failure(p) = sum over a0 of  P(a0 | pilot, p) * P(enough further votes that L(count, n(a0), alpha) > p)

which is a finite sum. Nothing is simulated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaln, ndtri, xlog1py, xlogy

from smoothcert import _check
from smoothcert.bounds import keeps_bound, lower_bound
from smoothcert.errors import InvalidInput
from smoothcert.noise import Noise
from smoothcert.plans.base import PilotPlan

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

# Rounding in sums of thousands of terms; far below anything that `valid` should turn on.
_ROUNDING = 1e-9
# Outcomes of the pilot rarer than this share of alpha are left out of the sum and added to the failure instead.
_NEGLIGIBLE = 1e-15
# How many pairs of (p, outcome of the pilot) are held in memory at once, and up to how many a plan is small: about a
# second's work.
_AT_ONCE = 1_000_000
_SMALL = 3_000_000


@dataclass(frozen=True)
class Coverage:
    """What a plan really guarantees."""

    alpha: float
    worst_failure: float
    """The largest failure probability over p, for a class fixed in advance."""
    worst_p: float
    tie_failure: float
    """Failure probability for two tied classes (p = 1/2 each), the class being chosen on the pilot."""
    pilot_counts: bool = False
    """Whether the votes that chose the class count for its bound. Classes that are nearly tied can then fail more often
    than tied ones, and no theorem limits it."""

    @property
    def valid(self) -> bool:
        """Whether the plan is sure to keep its alpha."""
        return not self.pilot_counts and max(self.worst_failure, self.tie_failure) <= self.alpha * (1 + _ROUNDING)


def exact_coverage(plan: PilotPlan, noise: Noise) -> Coverage:
    """Exact worst-case failure of a plan.

    >>> from smoothcert import Gaussian, InputSpecific
    >>> plan = InputSpecific(100_000, decline=0.05, kind="relative", pilot_use="reuse")
    >>> found = exact_coverage(plan, Gaussian(0.5))
    >>> round(found.worst_failure / 0.001, 3), round(found.worst_p, 2), found.valid
    (1.045, 0.6, False)
    """
    if not isinstance(plan, PilotPlan):
        raise InvalidInput(f"the exact failure probability is known for plans of a pilot and one draw, got {plan}")
    worst_failure, worst_p = worst_case(plan, noise)
    return Coverage(plan.alpha, worst_failure, worst_p, tie_failure(plan, noise), plan.pilot_use == "reuse")


def failure_probability(plan: PilotPlan, noise: Noise, p: ArrayLike) -> Array:
    """failure(p) for a class fixed in advance whose true probability is p.

    Below 1/2 any certificate is wrong, so the bound has to exceed max(p, 1/2).
    """
    p = np.atleast_1d(_check.probabilities("p", p))
    parts = np.array_split(p, 1 + len(p) * plan.pilot // _AT_ONCE)
    return np.concatenate([_failure(plan, noise, part) for part in parts])


def tie_failure(plan: PilotPlan, noise: Noise) -> float:
    """Two classes at p = 1/2 each: the pilot picks one, and any certificate for it is wrong."""
    first = np.arange(plan.pilot + 1)
    top = np.maximum(first, plan.pilot - first)
    failed = _failure_after_pilot(plan, noise, top, np.full(len(top), 0.5))
    return float(np.sum(_binomial_pmf(first, plan.pilot, 0.5) * failed))


def worst_case(plan: PilotPlan, noise: Noise) -> tuple[float, float]:
    """The largest failure(p) over p and where it is.

    failure(p) is a saw: it climbs with p and drops where p passes a value that the bound can take, L(t, n). So the
    worst p lies just below such a break point. Small plans have few, and all are tried. A plan of 100,000 samples has
    millions: they are searched next to a grid of p that is refined towards 1, then, ever closer, around the best
    candidates for the sample sizes that are likely there. This is a lower bound: it may miss the very worst tooth.
    p below 1/2 cannot be worse than 1/2.
    """
    sizes = np.unique(plan.counted_before() + plan.after_pilot(np.arange(plan.pilot + 1), noise))
    if sizes.sum() * plan.pilot <= _SMALL:
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
    """The first value above p that the bound can take after a0 votes in the pilot, less a hair."""
    n = plan.counted_before() + plan.after_pilot(a0, noise)
    drawn = n > 0
    n, p = n[drawn], p[drawn]
    bound = lower_bound(_critical_count(n, p, plan.alpha).clip(max=n), n, alpha=plan.alpha)
    return _just_below(bound)


def _just_below(bound: Array) -> Array:
    """Each bound less a hair; 1/2 stands for all that cannot certify."""
    return np.maximum(bound * (1 - 1e-12), 0.5)


def _failure(plan: PilotPlan, noise: Noise, p: Array) -> Array:
    share = _binomial_pmf(np.arange(plan.pilot + 1), plan.pilot, p[:, None])
    of, a0 = np.nonzero(share > _NEGLIGIBLE * plan.alpha)
    share[of, a0] *= _failure_after_pilot(plan, noise, a0, p[of])
    return np.asarray(share.sum(axis=1))


def _failure_after_pilot(plan: PilotPlan, noise: Noise, a0: Counts, p: Array) -> Array:
    """P(the bound exceeds max(p, 1/2)) given a0 votes for the class in the pilot."""
    drawn = plan.after_pilot(a0, noise)
    before = plan.counted_before()
    critical = _critical_count(before + drawn, np.maximum(p, 0.5), plan.alpha)
    return _binomial_tail(critical - (a0 if before else 0), drawn, p)


def _critical_count(n: Counts, p: Array, alpha: float) -> Counts:
    """The smallest count out of n whose lower bound reaches p; n + 1 if there is none.

    A normal approximation with its skewness term, then corrected by single steps: it is never off by more than a few.
    """
    z = -ndtri(alpha)
    guess = n * p + z * np.sqrt(n * p * (1 - p)) + (1 - 2 * p) * (z * z - 1) / 6
    t: Counts = np.clip(np.ceil(guess), 1, n + 1).astype(np.int64)

    def reaches(count: Counts, of: Counts) -> NDArray[np.bool_]:
        return (count > n[of]) | keeps_bound(np.minimum(count, n[of]), n[of], p[of], alpha=alpha)

    short = long = np.arange(len(t))
    while len(short := short[~reaches(t[short], short)]):
        t[short] += 1
    while len(long := long[(t[long] > 1) & reaches(t[long] - 1, long)]):
        t[long] -= 1
    return t


def _binomial_pmf(k: Counts, n: int, p: ArrayLike) -> Array:
    log = xlogy(k, p) + xlog1py(n - k, -np.asarray(p)) - betaln(k + 1, n - k + 1) - np.log(n + 1)
    return np.asarray(np.exp(log))


def _binomial_tail(k: Counts, n: Counts, p: Array) -> Array:
    """P(at least k of n), 1 for k <= 0 and 0 for k > n."""
    inside = (k >= 1) & (k <= n)
    return np.where(inside, betainc(np.where(inside, k, 1), np.where(inside, n - k + 1, 1), p), k < 1)

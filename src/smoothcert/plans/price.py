"""A price for samples: each input gets as many as pay for themselves in radius.

After a pilot that chooses the class, the plan looks at 30 samples, then at 1.5 times as many each.
After look i, it goes on only if it has seen fewer than m_i misses, votes for other classes. With
many misses, more samples do not pay.

All samples after the pilot count, at the full alpha, because the plan stops on bad news alone. Let
p be the true probability, and j_i the largest number of misses whose Clopper-Pearson bound at look
i is above p. A stop at look i is wrong if its misses are at most j_i, which is possible only if m_i
<= j_i. Let i be the first such look, or the last one. Whoever stops wrongly there or later has at
most j_i misses at look i: those who go on have fewer than m_i <= j_i. The probability of that is at
most alpha. So the m_i may be anything; good ones save samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers
from smoothcert.plans import two_stage
from smoothcert.plans.base import settle
from smoothcert.plans.coverage import Coverage
from smoothcert.plans.expected import Expected
from smoothcert.plans.simulation import simulated_stops
from smoothcert.plans.two_stage import TwoStagePlan
from smoothcert.plans.votes import Tally
from smoothcert.statistics import bounds
from smoothcert.statistics.bounds import Array, Counts, smallest
from smoothcert.statistics.group_sequential import growing_looks

_FIRST_LOOK = 30
_GROWTH = 1.5
_LEVELS = (np.arange(9) + 0.5) / 9
"""Quantiles of the posterior, which stand for all p."""
_TO_PLAN = 200
"""Simulated inputs for each p, to find the price for a budget."""
_TO_SHOW = 1_000
"""Simulated inputs for each p, to show what the plan does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Price(TwoStagePlan):
    """Draw samples as long as they are expected to add more than `price` each to the radius.

    The expectation is over the posterior of p, the probability of the class, given the votes so far
    (with a Jeffreys prior). A radius counts in proportion to 2 p - 1, because a class with little
    lead is often wrong, and the ACR counts right answers only. All of this only plans: certificates
    are exact.

    Args:
        price: How much radius a sample has to add. `certify` finds the price for a budget of
            samples or minutes.

    The other arguments are those of `TwoStagePlan`. The default pilot has 100 samples. With known
    labels, there is none, except to choose the groups of the runner-up bound.

    >>> from smoothcert import Gaussian
    >>> plan = Price(price=1e-5)
    >>> plan.looks[:6], plan.limits(Gaussian(0.5))[:6].tolist()
    ((30, 45, 68, 102, 153, 230), [15, 21, 31, 45, 66, 98])
    """

    price: float
    name: ClassVar[str] = "price"
    plans_ahead: ClassVar[bool] = False
    smallest_request: ClassVar[int] = 15  # from the first look at 30 samples to the next one
    default_pilot: ClassVar[int] = 100

    p_value = two_stage.p_value
    basis = two_stage.basis

    def __post_init__(self) -> None:
        TwoStagePlan.__post_init__(self)
        if self.pilot_use == "reuse":
            raise InvalidInput(
                "price-needs-fresh",
                'a plan with a price needs fresh samples: pilot_use must be "fresh", got "reuse"',
            )
        settle(self, price=_check.at_least("price", self.price, 0))

    def __str__(self) -> str:
        if not self.price:  # a budget will set it
            return self._in_words()
        return self._in_words(f"{self.price:.3g} of radius per sample")

    @property
    def looks(self) -> tuple[int, ...]:
        """The samples that count at each look."""
        return growing_looks(_FIRST_LOOK, _GROWTH, self.samples)

    def limits(self, noise: Noise) -> Counts:
        """m_i: The number of misses at a look that is too large to go on.

        Args:
            noise: The smoothing noise.
        """
        return _limits(self, noise)

    def after_pilot(self, count: ArrayLike, noise: Noise, rivals: Counts | None = None) -> Counts:
        return np.full(np.shape(count), self.looks[0])

    def request(self, state: Tally) -> Numbers:
        samples = state.next_look(self.looks)
        if not samples or not state.counted_looks:
            return samples
        misses = np.asarray(state.drawn) - state.count
        limit = self.limits(state.noise)[state.counted_looks - 1]
        return np.where(misses < limit, samples, 0)[()]

    def _upper_of_each(self, state: Tally, votes: Counts) -> Numbers:
        """An upper bound on the probability of each rival, from its votes (..., rivals).

        When the plan stops depends on the misses alone. Given their number, each one falls into a
        group with the same probability, wherever it stops, so Clopper-Pearson bounds this
        probability. What bounds the probability of a miss is the bound on the class.
        """
        misses = (np.asarray(state.drawn) - state.count)[..., None]
        share = bounds.upper_bound(votes, np.maximum(misses, 1), alpha=self.level_of_rivals)
        share = np.where(misses > 0, share, 1.0)
        rest = np.asarray(bounds.one_minus_up(self._lower(state)))[..., None]
        return np.nextafter(share * rest, 2.0).clip(max=1.0)

    def coverage(self, noise: Noise) -> Coverage:
        theorem = "union bound" if self.bounds_others else "stopping on bad news alone"
        return Coverage.by_theorem(theorem, self.alpha)

    def expected(self, p: ArrayLike, noise: Noise) -> Expected:
        rng = np.random.default_rng(0)
        stops = simulated_stops(self, noise, p, repetitions=_TO_SHOW, rng=rng)
        radius = np.maximum(noise.radius(stops.proof.lower), 0).mean(axis=1)
        samples = stops.samples.mean(axis=1)
        return Expected(samples, {"radius": radius}, average=True, simulated=True)

    def expected_samples(self, p: Array, noise: Noise) -> Numbers:
        goes_on = _misses(self.looks, tuple(p)) < self.limits(noise)[:, None, None]
        # The share of inputs that draw for each later look.
        reached = np.logical_and.accumulate(goes_on, axis=0)[:-1].mean(axis=1)
        first, *later = np.diff(self.looks, prepend=0)
        return self.pilot + first + np.array(later) @ reached


@lru_cache(maxsize=2)
def _misses(looks: tuple[int, ...], p: tuple[float, ...]) -> NDArray[np.int32]:
    """Simulated misses at each look, of some inputs for each p: the same for every price that a
    budget tries.
    """
    rng = np.random.default_rng(0)
    shape = (_TO_PLAN, len(p))
    steps = np.diff(looks, prepend=0)
    drawn = [rng.binomial(step, 1 - np.array(p), shape).astype(np.int32) for step in steps]
    return np.cumsum(drawn, axis=0, dtype=np.int32)


@lru_cache(maxsize=512)
def _limits(plan: Price, noise: Noise) -> Counts:
    """m_i by bisection: the fewest misses with which no later look is worth its samples."""
    n = np.array(plan.looks, float)
    now, later = np.triu_indices(len(n), 1)
    more = n[later] - n[now]

    def stops(misses: Counts) -> NDArray[np.bool_]:
        misses = np.maximum(misses, 0)
        votes = n - misses
        p = _beta_quantile(votes[:, None] + 0.5, misses[:, None] + 0.5, _LEVELS)
        right = np.maximum(2 * p - 1, 0)
        votes_later = votes[now, None] + p[now] * more[:, None]
        radius = _radius(votes_later, n[later, None], plan.level, noise)
        worth = np.full((len(n), len(n)), -np.inf)
        worth[now, later] = (radius * right[now]).mean(axis=1) - plan.price * more
        worth_now = _radius(votes, n, plan.level, noise) * right.mean(axis=1)
        return np.asarray(~(worth.max(axis=1) > worth_now))

    return smallest(stops, -1, plan.looks)


def _radius(votes: Numbers, samples: Numbers, alpha: float, noise: Noise) -> Numbers:
    """Roughly the radius that votes prove, 0 for none."""
    return np.maximum(noise.radius(_beta_quantile(votes, samples - votes + 1, alpha)), 0.0)


def _beta_quantile(a: Numbers, b: Numbers, level: ArrayLike) -> Numbers:
    """The quantile of Beta(a, b), as Wilson and Hilferty approximate it: good to plan with, and
    fast.
    """
    z = -ndtri(level)
    a = 1 / (9 * np.maximum(a, 1))
    b = 1 / (9 * b)
    product = (1 - a) * (1 - b)
    square = np.maximum((1 - a) ** 2 - z**2 * a, 1e-12)
    discriminant = np.maximum(product**2 - square * ((1 - b) ** 2 - z**2 * b), 0)
    root = product + np.sign(z) * np.sqrt(discriminant)
    return 1 / (1 + a / b * np.maximum(root / square, 0) ** 3)

"""The failure probability of a plan: how often its certificates are really wrong.

A certificate fails when the bound it rests on exceeds the true probability p. Some plans have a closed form. In a plan
of two looks, the number of counted samples n(a0) is fixed by the `a0` votes in the pilot, so

    failure(p) = sum over a0 of  P(a0 | pilot, p) * P(enough further votes that L(count, n(a0), alpha) > p)

which is a finite sum. For every other plan, a forward pass over its states computes the same. Where these are too many,
the plan is simulated, and the figures come with a confidence interval.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.plans.at_radii import AtRadii
from smoothcert.plans.base import ByRule, Plan
from smoothcert.plans.endings import Forward, TooManyStates, simulated_endings
from smoothcert.plans.exact import Exact
from smoothcert.plans.machine import check_choice
from smoothcert.plans.pilot import PilotPlan
from smoothcert.plans.price import Price
from smoothcert.statistics.boundaries import crossing_probability
from smoothcert.statistics.bounds import (
    Array,
    Counts,
    critical_count,
    interval,
    lower_bound,
    pmf,
    tail,
)
from smoothcert.statistics.metrics import evenly

# Outcomes of the pilot rarer than this share of alpha are left out of the sum and added to the failure instead.
_NEGLIGIBLE = 1e-15
# How many pairs of (p, outcome of the pilot) are held in memory at once, and up to how many a plan is small: about a
# second's work.
_AT_ONCE = 1_000_000
_SMALL = 3_000_000
# Rounding in sums of thousands of terms; far below anything that decides `valid`.
_ROUNDING = 1e-9
# Where we look for the largest failure of a plan without a closed form. If there are few values of p, we try all of
# them. Otherwise we try some in every cell of the grid, and then more in the cells with the largest failures.
_GRID = np.concatenate([np.linspace(0.5, 0.99, 50), 1 - np.geomspace(8e-3, 1e-5, 12), [1.0]])
_MOST_VALUES = 3_000
_VALUES_PER_CELL = 8
_VALUES_PER_BEST_CELL = 300
_BEST_CELLS = 5
# The failure of a sound plan grows with p up to 1/2. A plan of another shape may fail more often further down.
_BELOW_HALF = np.linspace(0, 0.5, 26)
# A simulation looks for the worst p among candidates with few repetitions, and measures it with many fresh ones.
_CANDIDATES = 100
_SEARCH_REPETITIONS = 3_000
_REPETITIONS = 100_000
_CONFIDENCE = 0.99


class Simulated(NamedTuple):
    """How well a simulation knows the failure at the worst p that it found."""

    repetitions: int
    """Simulated inputs."""
    confidence: float
    """The probability that the failure lies between the two limits."""
    at_least: float
    at_most: float
    rivals: int
    """How many other classes share the other votes at the worst p. A plan that remembers is tried with 1 and 3."""


@dataclass(frozen=True)
class Coverage:
    """What a plan really guarantees."""

    alpha: float
    """The promise."""
    worst_failure: float
    """The largest failure probability over p, for a class fixed in advance."""
    worst_p: float
    """The p where it occurs."""
    tie_failure: float
    """The failure probability for two tied classes (p = 1/2 each), where the pilot chooses the class."""
    pilot_counts: bool = False
    """Whether the votes that chose the class count for its bound. Classes that are nearly tied can then fail more often
    than tied ones, and no theorem limits it."""
    exact: bool = True
    """False where the figures are upper bounds that a theorem gives, not exact values."""
    theorem: str = ""
    """The theorem that gives them, as in "union bound"."""
    drawing_error: float = 0.0
    """By how much a probability of the drawn noise can differ from that of the noise in the theorem. Every proved bound
    is lowered by it before it gives a radius, so it does not add to the failure."""
    searched: bool = False
    """Whether the worst p is only the worst one that a search found, as for a plan without a closed form."""
    simulated: Simulated | None = None
    """Where the states of the plan were too many to be enumerated: the figures are shares of simulated inputs."""

    def plain(self) -> dict[str, Any]:
        """The figures as a dictionary for JSON."""
        simulated = {} if self.simulated is None else {"simulated": self.simulated._asdict()}
        figures = {name: value for name, value in vars(self).items() if name != "simulated"}
        return figures | simulated | {"valid": self.valid}

    @property
    def valid(self) -> bool:
        """Whether the plan keeps its alpha. If `searched`, this holds for every p that was tried and is no proof.

        A simulation has to show that the failure is at most alpha.
        """
        failure = (
            self.simulated.at_most if self.simulated else max(self.worst_failure, self.tie_failure)
        )
        return not self.pilot_counts and failure <= self.alpha * (1 + _ROUNDING)

    @property
    def proved(self) -> bool:
        """Whether it is proved that the plan keeps its alpha. A search that finds nothing is no proof."""
        return self.valid and not self.searched

    @property
    def exceeds(self) -> bool:
        """Whether the plan is known to fail more often than alpha says."""
        failure = (
            self.simulated.at_least if self.simulated else max(self.worst_failure, self.tie_failure)
        )
        return failure > self.alpha * (1 + _ROUNDING)

    @property
    def verdict(self) -> str:
        """Whether the plan keeps its alpha, in a word or two."""
        if self.valid:
            return "yes" if self.proved else "not disproved"
        return "no" if self.exceeds else "not proved"

    @property
    def sentence(self) -> str:
        """The verdict in a sentence."""
        alpha = f"its alpha of {self.alpha:g}"
        unknown = f"Nothing proves that the plan keeps {alpha}: the pilot that chooses the class also counts."
        if self.simulated:
            unknown = f"The simulation does not tell whether the plan keeps {alpha}."
        return {
            "yes": f"The plan keeps {alpha}.",
            "not disproved": f"The search found no p at which the plan exceeds {alpha}. This is not a proof.",
            "no": f"The plan does NOT keep {alpha}.",
            "not proved": unknown,
        }[self.verdict]


@ByRule
def closed_form(plan: Plan, noise: Noise) -> Coverage | None:
    """How often a plan fails, where a formula or a theorem says it; None lets `coverage` compute it.

    `closed_form.register` adds a kind of plan. A subclass that overrides a method of it has no closed form.
    """
    return None


@closed_form.register(PilotPlan)
def _(plan: PilotPlan, noise: Noise) -> Coverage:
    alpha = plan.alpha
    if (
        plan.uses_rivals
    ):  # the union bound: alpha / 2 for the class, alpha / 2 for all groups of rivals
        return Coverage(alpha, alpha, 0.5, alpha, theorem="union bound")
    return Coverage(alpha, *worst_case(plan, noise), tie_failure(plan, noise))


def failure_probability(plan: PilotPlan, noise: Noise, p: ArrayLike) -> Array:
    """failure(p) for a class fixed in advance whose true probability is p.

    Below 1/2 any certificate is wrong, so the bound has to exceed max(p, 1/2).
    """
    p = np.atleast_1d(_check.probabilities("p", p))
    parts = np.array_split(p, 1 + len(p) * plan.pilot // _AT_ONCE)
    return np.concatenate([_summed(plan, noise, part) for part in parts])


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
    found = _highest(
        plan, noise, _break_point(plan, noise, np.rint(grid * plan.pilot).astype(int), grid)
    )
    for width, candidates in ((0.02, 5), (4e-3, 3), (4e-4, 2)):
        apart: list[float] = []
        for _, p in found:
            if len(apart) < candidates and all(
                abs(p - other) > width * (1 - other) for other in apart
            ):
                apart.append(p)
        for p in apart:
            found += _highest(
                plan, noise, _break_points_around(plan, noise, p, 2 * width * (1 - p))
            )[:8]
        found.sort(reverse=True)
    return found[0]


def _break_points_around(plan: PilotPlan, noise: Noise, p: float, width: float) -> Array:
    spread = np.sqrt(p * (1 - p) * plan.pilot)
    likely = np.clip(
        np.rint(p * plan.pilot + spread * np.linspace(-2, 2, 5)), 0, plan.pilot
    ).astype(int)
    nearby = np.linspace(max(p - width, 0.5), p + width, 25)
    a0, where = np.meshgrid(likely, nearby)
    return _break_point(plan, noise, a0.ravel(), where.ravel())


def _highest(plan: PilotPlan, noise: Noise, p: Array) -> list[tuple[float, float]]:
    """(failure, p) for these p, the largest failure first."""
    p = np.unique(p)
    return sorted(
        zip(failure_probability(plan, noise, p).tolist(), p.tolist(), strict=True), reverse=True
    )


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


def _summed(plan: PilotPlan, noise: Noise, p: Array) -> Array:
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


@closed_form.register(Price)
def _(plan: Price, noise: Noise) -> Coverage:
    theorem = "union bound" if plan.uses_rivals else "stopping on bad news alone"
    return Coverage(plan.alpha, plan.alpha, 0.5, plan.alpha, theorem=theorem)


@closed_form.register(AtRadii)
def _(plan: AtRadii, noise: Noise) -> Coverage:
    alpha = plan.alpha
    if (
        plan.remembers
    ):  # the wealth of the first false claim reaches 1 / alpha with a probability of at most alpha
        return Coverage(alpha, alpha, 0.5, alpha, theorem="Ville's inequality")
    tables = plan.tables(noise)
    worst = int(np.argmax(tables.spent))
    tied = crossing_probability(tables.needed[0], tables.looks, 0.5)
    return Coverage(alpha, float(tables.spent[worst]), float(tables.thresholds[worst]), tied)


@closed_form.register(Exact)
def _(plan: Exact, noise: Noise) -> Coverage:
    return Coverage(0.0, 0.0, 0.5, 0.0)


def caveat(plan: Plan) -> str | None:
    """A sentence about what the plan does not guarantee; None if a theorem says that it keeps its alpha."""
    plan = plan.primary
    if plan.pilot_counts:
        return (
            f"the pilot is counted again, as published: a certificate can be wrong more often than alpha "
            f"({plan.alpha:g}) says; `coverage` computes how often"
        )
    if (
        plan.samples and closed_form.known_for(plan) is None
    ):  # a plan without samples certifies nothing
        return f"nothing proves that this plan keeps its alpha ({plan.alpha:g}); `coverage` looks for where it fails"
    return None


def exact_coverage(plan: Plan, noise: Noise) -> Coverage:
    """The worst-case failure of a plan, exact unless `Coverage` says otherwise.

    Args:
        plan: The plan. Of a combined plan, the one that certifies.
        noise: The smoothing noise.

    >>> from smoothcert import Gaussian, InputSpecific
    >>> plan = InputSpecific(100_000, decline=0.05, kind="relative", pilot_use="reuse")
    >>> found = exact_coverage(plan, Gaussian(0.5))
    >>> round(found.worst_failure / 0.001, 3), round(found.worst_p, 2), found.valid
    (1.045, 0.6, False)
    """
    plan = plan.primary.for_noise(noise)
    check_choice(plan, noise)
    known = closed_form(plan, noise)
    if known is None and plan.uses_rivals:
        raise InvalidInput(
            f"{plan} also bounds other classes, and its states tell only the votes for one class, so nothing is known "
            "about its failure: register what a theorem says with smoothcert.plans.coverage.closed_form"
        )
    found = known or _computed(plan, noise)
    return replace(
        found,
        pilot_counts=plan.pilot_counts,
        exact=not found.theorem and found.simulated is None,
        drawing_error=noise.drawing_error,
        searched=known is None,
    )


def _computed(plan: Plan, noise: Noise) -> Coverage:
    try:
        forward = Forward(plan, noise)
        # Given the pilot, the class is fixed; a pilot that does not count tells nothing about later votes.
        return Coverage(plan.alpha, *_search(forward), _failure(forward, 0.5))
    except TooManyStates:
        return _simulate(plan, noise)


def _simulate(plan: Plan, noise: Noise) -> Coverage:
    """The failure of a plan at the worst p that a simulation finds."""
    rng = np.random.default_rng(0)
    # A memory may keep the votes that chose the class, so the pilot has to choose it here, too.
    by_pilot = bool(plan.remembers and plan.pilot and not plan.known_labels)

    def wrong(each: Array, repetitions: int) -> Any:
        """Whether claims are wrong; below 1/2, any certificate is."""
        ended = simulated_endings(
            plan, noise, each, repetitions=repetitions, rng=rng, by_pilot=by_pilot
        )
        return ended.needed > np.maximum(ended.p, 0.5)

    seen = simulated_endings(
        plan, noise, _GRID, repetitions=_SEARCH_REPETITIONS // 10, rng=rng
    ).needed
    claims = np.unique(seen[seen > 0.5])
    near_ties = np.linspace(0.5, 0.6, 11 if by_pilot else 0)
    p = np.concatenate([_spread(claims * (1 - 1e-12), _CANDIDATES), _BELOW_HALF[::5], near_ties])
    each = np.stack([p, 1 - p, 0 * p, 0 * p], axis=-1)
    if plan.remembers:  # it may look at other classes one by one
        each = np.concatenate([each, np.stack([p, *3 * [(1 - p) / 3]], axis=-1)])
    worst = each[np.argmax(wrong(each, _SEARCH_REPETITIONS).mean(axis=1))]
    # Fresh votes, because the worst of many simulated shares is too large.
    failures = wrong(np.stack([worst, [0.5, 0.5, 0, 0]]), _REPETITIONS).sum(axis=1)
    low, high = interval(failures, _REPETITIONS, alpha=(1 - _CONFIDENCE) / 2)  # for both together
    failed, tied = (failures / _REPETITIONS).tolist()
    rivals = int(np.count_nonzero(worst[1:]))
    known = Simulated(_REPETITIONS, _CONFIDENCE, float(low.max()), float(high.max()), rivals)
    return Coverage(plan.alpha, failed, float(worst[0]), tied, simulated=known)


def _search(forward: Forward) -> tuple[float, float]:
    """The largest failure over p and where it is, for any plan.

    The failure is a saw: it climbs with p and drops where p passes a value that the bound can take. So the worst p lies
    just below such a value. Small plans have few, and all are tried. Of a plan with very many states, the search may
    miss the very worst tooth. Nobody proves that the failure of just any plan has this shape.
    """
    cells = [_attainable(forward, low, high) for low, high in pairwise(_GRID.tolist())]
    few = _MOST_VALUES if sum(map(len, cells)) <= _MOST_VALUES else _VALUES_PER_CELL
    found = [_worst(forward, _spread(cell, few)) for cell in cells]
    if few != _MOST_VALUES:
        best = sorted(range(len(cells)), key=lambda i: found[i], reverse=True)[:_BEST_CELLS]
        found += [_worst(forward, _spread(cells[i], _VALUES_PER_BEST_CELL)) for i in best]
    return max([*found, _worst(forward, _BELOW_HALF)])


def _worst(forward: Forward, p: Array) -> tuple[float, float]:
    return max(((_failure(forward, q), q) for q in p.tolist()), default=(0.0, 0.5))


def _spread(values: Array, most: int) -> Array:
    """At most this many of the values, evenly spread."""
    return np.asarray(values[evenly(len(values), most)])


def _attainable(forward: Forward, low: float, high: float) -> Array:
    """Just below the probabilities between `low` and `high` that a claim can need, in increasing order."""
    seen: list[Array] = []
    forward.ending(low, limit=np.inf, seen=seen)
    values = np.unique(np.concatenate([np.ravel(part) for part in seen])) if seen else np.empty(0)
    return np.asarray(values[(values > low) & (values <= high)] * (1 - 1e-12))


def _failure(forward: Forward, p: float) -> float:
    """The probability of a wrong certificate: one that claims more than p, or any certificate below 1/2."""
    return forward.ending(p, limit=max(p, 0.5)).failed

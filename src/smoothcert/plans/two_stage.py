"""Plans of two stages: a pilot that chooses the class and plans, then one more draw that gives the
bound.

Given the pilot, class and size of the second draw are fixed, so Clopper-Pearson holds exactly on
fresh samples. In the published variant the pilot counts again. In both, the failure at p is a
finite sum, because the a0 votes of the pilot fix the number of counted samples n(a0):

    failure(p) = sum over a0 of  P(a0 | p) * P(L(votes, n(a0), alpha) > max(p, 1/2) | a0)

With the runner-up, L is computed at alpha / 2, and so is the upper bound of each group of other
classes. The largest of these bounds is true if that of the strongest rival is, and the strongest
rival is one fixed class. So this one bound and L have to hold (union bound), and nothing is divided
over the groups. For the top k, the bounds of the k strongest rivals have to hold
(`statistics.top_k`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from smoothcert import _check
from smoothcert._registry import LATER, formerly
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers
from smoothcert.plans.base import Plan, Proof, settle
from smoothcert.plans.coverage import Coverage
from smoothcert.plans.votes import RIVALS, Look, Tally
from smoothcert.statistics import bounds
from smoothcert.statistics.bounds import (
    Array,
    Counts,
    critical_count,
    lower_bound,
    pmf,
    summed_tail,
    tail,
)
from smoothcert.statistics.sample_map import check_ceiling
from smoothcert.statistics.top_k import top_k_radius

PilotUse = Literal["fresh", "reuse"]
Bound = Literal["binary", "runner-up"]

_PILOT_SHARE = 100
"""By default, the pilot has the ceiling divided by this."""
_SMALLEST_PILOT = 100

_VERSION = 2
"""Of the runner-up bound."""

# Outcomes of the pilot rarer than this share of alpha are left out of the sum and added to the
# failure instead.
_NEGLIGIBLE = 1e-15
# How many pairs of (p, outcome of the pilot) are held in memory at once.
_AT_ONCE = 1_000_000
# Up to how many such pairs a plan is small, so that every break point is tried: about a second's
# work.
_SMALL = 3_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class TwoStagePlan(Plan):
    """The settings of plans with a pilot that plans, and one more draw.

    `Price` goes on with further looks.

    Args:
        samples: The ceiling: the most samples that a bound rests on.
        pilot: Samples of the first look. 0 stands for the default: 1% of the ceiling, at least 100;
            none where the class is known and nothing has to be planned.
        alpha: The largest probability that a certificate is wrong.
        pilot_use: Whether the pilot only plans ("fresh") or counts again ("reuse"), as published;
            `coverage` says what that costs.
        bound: "binary" bounds the class alone, as papers do. "runner-up" also bounds the other
            classes, with half of alpha for the class and half for the others, and certifies a class
            that leads without a majority.
        known_labels: Whether the class is the input's label instead of the pilot's choice.
        version: The version of the runner-up bound, for the record. Version 1 divides alpha / 2
            over the groups.
        top: Certify that the class stays among so many most probable ones. For more than one, half
            of alpha goes to the class and half to the others, and `bound` is not used.
    """

    samples: int = field(default=100_000, kw_only=False)
    pilot: int = 0
    alpha: float = 0.001
    pilot_use: PilotUse = "fresh"
    bound: Bound = "binary"
    known_labels: bool = False
    version: int = field(default=_VERSION, metadata=formerly(1))
    top: int = field(default=1, metadata=LATER)
    plans_ahead: ClassVar[bool] = True
    """Whether the size of the second draw depends on the pilot."""
    default_pilot: ClassVar[int | None] = None
    """Samples of the pilot by default; None for 1% of the ceiling, at least 100."""

    def __post_init__(self) -> None:
        samples = check_ceiling(self.samples, self.alpha)
        _check.one_of("pilot_use", self.pilot_use, ("fresh", "reuse"))
        _check.one_of("bound", self.bound, ("binary", "runner-up"))
        if self.bound == "runner-up" and self.pilot_use == "reuse":
            raise InvalidInput(
                "runner-up-needs-fresh",
                'bound "runner-up" needs fresh samples: pilot_use must be "fresh", got "reuse"',
            )
        top = _check.whole("top", self.top, least=1)
        if top > 1 and self.pilot_use == "reuse":
            raise InvalidInput(
                "top-needs-fresh",
                'the top {top} needs fresh samples: pilot_use must be "fresh", got "reuse"',
                top=top,
            )
        _check.one_of("version", self.version, (1, _VERSION))
        settle(
            self,
            samples=samples,
            pilot=self._settled_pilot(samples),
            alpha=float(self.alpha),
            top=top,
            # The bound of the class alone is the same in both versions.
            version=self.version if self.bound == "runner-up" else 1,
        )

    def _settled_pilot(self, samples: int) -> int:
        pilot = _check.whole("pilot", self.pilot)
        if pilot > samples:
            raise InvalidInput(
                "pilot-above-samples",
                "pilot must not exceed samples ({samples}), got {pilot}",
                samples=samples,
                pilot=pilot,
            )
        if pilot and not self._needs_pilot and self.bound == "binary":
            raise InvalidInput(
                "needless-pilot",
                "with known labels, {plan} sampling has no pilot, got `pilot={pilot}`",
                plan=self.name,
                pilot=pilot,
            )
        if pilot or not self._needs_pilot:
            return pilot
        default = self.default_pilot or max(samples // _PILOT_SHARE, _SMALLEST_PILOT)
        return min(default, samples)

    @property
    def _needs_pilot(self) -> bool:
        """Whether a pilot has to plan, or to choose the class or the groups of other classes."""
        groups_rivals = self.bound == "runner-up" and self.top == 1
        return self.plans_ahead or groups_rivals or not self.known_labels

    def continuing(self, recorded: Plan) -> Plan:
        """A recorded run goes on with its version of the bound."""
        if type(recorded) is not type(self):
            return self
        as_then = replace(self, version=recorded.version)
        return as_then if as_then == recorded else self

    def __str__(self) -> str:
        return self._in_words()

    def _in_words(self, *details: str) -> str:
        words = [f"{self.name} {self.samples:,}", *details, *self._claim_in_words()]
        if self.pilot_use == "reuse":
            words.append("pilot reused")
        return ", ".join(words)

    @property
    def caveat(self) -> str | None:
        if self.pilot_use == "fresh":
            return None
        return (
            "the pilot is counted again, as published: a certificate can be wrong more often than "
            f"alpha ({self.alpha:g}) says; `coverage` computes how often"
        )

    @property
    def most_samples(self) -> int:
        return self.samples + self.pilot - self.reused

    @property
    def reused(self) -> int:
        """How many samples of the pilot count for the bound."""
        return self.pilot if self.pilot_use == "reuse" else 0

    @property
    def level(self) -> float:
        """The alpha that the lower bound is computed at."""
        return self.alpha / 2 if self.bounds_others else self.alpha

    @property
    def bounds_others(self) -> bool:
        """Whether the proof rests on bounds on other classes, too."""
        return self.bound == "runner-up" or self.top > 1

    @property
    def level_of_rivals(self) -> float:
        """The alpha that the upper bound of each rival, or group of rivals, is computed at."""
        if self.top > 1:
            return self.alpha / (2 * self.top)
        return self.alpha / (2 * (RIVALS + 1) if self.version == 1 else 2)

    @abstractmethod
    def after_pilot(self, count: ArrayLike, noise: Noise, rivals: Counts | None = None) -> Counts:
        """How many samples are drawn after the pilot.

        Args:
            count: Votes for the class in the pilot (`a0`).
            noise: The smoothing noise.
            rivals: Votes for the groups of other classes, where the plan bounds them.
        """

    def init(self, noise: Noise, chosen: Numbers = None) -> Tally:
        tally = Tally.begin(self, noise, chosen, rivals=self.bound == "runner-up")
        return tally._replace(pilot=self.pilot - self.reused)

    def request(self, state: Tally) -> Numbers:
        if state.look == 0:
            return self.pilot or self.samples
        if state.without_class or not self.pilot or state.look > 1:
            return 0
        if self.reused:
            return self.after_pilot(state.count, state.noise)[()]
        rivals = None if self.bound == "binary" else state.in_groups(state.first)
        return self.after_pilot(state.pilot_count, state.noise, rivals)[()]

    def prove(self, state: Tally) -> Proof:
        lower = self._lower(state)
        if self.top > 1:
            return self._prove_top(state, lower)
        if self.bound == "binary" or not np.any(state.drawn):
            return Proof.from_bounds(state, lower)
        groups = self._upper_of_each(state, state.in_groups(state.every)).max(axis=-1)
        upper = np.minimum(groups, bounds.one_minus_up(lower))
        upper = np.where(np.asarray(state.drawn) > 0, upper, 1.0)[()]  # no samples bound nothing
        return Proof.from_bounds(state, lower, upper)

    def _lower(self, state: Tally) -> Numbers:
        """L at the end; votes prove nothing while more are wanted."""
        ended = (np.asarray(self.request(state)) == 0) & (np.asarray(state.drawn) > 0)
        if not np.any(ended):
            return np.zeros(ended.shape)[()]
        lower = lower_bound(state.count, np.maximum(state.drawn, 1), alpha=self.level)
        return np.where(ended, lower, 0.0)[()]

    def _prove_top(self, state: Tally, lower: Numbers) -> Proof:
        """The radius within which the class stays among the `top` most probable ones."""
        if state.chosen is None or not np.any(state.drawn):
            return Proof()
        votes = state.in_array(state.every).largest_beside(state.chosen, self.top)
        rivals = self._upper_of_each(state, votes)
        radius = top_k_radius(state.noise, lower, rivals)[()]
        return Proof(state.chosen, radius, lower, count=state.count, counted=state.drawn)

    def _upper_of_each(self, state: Tally, votes: Counts) -> Numbers:
        """U of each rival, from its votes (..., rivals)."""
        samples = np.maximum(state.drawn, 1)[..., None]
        return bounds.upper_bound(votes, samples, alpha=self.level_of_rivals)


def coverage(plan: TwoStagePlan, noise: Noise) -> Coverage:
    """The exact failure of a plan whose second draw depends on the pilot alone."""
    if plan.bounds_others:
        return Coverage.by_theorem("union bound", plan.alpha)
    failure, p = worst_case(plan, noise)
    tied = tie_failure(plan, noise)
    return Coverage(plan.alpha, failure, p, tied, pilot_counts=bool(plan.reused))


def p_value(
    plan: TwoStagePlan,
    looks: Sequence[Look],
    radius: float,
    noise: Noise,
    label: int | None = None,
) -> float | None:
    """P(at least these counted votes) if the class had only the probability that the radius needs.

    Where the pilot counts again, this leaves out that it also chose the class.
    """
    if plan.bounds_others:
        return None
    chosen = label if plan.known_labels else looks[0].top
    counted = looks[1:] if plan.pilot > plan.reused else looks
    drawn = sum(look.samples for look in counted)
    if not drawn:
        return 1.0
    votes = sum(look.of(chosen) for look in counted)
    return summed_tail(votes, drawn, min(float(noise.probability(radius)), 1))


def expected_samples(plan: TwoStagePlan, p: Numbers, noise: Noise) -> Numbers:
    """The pilot, and the second draw averaged over all outcomes of the pilot."""
    if not plan.pilot:
        return np.full(len(p), float(plan.samples))
    votes = np.arange(plan.pilot + 1)
    return plan.pilot + pmf(votes, plan.pilot, p[:, None]) @ plan.after_pilot(votes, noise)


def basis(plan: TwoStagePlan) -> tuple[Any, ...]:
    settings = (plan.pilot, plan.pilot_use, plan.alpha, plan.bound, plan.known_labels)
    return (*settings, plan.version, plan.top)


def failure_probability(plan: TwoStagePlan, noise: Noise, p: ArrayLike) -> Array:
    """failure(p) for a class fixed in advance whose true probability is p.

    Below 1/2 any certificate is wrong, so the bound has to exceed max(p, 1/2).
    """
    p = np.atleast_1d(_check.probabilities("p", p))
    parts = np.array_split(p, 1 + len(p) * plan.pilot // _AT_ONCE)
    return np.concatenate([_summed(plan, noise, part) for part in parts])


def tie_failure(plan: TwoStagePlan, noise: Noise) -> float:
    """Two classes at p = 1/2 each: the pilot picks one, or the label does, and any certificate for
    it is wrong.
    """
    if plan.known_labels:
        return float(failure_probability(plan, noise, 0.5)[0])
    first = np.arange(plan.pilot + 1)
    top = np.maximum(first, plan.pilot - first)
    failed = _failure_after_pilot(plan, noise, top, np.full(len(top), 0.5))
    return float(np.sum(pmf(first, plan.pilot, 0.5) * failed))


def worst_case(plan: TwoStagePlan, noise: Noise) -> tuple[float, float]:
    """The largest failure(p) over p and where it is.

    failure(p) is a saw: it climbs with p and drops where p passes a value that the bound can take,
    L(t, n). So the worst p lies just below such a break point. Small plans have few, and all are
    tried. A plan of 100,000 samples has millions: they are searched next to a grid of p that is
    refined towards 1, then, ever closer, around the best candidates for the sample sizes that are
    likely there. This is a lower bound: it may miss the very worst tooth. p below 1/2 cannot be
    worse than 1/2.
    """
    sizes = np.unique(plan.reused + plan.after_pilot(np.arange(plan.pilot + 1), noise))
    sizes = sizes[sizes > 0]
    if not len(sizes):
        return 0.0, 0.5
    if sizes.sum() * max(plan.pilot, 1) <= _SMALL:
        every = [lower_bound(np.arange(n + 1), n, alpha=plan.alpha) for n in sizes]
        return _highest(plan, noise, _just_below(np.concatenate(every)))[0]
    grid = np.concatenate([np.linspace(0.5, 0.999, 200), 1 - np.geomspace(1e-3, 1e-7, 40)])
    pilots = np.rint(grid * plan.pilot).astype(int)
    highest = _highest(plan, noise, _break_point(plan, noise, pilots, grid))
    for width, candidates in ((0.02, 5), (4e-3, 3), (4e-4, 2)):
        for p in _apart([p for _, p in highest], width, candidates):
            nearby = _break_points_around(plan, noise, p, 2 * width * (1 - p))
            highest += _highest(plan, noise, nearby)[:8]
        highest.sort(reverse=True)
    return highest[0]


def _apart(values: list[float], width: float, most: int) -> list[float]:
    """The first values that are not close to one another."""
    apart: list[float] = []
    for p in values:
        if len(apart) < most and all(abs(p - other) > width * (1 - other) for other in apart):
            apart.append(p)
    return apart


def _break_points_around(plan: TwoStagePlan, noise: Noise, p: float, width: float) -> Array:
    spread = np.sqrt(p * (1 - p) * plan.pilot)
    likely = np.rint(p * plan.pilot + spread * np.linspace(-2, 2, 5))
    pilots = np.clip(likely, 0, plan.pilot).astype(int)
    nearby = np.linspace(max(p - width, 0.5), p + width, 25)
    a0, where = np.meshgrid(pilots, nearby)
    return _break_point(plan, noise, a0.ravel(), where.ravel())


def _highest(plan: TwoStagePlan, noise: Noise, p: Array) -> list[tuple[float, float]]:
    """(failure, p) for these p, the largest failure first."""
    p = np.unique(p)
    failures = failure_probability(plan, noise, p).tolist()
    return sorted(zip(failures, p.tolist(), strict=True), reverse=True)


def _break_point(plan: TwoStagePlan, noise: Noise, a0: Counts, p: Array) -> Array:
    """The first value above p that the bound can take after a0 votes in the pilot, or just below
    it.
    """
    n = plan.reused + plan.after_pilot(a0, noise)
    drawn = n > 0
    n = n[drawn]
    votes = critical_count(p[drawn], n, alpha=plan.alpha).clip(max=n)
    return _just_below(lower_bound(votes, n, alpha=plan.alpha))


def _just_below(bound: Array) -> Array:
    """A number just below each bound; 1/2 stands for all that cannot certify."""
    return np.maximum(bound * (1 - 1e-12), 0.5)


def _summed(plan: TwoStagePlan, noise: Noise, p: Array) -> Array:
    share = pmf(np.arange(plan.pilot + 1), plan.pilot, p[:, None])
    of, a0 = np.nonzero(share > _NEGLIGIBLE * plan.alpha)
    share[of, a0] *= _failure_after_pilot(plan, noise, a0, p[of])
    return np.asarray(share.sum(axis=1))


def _failure_after_pilot(plan: TwoStagePlan, noise: Noise, a0: Counts, p: Array) -> Array:
    """P(the bound exceeds max(p, 1/2)) given a0 votes for the class in the pilot."""
    drawn = plan.after_pilot(a0, noise)
    critical = critical_count(np.maximum(p, 0.5), plan.reused + drawn, alpha=plan.alpha)
    votes_of_pilot = a0 if plan.reused else 0
    return tail(critical - votes_of_pilot, drawn, p)

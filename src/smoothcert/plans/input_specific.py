"""Input-specific sampling (ISS, the paper's Algorithm 2): each input gets what the sample map says.

The pilot chooses the class and plans. On the samples after it, P(L(votes, n, alpha) > p) <= alpha
for every p (Clopper and Pearson), because class and n depend on the pilot alone. In the published
variant the pilot counts again, and this argument fails. `two_stage` has what both variants share
with fixed sampling: the exact failure, the second route, and the samples on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers
from smoothcert.plans import two_stage
from smoothcert.plans.base import Plan, Rule, check_random, settle
from smoothcert.plans.expected import Expected
from smoothcert.plans.two_stage import TwoStagePlan
from smoothcert.statistics.bounds import (
    Counts,
    interval,
    lower_bound,
    one_minus_up,
    smallest,
    upper_bound,
)
from smoothcert.statistics.sample_map import (
    Kind,
    Reference,
    SampleMap,
    after_decline,
    check_decline,
)

Grid = Literal["exact", "paper"]
_POINTS_BETWEEN = 17


@dataclass(frozen=True, kw_only=True, slots=True)
class InputSpecific(TwoStagePlan):
    """Spend what keeps the radius within `decline` of a reference radius.

    The pilot gives an interval for p, and the input gets the largest value of the sample map on it.
    With the runner-up bound, the pilot also gives an interval for the strongest other class, and
    the map is evaluated from where both are least favourable to where both are most favourable.

    Args:
        decline: How much of the reference radius may be lost.
        kind: Whether the decline is a radius ("absolute") or a share of the reference ("relative").
        reference: The radius that `samples` would prove ("ceiling"), or the radius of p itself
            ("ideal").
        grid: "exact" evaluates the map itself, "paper" looks it up on a grid of step 0.001 as
            published, which costs some percent more. None goes with `pilot_use`: exact with
            "fresh", paper with "reuse".

    The other arguments are those of `TwoStagePlan`.

    >>> from smoothcert import Gaussian
    >>> plan = InputSpecific(100_000, decline=0.05)
    >>> plan.after_pilot([600, 900, 1000], Gaussian(0.5)).tolist()
    [1267, 2421, 67040]
    """

    decline: float = 0.05
    kind: Kind = "absolute"
    grid: Grid | None = None
    reference: Reference = "ceiling"
    name: ClassVar[str] = "input-specific"

    # Named for each plan, because no plan inherits what was derived for another rule (see `Plan`).
    coverage = two_stage.coverage
    expected_samples = two_stage.expected_samples
    p_value = two_stage.p_value
    basis = two_stage.basis

    def __post_init__(self) -> None:
        TwoStagePlan.__post_init__(self)
        _check.one_of("reference", self.reference, ("ceiling", "ideal"))
        grid = self.grid
        if grid is None:
            grid = "paper" if self.pilot_use == "reuse" else "exact"
        _check.one_of("grid", grid, ("exact", "paper"))
        if self.bound == "runner-up" and grid == "paper":
            raise InvalidInput(
                "grid-without-runner-up",
                'the paper\'s grid has no runner-up: grid must be "exact" with bound "runner-up"',
            )
        settle(self, decline=check_decline(self.decline, self.kind), grid=grid)

    def __str__(self) -> str:
        decline = f"{self.decline:g}" if self.kind == "absolute" else f"{100 * self.decline:g}%"
        of_ideal = " of the ideal radius" if self.reference == "ideal" else ""
        return self._in_words(f"decline {decline}{of_ideal}")

    def after_pilot(self, count: ArrayLike, noise: Noise, rivals: Counts | None = None) -> Counts:
        if rivals is not None:
            count, rival = np.broadcast_arrays(count, np.asarray(rivals).max(axis=-1))
            if count.ndim == 0:
                return _planned_for_votes(self, noise, int(count), int(rival))
            votes, where = np.unique(
                np.stack((count.ravel(), rival.ravel())), axis=1, return_inverse=True
            )
            return _planned_with_rivals(self, noise, *votes)[where].reshape(count.shape)
        planned = _planned_samples(self, noise)[np.asarray(count)]
        # The pilot was spent already: a plan below it does not shrink what was drawn.
        return np.asarray(np.maximum(planned - self.reused, 0))

    def sample_map(self, noise: Noise) -> SampleMap:
        """The sample map that this plan follows.

        With the runner-up bound it is the map for the least favourable rival, one class with all
        the other votes.

        Args:
            noise: The smoothing noise.
        """
        return SampleMap(noise, self.samples, self.decline, self.kind, self.level, self.reference)

    def for_noise(self, noise: Noise) -> Self:
        check_random(noise)
        self.sample_map(noise)
        if self.grid == "paper" and not noise.map_peaks_at_ends:
            raise InvalidInput(
                "grid-misses-peaks",
                "the paper's grid can miss peaks of the sample map of {noise}: grid must be "
                '"exact"',
                noise=noise,
            )
        return self

    def expected(self, p: ArrayLike, noise: Noise) -> Expected:
        p = np.asarray(p, float)
        psi = self.sample_map(noise)
        needed = psi(p)
        kept = np.where(needed > 0, psi.radius(np.maximum(needed, 1), p), 0)
        if self.reference == "ideal":
            title, full = "ideal radius", noise.radius(p)
        else:
            title, full = "radius at ceiling", psi.radius(self.samples, p)
        return Expected(
            needed,
            {"radius": np.maximum(kept, 0), title: np.maximum(full, 0)},
            pilot_not_counted=self.pilot - self.reused,
        )


@lru_cache(maxsize=32)
def _planned_samples(plan: InputSpecific, noise: Noise) -> Counts:
    """k-hat for every possible count of the pilot, 0 ... pilot."""
    psi = plan.sample_map(noise)
    # These intervals only plan, so they spend nothing of alpha.
    low, high = interval(np.arange(plan.pilot + 1), plan.pilot, alpha=plan.alpha)
    if plan.grid == "paper":
        return np.asarray(psi.on_paper_grid(np.stack([low, high])).max(axis=0))
    return psi.largest(low, high)


@lru_cache(maxsize=65_536)
def _planned_for_votes(plan: InputSpecific, noise: Noise, count: int, rival: int) -> Counts:
    """The same for the votes of one input.

    Many inputs have the same ones, most of all those that are sure.
    """
    return _planned_with_rivals(plan, noise, np.asarray(count), np.asarray(rival))


def _planned_with_rivals(
    plan: InputSpecific, noise: Noise, count: Numbers, rival: Numbers
) -> Counts:
    """k-hat from the pilot's votes for the class and for its strongest rival: the larger of both
    ends.
    """
    p_low, p_high = interval(count, plan.pilot, alpha=plan.alpha)
    q_low, q_high = interval(rival, plan.pilot, alpha=plan.alpha)
    q_low = np.minimum(q_low, one_minus_up(p_high))
    # Where the map may peak between the ends, we also look at points between them.
    shares = np.linspace(0, 1, 2 if noise.map_peaks_at_ends else _POINTS_BETWEEN)
    shares = shares.reshape(-1, *[1] * p_low.ndim)
    p = (1 - shares) * p_low + shares * p_high
    q = (1 - shares) * q_high + shares * q_low
    needed = _needed_with_rivals(plan, noise, p, np.minimum(q, one_minus_up(p)))
    return np.asarray(needed.max(axis=0), np.int64)


def _needed_with_rivals(plan: InputSpecific, noise: Noise, p: Numbers, q: Numbers) -> Counts:
    """The sample map of two probabilities: the class has p, its strongest rival q."""

    def radius(k: Numbers) -> Numbers:
        low = lower_bound(p * k, k, alpha=plan.level)
        high = upper_bound(np.minimum(q * k, k), k, alpha=plan.level_of_rivals)
        return noise.radius_between(low, np.minimum(high, one_minus_up(low)))

    p, q = np.broadcast_arrays(p, q)
    full = (
        noise.radius_between(p, q)
        if plan.reference == "ideal"
        else radius(np.full(p.shape, float(plan.samples)))
    )
    required = after_decline(full, plan.decline, plan.kind)
    needed = smallest(lambda k: radius(np.maximum(k, 1.0)) >= required, 0, plan.samples)
    return np.where(required > 0, needed, 0)


def plan_or_default(plan: Plan | None) -> Plan:
    """What the caller gave, or input-specific sampling with its defaults; anything else is refused.

    Args:
        plan: A plan, a rule, or None.
    """
    if not isinstance(plan, Rule | None):
        raise InvalidInput(
            "not-a-plan",
            "plan must be a plan such as InputSpecific(samples=10_000), got {value!r}",
            value=plan,
        )
    if plan is None:
        return InputSpecific()
    if isinstance(plan, Plan) and plan.alpha != 0:  # as that of a plan that counts all outcomes
        _check.alpha("alpha", plan.alpha)
    return plan

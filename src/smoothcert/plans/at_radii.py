"""Deciding chosen radii by exact group sequential tests, on the votes of the class alone.

Most tables report certified accuracy at a few radii. To decide whether the radius is above 0.5, an
input with p = .95 needs a few hundred samples, not 100,000. The plan looks again and again, until
every radius is proved or given up.

Radius r_j is proved at look i when the class has at least b_j(i) votes. The b_j(i) are the smallest
numbers such that, at p = t_j (the probability that proves more than r_j), the boundary is reached
by look i with a probability of at most alpha (n_i / n_m) ** 0.6. "Reached at some look" is an
increasing event of the votes, so for every p <= t_j it is at most as likely as at t_j. The
boundaries are nested, b_j >= b_(j-1), so proving any false radius implies proving the smallest
false one: all radii together use one alpha. Giving up early can only lower the probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from smoothcert import _check
from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers
from smoothcert.plans.base import Proof
from smoothcert.plans.betting_radii import BettingRadii
from smoothcert.plans.coverage import Coverage
from smoothcert.plans.decided import DecidingPlan
from smoothcert.plans.expected import Expected, without_rounding_errors
from smoothcert.plans.votes import Look, Tally, Votes
from smoothcert.statistics.bounds import Array, Counts
from smoothcert.statistics.group_sequential import (
    boundary,
    crossing_probability,
    crossing_probability_backward,
    default_looks,
    futility_counts,
    stopping_distribution,
)


class State(NamedTuple):
    """Where inputs stand."""

    tally: Tally
    level: Numbers = 0
    """How many radii are proved, counted from the smallest one."""


@dataclass(frozen=True, slots=True)
class AtRadii(DecidingPlan):
    """Decide for each input which of the given radii are proved, with as few samples as possible.

    A proved radius of 0 means that the class has the majority.

    Args:
        bound: "binary" counts the votes of the class alone, as papers do. With "runner-up", this is
            `BettingRadii`, and so it is for the `top` k.

    The other arguments are those of `DecidingPlan`. The default pilot has 50 samples.

    >>> from smoothcert import Certificate, Gaussian, Look
    >>> looks = [Look(50, {3: 49}), Look(60, {3: 60})]
    >>> plan = AtRadii([0, 0.5], samples=10_000)
    >>> Certificate.from_votes(looks, plan=plan, noise=Gaussian(0.5)).radius
    0.5
    """

    bound: InitVar[str] = "binary"
    default_pilot: ClassVar[int] = 50

    def __new__(cls, *settings: Any, bound: str = "binary", **more: Any) -> Any:
        """A plan with this bound. Runs of version 1 name the betting plan like this, too."""
        if cls is AtRadii and (bound == "runner-up" or more.get("top", 1) != 1):
            return BettingRadii(*settings, **more)
        return object.__new__(cls)

    def __post_init__(self, bound: str) -> None:
        _check.one_of("bound", bound, ("binary",))
        DecidingPlan.__post_init__(self)

    def tables(self, noise: Noise) -> Tables:
        """Thresholds, looks and boundaries under this noise; computed once per process.

        Args:
            noise: The smoothing noise.
        """
        return _tables(self, noise)

    def init(self, noise: Noise, chosen: Numbers = None) -> State:
        return State(Tally.begin(self, noise, chosen))

    def update(self, state: State, votes: Votes) -> State:
        tally = state.tally.add(votes)
        look = tally.counted_looks - 1
        if look < 0:
            return State(tally)
        tables = self.tables(tally.noise)
        # A boundary belongs to one number of samples: votes of any other number prove nothing.
        due = np.asarray(tally.drawn) == tables.looks[look]
        reached = np.asarray(tally.count)[..., None] >= tables.needed[:, look]
        level = np.where(due, reached.sum(axis=-1), 0)
        return State(tally, np.maximum(state.level, level)[()])

    def request(self, state: State) -> Numbers:
        tally = state.tally
        samples = tally.next_look(default_looks(self.samples))
        if not samples or not tally.counted_looks:
            return samples
        futile_counts = self.tables(tally.noise).futile[:, tally.counted_looks - 1]
        level = np.asarray(state.level)
        undecided = np.minimum(level, len(self.radii) - 1)
        stop = (level >= len(self.radii)) | (tally.count <= futile_counts[undecided])
        return np.where(stop, 0, samples)[()]

    def prove(self, state: State) -> Proof:
        tally = state.tally
        lower = np.concatenate([[0.0], self.tables(tally.noise).thresholds])[state.level]
        radius = np.concatenate([[np.nan], self.radii])[state.level]
        return Proof(tally.chosen, radius, lower, count=tally.count, counted=tally.drawn)

    def coverage(self, noise: Noise) -> Coverage:
        tables = self.tables(noise)
        worst = int(np.argmax(tables.spent))
        tied = crossing_probability(tables.needed[0], tables.looks, 0.5)
        failure = float(tables.spent[worst])
        return Coverage(self.alpha, failure, float(tables.thresholds[worst]), tied)

    def p_value(
        self, looks: Sequence[Look], radius: float, noise: Noise, label: int | None = None
    ) -> float | None:
        tables = self.tables(noise)
        # A plan that decides radii states that the true radius is above them.
        threshold = min(noise.needed_probability(radius), 1.0) * (1 - 1e-12)
        level = int(np.searchsorted(tables.thresholds, threshold))
        chosen = label if self.known_labels else looks[0].top
        counted = looks[1:] if self.pilot else looks
        votes = np.cumsum([look.of(chosen) for look in counted])
        if level == len(self.radii) or not np.any(votes >= tables.needed[level, : len(votes)]):
            return 1.0
        return _crossing_backward(self, noise, level)

    def expected(self, p: ArrayLike, noise: Noise) -> Expected:
        tables = self.tables(noise)
        stops = [
            stopping_distribution(
                float(q), tables.looks, tables.needed, tables.futile, pilot=self.pilot
            )
            for q in np.atleast_1d(p)
        ]
        proved = {}
        for radius, threshold in zip(self.radii, tables.thresholds, strict=True):
            levels = np.concatenate([[0.0], tables.thresholds]) >= threshold
            shares = [stop.levels[levels].sum() for stop in stops]
            proved[f"proves {radius:g}"] = without_rounding_errors(shares)
        return Expected(np.array([stop.samples for stop in stops]), proved, average=True)


class Tables(NamedTuple):
    """What the plan needs to know about each look."""

    looks: tuple[int, ...]
    """Samples at each look."""
    thresholds: Array
    """t_j: the probability that proves more than each radius."""
    needed: Counts
    """b_j(i): votes needed, by radius and look."""
    futile: Counts
    """The largest count with which a radius is given up, by radius and look."""
    spent: Array
    """The probability to prove each radius if its probability is just at the threshold."""


@lru_cache(maxsize=64)
def _tables(plan: AtRadii, noise: Noise) -> Tables:
    looks = default_looks(plan.samples)
    # Rounded on its own, the threshold of one radius may lie just above that of the next one.
    thresholds = np.maximum.accumulate([noise.needed_probability(radius) for radius in plan.radii])
    needed = np.tile(np.asarray(looks) + 1, (len(thresholds), 1))
    spent = np.zeros(len(thresholds))
    for j, threshold in enumerate(thresholds.tolist()):
        if threshold >= 1:
            continue
        needed[j], spent[j] = boundary(threshold, looks, alpha=plan.alpha)
        if j and np.any(needed[j] < needed[j - 1]):
            needed[j] = np.maximum(needed[j], needed[j - 1])  # nested
            spent[j] = crossing_probability(needed[j], looks, threshold)
    futile = np.stack([futility_counts(int(row[-1]), looks, plan.give_up) for row in needed])
    return Tables(looks, thresholds, needed, futile, spent)


@lru_cache(maxsize=256)
def _crossing_backward(plan: AtRadii, noise: Noise, level: int) -> float:
    tables = plan.tables(noise)
    threshold = float(tables.thresholds[level])
    return crossing_probability_backward(tables.needed[level], tables.looks, threshold)

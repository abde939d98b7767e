"""The failure probability of a plan: how often its certificates are really wrong.

A certificate fails when what it states is not true for the true probability p. Plans with a proof
know their failure (`Plan.coverage`). For every other plan that counts, a forward pass over its
states computes it. Where states are too many, the plan is simulated as it would run, and the
figures come with a confidence interval. A search that finds nothing is not a proof.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers
from smoothcert.plans.base import Plan, Rule, has_derived_coverage
from smoothcert.plans.combined import Combined
from smoothcert.plans.simulation import needed_probability, simulated_stops, unknown_failure
from smoothcert.plans.stopping import StoppingDistribution, is_countable
from smoothcert.statistics.bounds import Array, interval
from smoothcert.statistics.metrics import evenly

# Rounding in sums of thousands of terms; far below anything that decides `valid`.
_ROUNDING = 1e-9
# Where we look for the largest failure of a plan without a proof. If there are few values of p, we
# try all of them. Otherwise we try some in every cell of the grid, and then more in the cells with
# the largest failures.
_GRID = np.concatenate([np.linspace(0.5, 0.99, 50), 1 - np.geomspace(8e-3, 1e-5, 12), [1.0]])
_MOST_VALUES = 3_000
_VALUES_PER_CELL = 8
_VALUES_PER_BEST_CELL = 300
_BEST_CELLS = 5
# The failure of a sound plan grows with p up to 1/2. A plan of another shape may fail more often
# further down.
_BELOW_HALF = np.linspace(0, 0.5, 26)
# Where the pilot chooses the class, the failure may be largest for classes that are nearly tied.
_NEAR_TIES = np.linspace(0.5, 0.6, 11)
# A simulation looks for the worst p among candidates with few repetitions, and measures it with
# many fresh ones.
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
    """How many other classes share the other votes at the worst p. A plan is tried with 1 and 3."""


@dataclass(frozen=True)
class Coverage:
    """What a plan really guarantees."""

    alpha: float
    """The promise."""
    worst_failure: float
    """The largest failure probability over p that was found, for a class fixed in advance."""
    worst_p: float
    """The p where it occurs."""
    tie_failure: float
    """The failure probability for two tied classes (p = 1/2 each), where the pilot chooses the
    class."""
    pilot_counts: bool = False
    """Whether the votes that chose the class count for its bound. Classes that are nearly tied can
    then fail more often than tied ones, and no theorem limits it."""
    exact: bool = True
    """False where the figures are upper bounds that a theorem gives, not exact values."""
    theorem: str = ""
    """The theorem that gives them, as in "union bound"."""
    drawing_error: float = 0.0
    """By how much a probability of the drawn noise can differ from that of the noise in the
    theorem. Every proved bound is lowered by it before it gives a radius, so it does not add to the
    failure."""
    searched: bool = False
    """Whether the worst p is only the worst one that a search found, as for a plan without a
    proof."""
    simulated: Simulated | None = None
    """Where counts do not tell the states of the plan: the figures are shares of simulated
    inputs."""

    @classmethod
    def by_theorem(cls, theorem: str, alpha: float) -> Self:
        """What a theorem says that limits every failure to alpha.

        Args:
            theorem: Its name.
            alpha: The promise.
        """
        return cls(alpha, alpha, 0.5, alpha, theorem=theorem)

    def plain(self) -> dict[str, Any]:
        """The figures as a dictionary for JSON."""
        simulated = {} if self.simulated is None else {"simulated": self.simulated._asdict()}
        figures = {name: value for name, value in vars(self).items() if name != "simulated"}
        return figures | simulated | {"valid": self.valid}

    @property
    def valid(self) -> bool:
        """Whether the plan keeps its alpha.

        If `searched`, this holds for every p that was tried and is no proof.

        A simulation has to show that the failure is at most alpha.
        """
        _, at_most = self._limits
        return not self.pilot_counts and at_most <= self.alpha * (1 + _ROUNDING)

    @property
    def proved(self) -> bool:
        """Whether it is proved that the plan keeps its alpha.

        A search that finds nothing is no proof.
        """
        return self.valid and not self.searched

    @property
    def exceeds(self) -> bool:
        """Whether the plan is known to fail more often than alpha says."""
        at_least, _ = self._limits
        return at_least > self.alpha * (1 + _ROUNDING)

    @property
    def _limits(self) -> tuple[float, float]:
        """Between which limits the largest failure lies."""
        if self.simulated is not None:
            return self.simulated.at_least, self.simulated.at_most
        failure = max(self.worst_failure, self.tie_failure)
        return failure, failure

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
        if self.proved:
            return f"The plan keeps {alpha}."
        if self.valid:
            found = f"The search found no p at which the plan exceeds {alpha}."
            return f"{found} This is not a proof."
        if self.exceeds:
            return f"The plan does NOT keep {alpha}."
        if self.simulated:
            return f"The simulation does not tell whether the plan keeps {alpha}."
        reason = "the pilot that chooses the class also counts"
        return f"Nothing proves that the plan keeps {alpha}: {reason}."


def caveat(plan: Rule) -> str | None:
    """A sentence about what the plan does not guarantee; None if a theorem says that it keeps its
    alpha.
    """
    if not isinstance(plan, Plan):  # a rule certifies nothing
        return None
    plan = _certifying(plan)
    if not has_derived_coverage(plan):
        return (
            f"nothing proves that this plan keeps its alpha ({plan.alpha:g}); "
            "`coverage` looks for where it fails"
        )
    return plan.caveat


def exact_coverage(plan: Plan, noise: Noise) -> Coverage:
    """The worst-case failure of a plan, exact unless `Coverage` says otherwise.

    Args:
        plan: The plan. Of a combined plan, the one that certifies.
        noise: The smoothing noise.

    >>> from smoothcert import Gaussian, InputSpecific
    >>> plan = InputSpecific(100_000, decline=0.05, kind="relative", pilot_use="reuse")
    >>> coverage = exact_coverage(plan, Gaussian(0.5))
    >>> round(coverage.worst_failure / 0.001, 3), round(coverage.worst_p, 2), coverage.valid
    (1.045, 0.6, False)
    """
    certifying = _certifying(plan)
    primary = certifying.for_noise(noise)
    type(primary).init(primary, noise)  # a plan without a pilot that needs one refuses
    derived = None
    if has_derived_coverage(certifying):
        derived = type(certifying).coverage(primary, noise)
    coverage = derived
    if coverage is None:
        coverage = _searched(primary, noise)
    return replace(
        coverage,
        exact=not coverage.theorem and coverage.simulated is None,
        drawing_error=noise.drawing_error,
        searched=derived is None,
    )


def _certifying(plan: Plan) -> Plan:
    """The plan behind the certificates.

    A subclass of `Combined` may have another rule, so it stands for itself.
    """
    while type(plan) is Combined:
        plan = plan.plans[0]
    return plan


def _searched(plan: Plan, noise: Noise) -> Coverage:
    if plan.bound == "runner-up" or plan.top > 1:
        raise unknown_failure(plan)
    if not is_countable(plan, noise):
        return _simulate(plan, noise)
    stopping = StoppingDistribution(plan, noise)
    # Given the pilot, the class is fixed; a pilot that does not count tells nothing about later
    # votes.
    failure, p = _search(stopping)
    return Coverage(plan.alpha, failure, p, _failure(stopping, 0.5))


def _simulate(plan: Plan, noise: Noise) -> Coverage:
    """The failure of a plan at the worst p that a simulation finds."""
    rng = np.random.default_rng(0)
    # A state of the plan's own may keep the votes that chose the class, so the pilot has to choose
    # it here, too.
    by_pilot = not plan.known_labels

    def wrong(each: Array, repetitions: int) -> Numbers:
        """Whether claims are wrong; below 1/2, any certificate is."""
        stops = simulated_stops(
            plan, noise, each, repetitions=repetitions, rng=rng, by_pilot=by_pilot
        )
        return needed_probability(plan, noise, stops.proof) > np.maximum(stops.p, 0.5)

    first = simulated_stops(plan, noise, _GRID, repetitions=_SEARCH_REPETITIONS // 10, rng=rng)
    seen = needed_probability(plan, noise, first.proof)
    claims = np.unique(seen[seen > 0.5])
    p = np.concatenate([_spread(claims * (1 - 1e-12), _CANDIDATES), _BELOW_HALF[::5]])
    if by_pilot:
        p = np.concatenate([p, _NEAR_TIES])
    one_rival = np.stack([p, 1 - p, 0 * p, 0 * p], axis=-1)
    three_rivals = np.stack([p, *3 * [(1 - p) / 3]], axis=-1)
    each = np.concatenate([one_rival, three_rivals])  # a plan may look at other classes one by one
    worst = each[np.argmax(wrong(each, _SEARCH_REPETITIONS).mean(axis=1))]
    # Fresh votes, because the worst of many simulated shares is too large.
    failures = wrong(np.stack([worst, [0.5, 0.5, 0, 0]]), _REPETITIONS).sum(axis=1)
    low, high = interval(failures, _REPETITIONS, alpha=(1 - _CONFIDENCE) / 2)  # for both together
    failed, tied = (failures / _REPETITIONS).tolist()
    rivals = int(np.count_nonzero(worst[1:]))
    simulated = Simulated(_REPETITIONS, _CONFIDENCE, float(low.max()), float(high.max()), rivals)
    return Coverage(plan.alpha, failed, float(worst[0]), tied, simulated=simulated)


def _search(stopping: StoppingDistribution) -> tuple[float, float]:
    """The largest failure over p and where it is, for any plan.

    The failure is a saw: it climbs with p and drops where p passes a value that the bound can take.
    So the worst p lies just below such a value. Small plans have few, and all are tried. Of a plan
    with very many states, the search may miss the very worst tooth. Nobody proves that the failure
    of just any plan has this shape.
    """
    cells = [_attainable(stopping, low, high) for low, high in pairwise(_GRID.tolist())]
    few = _MOST_VALUES if sum(map(len, cells)) <= _MOST_VALUES else _VALUES_PER_CELL
    worst = [_worst(stopping, _spread(cell, few)) for cell in cells]
    if few != _MOST_VALUES:
        best = sorted(range(len(cells)), key=lambda i: worst[i], reverse=True)[:_BEST_CELLS]
        worst += [_worst(stopping, _spread(cells[i], _VALUES_PER_BEST_CELL)) for i in best]
    return max([*worst, _worst(stopping, _BELOW_HALF)])


def _worst(stopping: StoppingDistribution, p: Array) -> tuple[float, float]:
    return max(((_failure(stopping, q), q) for q in p.tolist()), default=(0.0, 0.5))


def _spread(values: Array, most: int) -> Array:
    """At most this many of the values, evenly spread."""
    return np.asarray(values[evenly(len(values), most)])


def _attainable(stopping: StoppingDistribution, low: float, high: float) -> Array:
    """Just below the probabilities between `low` and `high` that a claim can need, in increasing
    order.
    """
    seen: list[Array] = []
    stopping.at(low, limit=np.inf, seen=seen)
    values = np.unique(np.concatenate([np.ravel(part) for part in seen])) if seen else np.empty(0)
    return np.asarray(values[(values > low) & (values <= high)] * (1 - 1e-12))


def _failure(stopping: StoppingDistribution, p: float) -> float:
    """The probability of a wrong certificate: one that claims more than p, or any certificate below
    1/2.
    """
    return stopping.at(p, limit=max(p, 0.5)).failed

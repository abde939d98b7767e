"""The second route of the audit: how convincing votes are, computed in another way than what they prove."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import exp

import numpy as np
from scipy.special import expit

from smoothcert.noises import Noise
from smoothcert.plans.at_radii import AtRadii
from smoothcert.plans.base import ByRule, Look, Plan
from smoothcert.plans.combined import Combined, looks_seen_by
from smoothcert.plans.machine import Case
from smoothcert.plans.pilot import PilotPlan
from smoothcert.plans.price import Price
from smoothcert.statistics.bets import LOOKS, Bet, best_bet, tangents
from smoothcert.statistics.boundaries import crossing_probability_backward
from smoothcert.statistics.bounds import Array, Counts, summed_tail


@ByRule
def p_value(
    plan: Plan, looks: Sequence[Look], radius: float, noise: Noise, label: int | None = None
) -> float | None:
    """An upper bound on the probability of votes as convincing as these if the true radius is not above this one.

    A proof of the radius holds if this is at most alpha. None if there is no second route.
    """
    return None


@p_value.register(Price)
@p_value.register(PilotPlan)
def _(
    plan: PilotPlan, looks: Sequence[Look], radius: float, noise: Noise, label: int | None = None
) -> float | None:
    if plan.uses_rivals:
        return None
    votes, drawn = _counted(plan, looks, label).sum(axis=0).tolist()
    return summed_tail(votes, drawn, min(float(noise.probability(radius)), 1)) if drawn else 1.0


@p_value.register(AtRadii)
def _(
    plan: AtRadii, looks: Sequence[Look], radius: float, noise: Noise, label: int | None = None
) -> float | None:
    if plan.remembers:
        return exp(
            -_least_wealth(
                plan, looks, noise, label, radii=int(np.searchsorted(plan.radii, radius, "right"))
            )
        )
    tables = plan.tables(noise)
    # A plan that decides radii states that the true radius is above them.
    level = int(
        np.searchsorted(tables.thresholds, min(noise.needed_probability(radius), 1.0) * (1 - 1e-12))
    )
    votes = np.cumsum(_counted(plan, looks, label)[:, 0])
    if level == len(plan.radii) or not np.any(votes >= tables.needed[level, : len(votes)]):
        return 1.0
    return _crossing(plan, noise, level)


@p_value.register(Combined)
def _(
    plan: Combined, looks: Sequence[Look], radius: float, noise: Noise, label: int | None = None
) -> float | None:
    first = plan.plans[0]
    return p_value(first, looks_seen_by(first, looks, noise, label), radius, noise, label)


def _counted(plan: Plan, looks: Sequence[Look], label: int | None) -> Counts:
    """Votes for the class and samples of each look that counts.

    They are counted without the machine: an audit has asked it already, and a second bound would double its time.
    """
    chosen = label if plan.known_labels else looks[0].top
    counted = looks[1:] if plan.pilot and not plan.pilot_counts else looks
    return np.array([(look.of(chosen), look.samples) for look in counted], np.int64).reshape(-1, 2)


@lru_cache(maxsize=256)
def _crossing(plan: AtRadii, noise: Noise, level: int) -> float:
    tables = plan.tables(noise)
    return crossing_probability_backward(
        tables.needed[level], tables.looks, float(tables.thresholds[level])
    )


def _least_wealth(
    plan: AtRadii, looks: Sequence[Look], noise: Noise, label: int | None, radii: int
) -> float:
    """The least logarithm of wealth that bets reached at some look, over all rivals and this many radii.

    Every rival has its own wealth here, and every payoff is divided by the most that it yields on average under a false
    claim. That is computed from the trade-off curve itself, not from its tangents.
    """
    table, case = tangents(noise, plan.radii), Case(plan, noise, label)
    chosen = label if plan.known_labels else looks[0].top
    rivals = [
        *{c for look in looks for c in look.votes if c != chosen},
        None,
    ]  # None for all classes without a vote
    wealth = best = np.zeros((len(rivals), len(plan.radii)))
    bet, seen = (wealth, wealth, wealth), np.zeros((len(rivals), 3))
    for look in looks:
        own, votes = look.of(chosen), np.array([look.of(c) for c in rivals])
        new = np.stack([np.full(len(rivals), own), votes, look.samples - own - votes], axis=-1)
        stage = 0 if case.state.memory is None else case.state.memory.stage
        asked = np.arange(len(plan.radii)) < plan.stages[stage].radii
        wealth = np.where(
            asked, wealth + sum(n[:, None] * gain for n, gain in zip(new.T, bet, strict=True)), 0.0
        )
        best, seen = np.maximum(best, wealth), seen + new
        case.add(look)
        if (total := int(seen[0].sum())) in LOOKS or total == plan.pilot:
            bet = _fair(best_bet(table, seen[0, 0], seen[:, 1], total), noise, plan.radii)
    return float(best[:, :radii].min(initial=np.inf if radii else 0.0))


def _fair(bet: Bet, noise: Noise, radii: Sequence[float]) -> tuple[Array, Array, Array]:
    """Logarithms of payoffs that yield at most 1 on average, whatever probabilities a false claim has."""
    own, rival, other = np.exp(bet.own), np.exp(bet.rival), np.exp(bet.other)
    most = np.empty_like(own)
    for j, radius in enumerate(radii):
        centre, width = np.zeros((len(own), 1)), 21.0  # of the probability of the rival, as a logit
        for _ in range(5):
            place = centre + width * np.linspace(-1, 1, 65)
            b = expit(place)
            a = np.minimum(noise.trade_off(radius, b)[0], expit(-place))
            mean = a * own[:, [j]] + b * rival[:, [j]] + (1 - a - b) * other[:, [j]]
            centre, width = (
                np.take_along_axis(place, mean.argmax(axis=1)[:, None], axis=1),
                width / 32,
            )
        most[:, j] = mean.max(axis=1) + noise.drawing_error * (own - rival)[:, j]
    excess = np.log(np.maximum(most, 1))
    return bet.own - excess, bet.rival - excess, bet.other - excess

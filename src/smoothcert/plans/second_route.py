"""The second route of the audit: the probability of votes, computed in another way than the bound that they prove."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from smoothcert.noises import Noise
from smoothcert.plans.at_radii import AtRadii
from smoothcert.plans.base import Plan
from smoothcert.plans.combined import Combined, looks_seen_by
from smoothcert.plans.dispatch import ByRule
from smoothcert.plans.pilot import PilotPlan
from smoothcert.plans.records import Look
from smoothcert.statistics.binomial import summed_tail
from smoothcert.statistics.boundaries import crossing_probability_backward


@ByRule
def p_value(plan: Plan, looks: Sequence[Look], p: float, noise: Noise, label: int | None = None) -> float | None:
    """The probability of votes at least as convincing as these if the class has probability p.

    A proof of `lower` holds if this is at most alpha at p = lower. None if there is no second route.
    """
    return None


@p_value.register(PilotPlan)
def _(plan: PilotPlan, looks: Sequence[Look], p: float, noise: Noise, label: int | None = None) -> float | None:
    if plan.uses_rivals:
        return None
    counted = looks[1:] if plan.pilot and not plan.pilot_counts else looks
    chosen = label if plan.known_labels else looks[0].top
    drawn = sum(look.samples for look in counted)
    return summed_tail(sum(look.of(chosen) for look in counted), drawn, p) if drawn else 1.0


@p_value.register(AtRadii)
def _(plan: AtRadii, looks: Sequence[Look], p: float, noise: Noise, label: int | None = None) -> float | None:
    if plan.remembers:
        return None
    tables = plan.tables(noise)
    level = int(np.searchsorted(tables.thresholds, p * (1 - 1e-12)))
    counted = looks[1:] if plan.pilot else looks
    chosen = label if plan.known_labels else looks[0].top
    votes = np.cumsum([look.of(chosen) for look in counted])
    if level == len(plan.radii) or not np.any(votes >= tables.needed[level, : len(votes)]):
        return 1.0
    return _crossing(plan, noise, level)


@p_value.register(Combined)
def _(plan: Combined, looks: Sequence[Look], p: float, noise: Noise, label: int | None = None) -> float | None:
    first = plan.plans[0]
    return p_value(first, looks_seen_by(first, looks, noise, label), p, noise, label)


@lru_cache(maxsize=256)
def _crossing(plan: AtRadii, noise: Noise, level: int) -> float:
    tables = plan.tables(noise)
    return crossing_probability_backward(tables.needed[level], tables.looks, float(tables.thresholds[level]))

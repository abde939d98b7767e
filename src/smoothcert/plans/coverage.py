"""The exact failure probability of a plan: how often its certificates are really wrong. Nothing is simulated.

A plan may bring a closed form (`worst_failure`, `tie_failure`). For every other plan, a forward pass over its states
computes the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from smoothcert import _check
from smoothcert.noises import Noise
from smoothcert.plans.base import Outlook, Plan
from smoothcert.plans.forward import ending

# Rounding in sums of thousands of terms; far below anything that decides `valid`.
_ROUNDING = 1e-9
# Where the failure of a plan without a closed form is looked for: the bound can exceed p anywhere above 1/2.
_GRID = np.concatenate([np.linspace(0.5, 0.99, 50), 1 - np.geomspace(8e-3, 1e-5, 12)])


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

    @property
    def valid(self) -> bool:
        """Whether the plan is certain to keep its alpha."""
        return not self.pilot_counts and max(self.worst_failure, self.tie_failure) <= self.alpha * (1 + _ROUNDING)


def exact_coverage(plan: Plan, noise: Noise) -> Coverage:
    """The exact worst-case failure of a plan.

    Args:
        plan: The plan. Of a combined plan, the one that certifies.
        noise: The smoothing noise.

    >>> from smoothcert import Gaussian, InputSpecific
    >>> plan = InputSpecific(100_000, decline=0.05, kind="relative", pilot_use="reuse")
    >>> found = exact_coverage(plan, Gaussian(0.5))
    >>> round(found.worst_failure / 0.001, 3), round(found.worst_p, 2), found.valid
    (1.045, 0.6, False)
    """
    plan = plan.primary
    plan.check(noise)
    if plan.uses_rivals:  # a union bound: alpha / 2 for the class, alpha / 2 for all groups of rivals together
        return Coverage(plan.alpha, plan.alpha, 0.5, plan.alpha, plan.pilot_counts, exact=False)
    worst = plan.worst_failure(noise)
    if worst is None:
        worst = max((failure_probability(plan, noise, p), float(p)) for p in _GRID)
    tied = plan.tie_failure(noise)
    if tied is None:  # given the pilot, the class is fixed; a pilot that does not count tells nothing about later votes
        tied = failure_probability(plan, noise, 0.5)
    return Coverage(plan.alpha, *worst, tied, plan.pilot_counts)


def failure_probability(plan: Plan, noise: Noise, p: float) -> float:
    """The probability of a wrong certificate for a class that is fixed in advance and has probability p.

    Below 1/2 any certificate is wrong, so the bound has to exceed max(p, 1/2).

    Args:
        plan: The plan.
        noise: The smoothing noise.
        p: The probability of the class.
    """
    return ending(plan, noise, float(p), limit=max(float(p), 0.5)).failed


def outlook(plan: Plan, noise: Noise, p: ArrayLike) -> Outlook:
    """What a plan does with inputs whose class has probability p.

    Args:
        plan: The plan. Of a combined plan, the one that certifies.
        noise: The smoothing noise.
        p: Probabilities of the class.
    """
    plan, values = plan.primary, np.atleast_1d(_check.probabilities("p", p))
    plan.check(noise)
    if (own := plan.outlook(values, noise)) is not None:
        return own
    samples = [ending(plan, noise, float(q), limit=np.inf).samples for q in values]
    certified = [ending(plan, noise, float(q), limit=0.5).failed for q in values]
    return Outlook(np.array(samples), {"certified": np.array(certified)}, expected=True)

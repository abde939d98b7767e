"""The exact failure probability of a plan: how often its certificates are really wrong. Nothing is simulated.

A plan may bring a closed form (`worst_failure`, `tie_failure`). For every other plan, a forward pass over its states
computes the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.plans.base import Plan, check_choice
from smoothcert.plans.forward import Forward
from smoothcert.plans.records import Outlook

# Rounding in sums of thousands of terms; far below anything that decides `valid`.
_ROUNDING = 1e-9
# Where the failure of a plan without a closed form is looked for: up to so many values all over, or a few in every cell
# of the grid and then many in the best cells.
_GRID = np.concatenate([np.linspace(0.5, 0.99, 50), 1 - np.geomspace(8e-3, 1e-5, 12), [1.0]])
_ALL, _FEW, _MANY, _BEST_CELLS = 3_000, 8, 300, 5
# The failure of a sound plan grows with p up to 1/2. A plan of another shape may fail more often further down.
_BELOW_HALF = np.linspace(0, 0.5, 26)


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
    drawing_error: float = 0.0
    """By how much a probability of the drawn noise can differ from that of the noise in the theorem. Every proved bound
    is lowered by it before it gives a radius, so it does not add to the failure."""
    searched: bool = False
    """Whether the worst p is only the worst one that a search found, as for a plan without a closed form."""

    @property
    def valid(self) -> bool:
        """Whether the plan keeps its alpha. If `searched`, this holds for every p that was tried and is no proof."""
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
    check_choice(plan)
    worst = plan.worst_failure(noise)
    searched = worst is None
    if worst is None and plan.uses_rivals:
        raise InvalidInput(
            f"{plan} also bounds other classes, and its states tell only the votes for one class: define its "
            "worst_failure and tie_failure"
        )
    forward = Forward(plan, noise)
    if worst is None:
        worst = _search(forward)
    tied = plan.tie_failure(noise)
    if tied is None:  # given the pilot, the class is fixed; a pilot that does not count tells nothing about later votes
        tied = _failure(forward, 0.5)
    return Coverage(
        plan.alpha,
        *worst,
        tied,
        plan.pilot_counts,
        exact=not plan.failure_is_bound,
        drawing_error=noise.drawing_error,
        searched=searched,
    )


def _search(forward: Forward) -> tuple[float, float]:
    """The largest failure over p and where it is, for any plan.

    The failure is a saw: it climbs with p and drops where p passes a value that the bound can take. So the worst p lies
    just below such a value. Small plans have few, and all are tried. Of a plan with very many states, the search may
    miss the very worst tooth. Nobody proves that the failure of just any plan has this shape.
    """
    cells = [_attainable(forward, low, high) for low, high in pairwise(_GRID.tolist())]
    few = _ALL if sum(map(len, cells)) <= _ALL else _FEW
    found = [_worst(forward, _spread(cell, few)) for cell in cells]
    order = sorted(range(len(cells)), key=lambda i: found[i], reverse=True)
    closer = [] if few == _ALL else [_worst(forward, _spread(cells[i], _MANY)) for i in order[:_BEST_CELLS]]
    return max([*found, *closer, _worst(forward, _BELOW_HALF)])


def _worst(forward: Forward, p: NDArray[np.float64]) -> tuple[float, float]:
    return max(((_failure(forward, q), q) for q in p.tolist()), default=(0.0, 0.5))


def _spread(values: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """At most so many of the values, evenly spread."""
    kept = np.unique(np.linspace(0, len(values) - 1, min(len(values), most)).astype(int))
    return np.asarray(values[kept])


def _attainable(forward: Forward, low: float, high: float) -> NDArray[np.float64]:
    """Just below the values between `low` and `high` that the bound can take, in increasing order."""
    seen: list[NDArray[np.float64]] = []
    forward.ending(low, limit=np.inf, seen=seen)
    values = np.unique(np.concatenate([np.ravel(part) for part in seen])) if seen else np.empty(0)
    return np.asarray(values[(values > low) & (values <= high)] * (1 - 1e-12))


def failure_probability(plan: Plan, noise: Noise, p: float) -> float:
    """The probability of a wrong certificate for a class that is fixed in advance and has probability p.

    Below 1/2 any certificate is wrong, so the bound has to exceed max(p, 1/2).
    """
    return _failure(Forward(plan, noise), float(p))


def _failure(forward: Forward, p: float) -> float:
    return forward.ending(p, limit=max(p, 0.5)).failed


def outlook(plan: Plan, noise: Noise, p: ArrayLike) -> Outlook:
    """What a plan does with inputs whose class has probability p."""
    plan, values = plan.primary, np.atleast_1d(_check.probabilities("p", p))
    plan.check(noise)
    if (own := plan.outlook(values, noise)) is not None:
        return own
    forward = Forward(plan, noise)
    samples = [forward.ending(float(q), limit=np.inf).samples for q in values]
    certified = [forward.ending(float(q), limit=0.5).failed for q in values]
    return Outlook(np.array(samples), {"certified": np.array(certified)}, expected=True)

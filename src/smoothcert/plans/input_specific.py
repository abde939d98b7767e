"""Input-specific sampling (ISS, the paper's Algorithm 2): each input gets what the sample map says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert.bounds import interval
from smoothcert.errors import InvalidInput
from smoothcert.noise import Noise
from smoothcert.plans.base import PilotPlan, Plan
from smoothcert.sample_map import Kind, SampleMap, check_decline, paper_grid

Grid = Literal["exact", "paper"]


@dataclass(frozen=True, kw_only=True)
class InputSpecific(PilotPlan):
    """Spend what keeps the radius within `decline` of the one that `samples` would prove.

    The pilot gives an interval for p; the input gets the larger value of the sample map at its two ends.
    `grid="exact"` evaluates the map there, `"paper"` looks it up on a grid of step 0.001 as published, which costs
    some percent more. Left empty, it goes with `pilot_use`: exact with "fresh", paper with "reuse".

    >>> from smoothcert import Gaussian
    >>> plan = InputSpecific(100_000, decline=0.05)
    >>> plan.after_pilot([600, 900, 1000], Gaussian(0.5)).tolist()
    [1267, 2421, 67040]
    """

    decline: float = 0.05
    kind: Kind = "absolute"
    grid: Grid | None = None
    name: ClassVar[str] = "input-specific"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "decline", check_decline(self.decline, self.kind))
        if self.grid is None:
            object.__setattr__(self, "grid", "paper" if self.pilot_use == "reuse" else "exact")
        _check.one_of("grid", self.grid, ("exact", "paper"))

    def __str__(self) -> str:
        grid = " on the paper's grid" if self.grid == "paper" else ""
        return f"{super().__str__()}, {self.kind} decline {self.decline:g}{grid}"

    def after_pilot(self, count: ArrayLike, noise: Noise) -> NDArray[np.int64]:
        planned = _planned_samples(self, noise)[np.asarray(count)]
        # The pilot was spent already: a plan below it does not shrink what was drawn.
        return np.asarray(np.maximum(planned - self.counted_before(), 0))

    def sample_map(self, noise: Noise) -> SampleMap:
        return SampleMap(noise, self.samples, self.decline, self.kind, self.alpha)

    def check(self, noise: Noise) -> None:
        self.sample_map(noise)


@lru_cache(maxsize=32)
def _planned_samples(plan: InputSpecific, noise: Noise) -> NDArray[np.int64]:
    """k-hat for every possible count of the pilot, 0 ... pilot."""
    psi = plan.sample_map(noise)
    needed = psi.table(paper_grid()) if plan.grid == "paper" else psi
    low, high = interval(np.arange(plan.pilot + 1), plan.pilot, alpha=plan.alpha)
    return np.maximum(needed(low), needed(high))


def plan_or_default(plan: Plan | None) -> Plan:
    """What the caller gave, or input-specific sampling with its defaults; anything else is refused."""
    if not isinstance(plan, Plan | None):
        raise InvalidInput(f"plan must be a plan such as InputSpecific(samples=10_000), got {plan!r}")
    return plan or InputSpecific()

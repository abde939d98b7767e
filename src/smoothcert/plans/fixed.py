"""Fixed sampling (the paper's IAS, the standard certification): the same size for every input.

The pilot chooses the class. On the n samples after it, P(L(votes, n, alpha) > p) <= alpha for every
p (Clopper and Pearson), because class and n do not depend on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.noises import Noise
from smoothcert.plans import two_stage
from smoothcert.plans.expected import Expected
from smoothcert.plans.two_stage import TwoStagePlan
from smoothcert.statistics.bounds import Counts, lower_bound


@dataclass(frozen=True, kw_only=True, slots=True)
class Fixed(TwoStagePlan):
    """`pilot` samples (n0) pick the class, then `samples` (n) give the bound.

    The arguments are those of `TwoStagePlan`.

    >>> print(Fixed(10_000))
    fixed 10,000
    """

    name: ClassVar[str] = "fixed"
    plans_ahead: ClassVar[bool] = False
    adaptive: ClassVar[bool] = False
    coverage = two_stage.coverage
    expected_samples = two_stage.expected_samples
    p_value = two_stage.p_value
    basis = two_stage.basis

    def after_pilot(self, count: ArrayLike, noise: Noise, rivals: Counts | None = None) -> Counts:
        return np.full(np.shape(count), self.samples - self.reused, np.int64)

    def expected(self, p: ArrayLike, noise: Noise) -> Expected:
        p = np.asarray(p, float)
        radius = noise.radius(lower_bound(p * self.samples, self.samples, alpha=self.level))
        return Expected(
            np.full(p.shape, self.samples),
            {"radius": np.maximum(radius, 0)},
            pilot_not_counted=self.pilot - self.reused,
        )

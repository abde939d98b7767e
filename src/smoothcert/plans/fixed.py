"""Fixed sampling (the paper's IAS, the standard certification): the same size for every input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.noise import Noise
from smoothcert.plans.base import PilotPlan


@dataclass(frozen=True, kw_only=True)
class Fixed(PilotPlan):
    """`pilot` samples (n0) pick the class, then `samples` (n) give the bound.

    >>> Fixed(10_000)
    Fixed(samples=10000, pilot=100, alpha=0.001, pilot_use='fresh')
    """

    name: ClassVar[str] = "fixed"

    def after_pilot(self, count: ArrayLike, noise: Noise) -> NDArray[np.int64]:
        return np.full(np.shape(count), self.samples - self.counted_before(), np.int64)

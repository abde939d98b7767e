"""Fixed sampling (the paper's IAS, the standard certification): the same size for every input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.noises import Noise
from smoothcert.plans.pilot import PilotPlan


@dataclass(frozen=True, kw_only=True)
class Fixed(PilotPlan):
    """`pilot` samples (n0) pick the class, then `samples` (n) give the bound. The arguments are those of `PilotPlan`.

    >>> print(Fixed(10_000))
    fixed 10,000
    """

    name: ClassVar[str] = "fixed"
    plans_ahead: ClassVar[bool] = False

    def after_pilot(
        self, count: ArrayLike, noise: Noise, rivals: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        return np.full(np.shape(count), self.samples - self.counted_before(), np.int64)

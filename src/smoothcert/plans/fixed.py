"""Fixed sampling (the paper's IAS, the standard certification): the same size for every input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.noises import Noise
from smoothcert.plans.pilot import PilotPlan
from smoothcert.plans.records import Outlook
from smoothcert.statistics.bounds import lower_bound


@dataclass(frozen=True, kw_only=True)
class Fixed(PilotPlan):
    """`pilot` samples (n0) pick the class, then `samples` (n) give the bound. The arguments are those of `PilotPlan`.

    >>> print(Fixed(10_000))
    fixed 10,000
    """

    name: ClassVar[str] = "fixed"
    adaptive: ClassVar[bool] = False
    plans_ahead: ClassVar[bool] = False

    def _purpose_in_words(self) -> list[str]:
        return [
            f"Fixed sampling: every input gets the same {self.samples:,} samples.",
            "It is the standard of the literature. It gives ACR and the whole curve of certified accuracy, and it "
            "suits runs where neither the radii of interest nor an acceptable decline is known in advance.",
        ]

    def after_pilot(self, count: ArrayLike, noise: Noise, rivals: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        return np.full(np.shape(count), self.samples - self.counted_before(), np.int64)

    def outlook(self, p: ArrayLike, noise: Noise) -> Outlook:
        p = np.asarray(p, float)
        radius = noise.radius(lower_bound(p * self.samples, self.samples, alpha=self.level))
        return Outlook(np.full(p.shape, self.samples), {"radius": np.maximum(radius, 0)}, expected=False)

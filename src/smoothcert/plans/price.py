"""A price for samples: each input gets as many as pay for themselves in radius."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.plans.pilot import PilotPlan
from smoothcert.statistics.bounds import lower_bound
from smoothcert.statistics.population import P, posterior
from smoothcert.statistics.sample_map import check_ceiling

DEFAULT_PILOT = 200
_SIZES_PER_DECADE = 24


@dataclass(frozen=True, kw_only=True)
class Price(PilotPlan):
    """After the pilot, draw the n that maximises E[radius] - price * n.

    The expectation is over the posterior of p, the probability of the class, given the votes of the pilot. The prior is
    always the same, even in the quantile of p. A better prior would save samples but cannot make a certificate wrong,
    because the bound rests on the n fresh samples alone.

    Args:
        price: How much radius a sample has to add. `certify` finds the price for a budget of samples or minutes.

    The other arguments are those of `PilotPlan`. The default pilot has 200 samples.

    >>> from smoothcert import Gaussian
    >>> Price(price=1e-5).after_pilot([80, 120, 180, 200], Gaussian(0.5)).tolist()
    [0, 2154, 2610, 11007]
    """

    price: float
    name: ClassVar[str] = "price"

    def __post_init__(self) -> None:
        if not self.pilot:
            object.__setattr__(self, "pilot", min(DEFAULT_PILOT, check_ceiling(self.samples, self.alpha)))
        super().__post_init__()
        if self.pilot_counts:
            raise InvalidInput('a plan with a price needs fresh samples: pilot_use must be "fresh", got "reuse"')
        object.__setattr__(self, "price", _check.at_least("price", self.price, 0))

    def __str__(self) -> str:
        return self._in_words(f"{self.price:.3g} of radius per sample" if self.price else "as a budget allows")

    def after_pilot(self, count: ArrayLike, noise: Noise, rivals: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        return np.asarray(_planned_samples(self, noise)[np.asarray(count)])


@lru_cache(maxsize=512)
def _planned_samples(plan: Price, noise: Noise) -> NDArray[np.int64]:
    """n for every possible count of the pilot, 0 ... pilot."""
    sizes, radius = _radii_by_size(noise, plan.level, len(str(plan.samples - 1)))
    allowed = sizes <= plan.samples
    given = posterior(np.arange(plan.pilot + 1), plan.pilot)
    worth = given @ radius[allowed].T - plan.price * sizes[allowed]
    planned: NDArray[np.int64] = sizes[worth.argmax(axis=1)]
    return planned


@lru_cache(maxsize=32)
def _radii_by_size(noise: Noise, alpha: float, decades: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Sample sizes, and the radius that each proves for every p of the grid.

    The sizes are 10% apart, so that the choice of one does not depend on the rounding of the radii, which may differ
    between versions of SciPy.
    """
    steps = np.arange(_SIZES_PER_DECADE * (decades - 1) + 1) / _SIZES_PER_DECADE
    sizes = np.unique(np.rint(10 ** (1 + steps)).astype(np.int64))
    k = sizes[:, None].astype(float)
    radius = np.maximum(noise.radius(lower_bound(k * P, k, alpha=alpha)), 0.0)
    return np.append(0, sizes), np.vstack([np.zeros(len(P)), radius])

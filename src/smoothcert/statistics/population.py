"""What a few votes per input tell about a whole data set: the distribution of p, the probability of the class.

It is a distribution on a grid that is even in the quantile of p, because under Gaussian noise that is the radius. It
only plans: nothing that is proved rests on it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from smoothcert.statistics.binomial import pmf

Array = NDArray[np.float64]

P = np.asarray(ndtr(np.arange(-20, 51) / 10))
"""The values of p, from .023 to 1 - 3e-7."""
_ROUNDS = 20
"""Few rounds keep the distribution smooth: with many, it would shrink to a few spikes."""


def posterior(count: ArrayLike, samples: ArrayLike, weights: Array | float = 1.0) -> Array:
    """The weights of `P` given votes for the class, one row per input; without `weights`, all are equal before."""
    likelihood = pmf(np.asarray(count)[..., None], np.asarray(samples)[..., None], P) * weights
    return np.asarray(likelihood / likelihood.sum(axis=-1, keepdims=True))


def distribution(count: ArrayLike, samples: ArrayLike) -> Array:
    """The weights of `P` in the population that these inputs are drawn from, by expectation maximisation."""
    weights = np.full(len(P), 1 / len(P))
    for _ in range(_ROUNDS):
        weights = posterior(count, samples, weights).mean(axis=0)
    return weights

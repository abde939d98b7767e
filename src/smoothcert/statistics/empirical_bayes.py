"""What a few votes per input tell about a whole data set: the distribution of p, the probability of
the class.

It is a distribution on a grid that is even in the quantile of p, because under Gaussian noise that
is the radius. It only plans: nothing that is proved rests on it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, ndtr, ndtri, xlog1py, xlogy

from smoothcert.statistics.bounds import Array

_STEP = 0.1
_QUANTILES = _STEP * np.arange(-20, 51)
P = np.asarray(ndtr(_QUANTILES))
"""The values of p, from .023 to 1 - 3e-7."""
_ROUNDS = 20
"""Few rounds keep the distribution smooth: with many, it would shrink to a few spikes."""


def posterior(votes: ArrayLike, weights: Array | float = 1.0) -> Array:
    """The weights of `P` given the votes for the class of each input and their samples, one row per
    input.

    Without `weights`, all are equal before.
    """
    k, n = np.reshape(votes, (-1, 2)).T[..., None]
    log = xlogy(k, P) + xlog1py(n - k, -P)
    likelihood = np.exp(log - log.max(axis=-1, keepdims=True)) * weights
    return np.asarray(likelihood / likelihood.sum(axis=-1, keepdims=True))


def likely_above(p: ArrayLike, count: ArrayLike, samples: ArrayLike) -> Array:
    """How likely it is that the probability of the class is above p, given its votes (with a
    Jeffreys prior).
    """
    k = np.asarray(count)
    n = np.asarray(samples)
    return np.asarray(1 - betainc(k + 0.5, n - k + 0.5, p))


def distribution(votes: Mapping[tuple[int, int], int]) -> Array:
    """The weights of `P` in the population that inputs are drawn from, by expectation maximisation.

    Args:
        votes: How many inputs have how many votes for the class in how many samples.
    """
    pairs = sorted(votes)  # so that the order of the inputs changes no digit
    inputs = np.array([votes[pair] for pair in pairs])
    likely = posterior(pairs)
    weights = np.full(len(P), 1 / len(P))
    for _ in range(_ROUNDS):
        weights *= inputs / (likely @ weights) @ likely / inputs.sum()
    return weights


def share_above(p: ArrayLike, weights: Array) -> Array:
    """The share of a population whose probability of the class is above each p.

    Args:
        p: Probabilities; 1 and more are never exceeded.
        weights: The weights of `P`. Each is spread evenly over its step of the grid.
    """
    quantile = ndtri(np.clip(p, 0, 1))[..., None]
    return np.asarray(np.clip((_QUANTILES - quantile) / _STEP + 0.5, 0, 1) @ weights)

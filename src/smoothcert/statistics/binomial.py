"""The binomial distribution in the forms that bounds, coverage and audit need."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaln, xlog1py, xlogy

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


def pmf(k: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """P(exactly k votes of n)."""
    k, n, p = np.asarray(k), np.asarray(n), np.asarray(p, float)
    log = xlogy(k, p) + xlog1py(n - k, -p) - betaln(k + 1, n - k + 1) - np.log(n + 1)
    return np.asarray(np.exp(log))


def likely(n: int, p: float) -> tuple[Counts, Array]:
    """All counts of n votes but those in the far tails, which have less than 1e-20, and their probabilities."""
    spread = 9.5 * np.sqrt(n * p * (1 - p)) + 40
    counts = np.arange(max(int(n * p - spread), 0), min(int(n * p + spread) + 1, n) + 1)
    return counts, pmf(counts, n, p)


def tail(k: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """P(at least k votes of n): 1 for k <= 0 and 0 for k > n."""
    k, n = np.asarray(k), np.asarray(n)
    inside = (k >= 1) & (k <= n)
    return np.where(inside, betainc(np.where(inside, k, 1), np.where(inside, n - k + 1, 1), p), k < 1)


def summed_tail(count: int, samples: int, p: float) -> float:
    """P(at least `count` votes of `samples`), summed term by term with Python's arithmetic.

    It shares no code with `tail`, so that an audit does not trust the same function twice. Terms are summed away from
    the most likely count, where they only shrink: elsewhere the first one may underflow.
    """
    if count <= 0 or p >= 1:
        return 1.0
    if p <= 0 or count > samples:
        return 0.0
    if count <= samples * p:
        return 1 - summed_tail(samples - count + 1, samples, 1 - p)
    log_ways = math.lgamma(samples + 1) - math.lgamma(count + 1) - math.lgamma(samples - count + 1)
    term = math.exp(log_ways + count * math.log(p) + (samples - count) * math.log1p(-p))
    terms = [term]
    for k in range(count, samples):
        term *= (samples - k) / (k + 1) * (p / (1 - p))
        terms.append(term)
        if term < 1e-17 * terms[0]:
            break
    return math.fsum(terms)


def smallest(holds: Callable[[Counts], NDArray[np.bool_]], low: ArrayLike, high: ArrayLike) -> Counts:
    """The smallest whole numbers above `low` for which something holds, or `high` where none is, by bisection.

    What holds for a number has to hold for all larger ones. All are searched at once, so `holds` is also asked about
    numbers that are found already, from `low` on. These answers are ignored.
    """
    low, high = np.broadcast_arrays(np.asarray(low, np.int64), np.asarray(high, np.int64))
    while np.any(apart := high - low > 1):
        middle = (low + high) // 2
        held = holds(middle)
        low, high = np.where(apart & ~held, middle, low), np.where(apart & held, middle, high)
    return np.asarray(high)

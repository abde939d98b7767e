"""The binomial distribution: its probabilities and tails, and Clopper-Pearson bounds that never
overclaim.

Symbols: `a` votes out of `k` samples, confidence 1 - alpha.

    lower   L(a, k, alpha) = alpha-quantile of Beta(a, k - a + 1)        0 if a = 0
    upper   U(a, k, alpha) = (1 - alpha)-quantile of Beta(a + 1, k - a)  1 if a = k

`a` may be real while planning (a = p k). What is returned is rounded outward: a lower bound is
never above the exact quantile and an upper bound never below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv, betaln, ndtri, xlog1py, xlogy

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noises.base import Numbers

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

# Within these limits `betainc` itself is off by up to 3e-11 (relative) wherever a lower bound can
# exceed 1/2 at an alpha of at most .1, and by anything beyond them. Asking the tail to be smaller
# than alpha by this share covers that and costs no more than the same share of the bound. (For few
# votes among millions at alpha > .5 it is off by 2e-8.)
_TAIL_MARGIN = 1e-10
_MOST_SAMPLES = 10**9
_MANY = 10_000
"""Among more pairs (votes, samples) than this, many are equal, and each pair takes a
microsecond."""


class Interval(NamedTuple):
    """A two-sided confidence interval."""

    low: Numbers
    high: Numbers


def lower_bound(count: ArrayLike, samples: ArrayLike, *, alpha: float) -> Numbers:
    """L(a, k, alpha): the true probability is at least this, with confidence 1 - alpha.

    >>> float(lower_bound(990, 1000, alpha=0.001))
    0.97603618...
    """
    a, k = _counts(count, samples)
    alpha = check_alpha(alpha)
    if a.size > _MANY:
        pairs, where = np.unique(np.stack([a.ravel(), k.ravel()]), axis=1, return_inverse=True)
        return _lower_bound(pairs[0], pairs[1], alpha)[where].reshape(a.shape)
    return _lower_bound(a, k, alpha)


def _lower_bound(a: Array, k: Array, alpha: float) -> Numbers:
    b = k - a + 1
    voted = np.where(a > 0, a, 1.0)  # Beta(0, .) has no quantile; its bound is 0
    exact = np.where(a > 0, betaincinv(voted, b, alpha), 0.0)
    # A failed inversion (some SciPy releases) starts at 1 and is brought down by the check like any
    # other guess.
    bound = np.where(np.isfinite(exact), exact, 1.0)
    step = float(np.finfo(float).eps)
    limit = alpha * (1 - _TAIL_MARGIN)
    while True:
        over = (a > 0) & ~(betainc(voted, b, bound) <= limit)
        if not np.any(over):
            return bound[()]
        bound = np.where(over, bound * (1 - step), bound)
        step = min(2 * step, 0.5)


def upper_bound(count: ArrayLike, samples: ArrayLike, *, alpha: float) -> Numbers:
    """U(a, k, alpha): the true probability is at most this, with confidence 1 - alpha.

    A vote for is a missing vote against: U(a, k) = 1 - L(k - a, k).
    """
    a, k = _counts(count, samples)
    return one_minus_up(lower_bound(k - a, k, alpha=alpha))


def one_minus_up(p: ArrayLike) -> Numbers:
    """1 - p, rounded up."""
    p = np.asarray(p, float)
    return np.where(p > 0, np.minimum(np.nextafter(1 - p, 2), 1), 1.0)[()]


def interval(count: ArrayLike, samples: ArrayLike, *, alpha: float) -> Interval:
    """Two-sided interval at confidence 1 - alpha: each side gets alpha / 2 (`p_low`, `p_up` of the
    paper).
    """
    side = check_alpha(alpha) / 2
    return Interval(
        lower_bound(count, samples, alpha=side), upper_bound(count, samples, alpha=side)
    )


def keeps_bound(
    count: ArrayLike, samples: ArrayLike, bound: ArrayLike, *, alpha: float
) -> NDArray[np.bool_]:
    """Whether L(a, k, alpha) >= bound, without inverting: the tail at `bound` must not exceed
    alpha.

    For planning only, because it is not rounded outward: one `betainc` instead of a root search.
    """
    t = np.clip(bound, 0, 1)
    return np.asarray((tail(count, samples, t) <= alpha) | (t <= 0))


def critical_count(bound: ArrayLike, samples: ArrayLike, *, alpha: float) -> NDArray[np.int64]:
    """The smallest count whose lower bound reaches `bound`; samples + 1 if even unanimous votes do
    not.

    A normal approximation with its skewness term is never off by more than a few counts; single
    steps correct it.

    >>> critical_count(0.5, [9, 10, 100], alpha=0.001).tolist()
    [10, 10, 66]
    """
    alpha = check_alpha(alpha)
    t, k = np.broadcast_arrays(_check.probabilities("a bound", bound), np.asarray(samples))
    p = t.ravel()
    n = k.ravel().astype(np.int64)
    z = -ndtri(alpha)
    guess = n * p + z * np.sqrt(n * p * (1 - p)) + (1 - 2 * p) * (z * z - 1) / 6
    count: NDArray[np.int64] = np.clip(np.ceil(guess), 0, n + 1).astype(np.int64)
    left = np.arange(len(count))
    while len(left):
        tried = count[left]
        too_small = ~keeps_bound(tried, n[left], p[left], alpha=alpha)
        too_large = (tried > 0) & keeps_bound(tried - 1, n[left], p[left], alpha=alpha)
        count[left] += too_small.astype(int) - too_large
        left = left[too_small | too_large]
    return count.reshape(t.shape)


def can_certify(samples: int, *, alpha: float) -> bool:
    """Whether unanimous votes would prove a majority: alpha ** (1 / k) > 1/2."""
    return bool(lower_bound(samples, samples, alpha=alpha) > 0.5)


def check_alpha(alpha: Any) -> float:
    """Any level of a bound. What a user chooses is checked by `_check.alpha`."""
    return _check.between("alpha", alpha, _check.SMALLEST_ALPHA, 1)


def _counts(count: ArrayLike, samples: ArrayLike) -> tuple[Array, Array]:
    a, k = np.broadcast_arrays(np.asarray(count, float), np.asarray(samples, float))
    wrong = ~((k >= 1) & (k <= _MOST_SAMPLES))
    if np.any(wrong):
        raise InvalidInput(
            "samples-out-of-range",
            "samples must lie between 1 and {most:,}, got {samples:g}",
            most=_MOST_SAMPLES,
            samples=k[wrong].flat[0],
        )
    wrong = ~((a >= 0) & (a <= k))  # NaN is wrong, too
    if np.any(wrong):
        raise InvalidInput(
            "count-out-of-range",
            "count must lie between 0 and samples ({samples:g}), got {count:g}",
            samples=k[wrong].flat[0],
            count=a[wrong].flat[0],
        )
    return a, k


def pmf(k: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """P(exactly k votes of n)."""
    k = np.asarray(k)
    n = np.asarray(n)
    p = np.asarray(p, float)
    log = xlogy(k, p) + xlog1py(n - k, -p) - betaln(k + 1, n - k + 1) - np.log(n + 1)
    return np.asarray(np.exp(log))


def likely(n: int, p: float) -> tuple[Counts, Array]:
    """All counts of n votes but those in the far tails, which have less than 1e-20, and their
    probabilities.
    """
    spread = 9.5 * np.sqrt(n * p * (1 - p)) + 40
    counts = np.arange(max(int(n * p - spread), 0), min(int(n * p + spread) + 1, n) + 1)
    return counts, pmf(counts, n, p)


def tail(k: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """P(at least k votes of n): 1 for k <= 0 and 0 for k > n."""
    k = np.asarray(k)
    n = np.asarray(n)
    inside = (k >= 1) & (k <= n)
    return np.where(
        inside, betainc(np.where(inside, k, 1), np.where(inside, n - k + 1, 1), p), k < 1
    )


def summed_tail(count: int, samples: int, p: float) -> float:
    """P(at least `count` votes of `samples`), summed term by term with Python's arithmetic.

    It shares no code with `tail`, so that an audit does not trust the same function twice. Terms
    are summed away from the most likely count, where they only shrink: elsewhere the first one may
    underflow.
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


def smallest(
    holds: Callable[[Counts], NDArray[np.bool_]], low: ArrayLike, high: ArrayLike
) -> Counts:
    """The smallest whole numbers above `low` for which something holds, or `high` where none is, by
    bisection.

    What holds for a number has to hold for all larger ones. All are searched at once, so `holds` is
    also asked about numbers that are found already, from `low` on. These answers are ignored.
    """
    low, high = np.broadcast_arrays(np.asarray(low, np.int64), np.asarray(high, np.int64))
    while True:
        apart = high - low > 1
        if not np.any(apart):
            return np.asarray(high)
        middle = (low + high) // 2
        held = holds(middle)
        low = np.where(apart & ~held, middle, low)
        high = np.where(apart & held, middle, high)

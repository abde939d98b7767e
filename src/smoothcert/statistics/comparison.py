"""Two models on the same inputs: what their difference shows beyond chance.

D is 1 for an input that only B certifies, -1 for one that only A certifies and 0 for all others.
The question is about delta, the mean of D over all inputs of the kind that these n were drawn from
at random.

- `mcnemar` is exact for delta = 0: given the number of pairs that differ, B has its share of them
  with probability 1/2.
- `difference_interval` tests every other delta with the distribution of the sum of D, at the most
  likely share of differing pairs for that delta (Tango 1998), with a tenth of alpha in reserve,
  because the true share may be a worse one. No theorem says that this is enough. In all cases that
  the tests enumerate, it errs on each side with probability alpha / 2 at most. It contains 0
  exactly if `mcnemar` does not reject.
- `bounded_mean_interval` is about the mean of anything that is bounded, such as differences of
  radii. It bets a stake c on each value. For values y from 0 to 1, the payoff 1 + c (y - m) / m, 0
  < c < 1, has a mean of at most 1 if y has a mean of at most m. So the wealth, a mean over stakes
  of the product of payoffs, ever reaches 1 / alpha with a probability of at most alpha (Ville).
  This holds at every number of inputs at once, so that sampling may stop whenever it is clear
  enough (`anytime_interval`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from smoothcert.noises.base import bisect_each
from smoothcert.statistics import bounds
from smoothcert.statistics.bounds import Interval, critical_count

_STAKES = ((np.arange(64) + 0.5) / 64) ** 2  # small stakes win against small differences
_HALVINGS = 40  # of an interval
_CELLS = 2**14  # values are rounded down to a grid, so that many inputs take no longer
_RESERVE = 0.1  # the part of alpha that pays for the unknown share of differing pairs
_ABOVE_ZERO = math.nextafter(0, 1)  # the end of an interval that does not contain 0
_FLIPS = 2_000
_FLIPS_AT_ONCE = 250
_POWER = 0.8


def mcnemar(only_a: int, only_b: int) -> float:
    """The exact two-sided p-value of "A and B are certified equally often".

    >>> mcnemar(2, 12)
    0.012939453125
    """
    return min(1.0, 2 * float(bounds.tail(max(only_a, only_b), only_a + only_b, 0.5)))


def difference_interval(only_a: int, only_b: int, inputs: int, *, alpha: float) -> Interval:
    """An interval of delta at confidence 1 - alpha, for a number of inputs that was fixed
    beforehand.

    >>> low, high = difference_interval(2, 12, 500, alpha=0.05)
    >>> round(low, 4), round(high, 4)
    (0.0046, 0.0387)
    """

    def not_rejected(a: int, b: int) -> float:
        """The end of all delta that are rejected from below."""
        allowed = (1 - _RESERVE) * alpha / 2
        return _largest(
            lambda delta: _reaches(a, b, inputs, delta) <= allowed, -1, (b - a) / inputs
        )

    low = not_rejected(only_a, only_b)
    high = -not_rejected(only_b, only_a)
    if mcnemar(only_a, only_b) > alpha:
        return Interval(min(low, 0.0), max(high, 0.0))
    if only_b > only_a:
        return Interval(max(low, _ABOVE_ZERO), high)
    return Interval(low, min(high, -_ABOVE_ZERO))


def anytime_interval(only_a: int, only_b: int, inputs: int, *, alpha: float) -> Interval:
    """An interval of delta that holds for all numbers of inputs together with
    confidence 1 - alpha.
    """
    pairs = np.repeat([-1, 0, 1], [only_a, inputs - only_a - only_b, only_b])
    return bounded_mean_interval(pairs, (-1, 1), alpha=alpha)


def bounded_mean_interval(
    values: ArrayLike, limits: tuple[float, float], *, alpha: float
) -> Interval:
    """An interval of the mean of values between two limits that holds with confidence 1 - alpha at
    any time.

    >>> low, high = bounded_mean_interval([0.1, 0.2, 0.0, 0.1] * 50, (-2, 2), alpha=0.05)
    >>> round(low, 3), round(high, 3)
    (0.036, 0.158)
    """
    least, most = limits
    size = most - least
    share = (np.asarray(values, float) - least) / size

    def low(share: bounds.Array) -> float:
        return _largest(
            lambda mean: _exceeds(share, mean, alpha=alpha / 2), 0.0, float(share.mean())
        )

    return Interval(least + size * low(share), most - size * low(1 - share))


def log_wealth(counts: ArrayLike, values: ArrayLike, mean: float) -> bounds.Array:
    """The logarithm of what bets against "the mean is at most this" have won.

    Args:
        counts: How often each value was seen.
        values: Values from 0 to 1.
        mean: The mean.
    """
    gain = (np.asarray(values, float)[:, None] - mean) / max(mean, 1e-12)
    won = np.asarray(counts) @ np.log1p(_STAKES * gain)
    return np.asarray(np.logaddexp.reduce(won, axis=-1) - math.log(len(_STAKES)))


def _exceeds(share: bounds.Array, mean: float, *, alpha: float) -> bool:
    """Whether bets show that the mean of values from 0 to 1 is larger than this."""
    cells, counts = np.unique(np.floor(share * _CELLS), return_counts=True)
    return float(log_wealth(counts, cells / _CELLS, mean)) >= math.log(1 / alpha)


def mean_interval(differences: ArrayLike, *, alpha: float) -> Interval:
    """Student's interval of a mean, which is approximate: it does not cover rare large values.

    Infinite for one value.

    >>> low, high = mean_interval([0.1, 0.2, 0.0, 0.1], alpha=0.05)
    >>> round(low, 3), round(high, 3)
    (-0.03, 0.23)
    """
    d = np.asarray(differences, float)
    if len(d) < 2:
        return Interval(-math.inf, math.inf)
    error = float(stdtrit(len(d) - 1, 1 - alpha / 2) * np.std(d, ddof=1)) / math.sqrt(len(d))
    return Interval(float(np.mean(d)) - error, float(np.mean(d)) + error)


def differ(
    a: ArrayLike,
    b: ArrayLike,
    *,
    alpha: float,
    largest: tuple[float | None, float | None] = (None, None),
) -> bool:
    """Whether the means of A and B over the same inputs differ by more than chance.

    For yes or no, `mcnemar` tells. For numbers that are not negative, bets tell.

    Args:
        a: The values of A.
        b: The values of B.
        alpha: The probability to claim a difference where there is none.
        largest: The largest value that A can have, and B. Without it, Student's interval tells,
            which is approximate.

    >>> differ([True] * 12 + [False] * 8, [False] * 20, alpha=0.05)
    True
    """
    a = np.asarray(a)
    b = np.asarray(b)
    if a.dtype == bool:
        return mcnemar(int(np.sum(a & ~b)), int(np.sum(b & ~a))) <= alpha
    most_a, most_b = largest
    if most_a is None or most_b is None:
        low, high = mean_interval(b - a, alpha=alpha)
        return bool(low > 0 or high < 0)
    size = most_a + most_b
    return any(
        _exceeds((gain + most) / size, most / size, alpha=alpha / 2)
        for gain, most in ((b - a, most_a), (a - b, most_b))
    )


def curve_band(differences: ArrayLike, *, alpha: float) -> float:
    """How far from 0 the mean of a column has to be, to be more than chance for all columns
    together.

    It is a quantile of the largest mean after the signs of whole rows are flipped at random. If A
    and B are alike, every choice of signs is as likely as the one that was seen, so the test
    whether the band excludes 0 is exact.

    Args:
        differences: D for each input (row) and radius (column).
        alpha: The largest probability that any mean is further away if A and B are alike.
    """
    d = np.asarray(differences, np.float32)
    generator = np.random.default_rng(0)
    furthest: list[bounds.Array] = []
    for _ in range(_FLIPS // _FLIPS_AT_ONCE):
        flips = 2 * generator.integers(2, size=(_FLIPS_AT_ONCE, len(d)), dtype=np.int8) - 1
        furthest.extend(np.abs(flips @ d).max(axis=1))
    # Adding what was seen itself to the flips makes the test exact.
    place = min(math.ceil((1 - alpha) * (_FLIPS + 1)), _FLIPS) - 1
    return float(np.sort(furthest)[place]) / len(d)


def power(difference: float, differing: float, inputs: int, *, alpha: float) -> float:
    """The probability that `mcnemar` shows a difference.

    Args:
        difference: The true delta.
        differing: The share of pairs that differ, at least the difference.
        inputs: The number of inputs.
        alpha: The probability to claim a difference where there is none.

    >>> round(power(0.03, 0.08, 500, alpha=0.05), 2)
    0.61
    """
    count, weight = bounds.likely(inputs, differing)
    share = 0.5 + difference / differing / 2
    needed = critical_count(0.5, np.maximum(count, 1), alpha=alpha / 2)
    detected = bounds.tail(needed, count, share) + bounds.tail(needed, count, 1 - share)
    return float(np.sum(weight * detected))


def detectable(differing: float, inputs: int, *, alpha: float) -> float:
    """The smallest difference that this many inputs show in four cases of five.

    Args:
        differing: The share of pairs that differ. A larger difference also makes more pairs differ.
        inputs: The number of inputs.
        alpha: The probability to claim a difference where there is none.

    >>> round(detectable(0.08, 500, alpha=0.05), 3)
    0.037
    """
    return _largest(
        lambda delta: power(delta, max(differing, delta), inputs, alpha=alpha) < _POWER, 1e-9, 1.0
    )


def _largest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The largest value between `low` and `high`, rounded down, up to which a condition holds."""
    return float(bisect_each(holds, low, high, halvings=_HALVINGS))


def _reaches(only_a: int, only_b: int, inputs: int, delta: float) -> float:
    """P(sum of D >= only_b - only_a) under delta, at the most likely share of differing pairs
    (Tango 1998).
    """
    n = inputs
    net = only_b - only_a
    linear = (2 * n - net) * delta - only_a - only_b
    constant = -only_a * delta * (1 - delta)
    only_a_share = (math.sqrt(max(linear**2 - 8 * n * constant, 0.0)) - linear) / (4 * n)
    differing = min(max(2 * only_a_share + delta, abs(delta)), 1.0)
    if differing == 0:
        return float(net <= 0)
    count, weight = bounds.likely(n, differing)
    share = min(max(0.5 + delta / differing / 2, 0.0), 1.0)
    return float(np.sum(weight * bounds.tail((net + count + 1) // 2, count, share)))

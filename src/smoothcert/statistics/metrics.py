"""Figures over a data set, as pure functions of radii and correctness.

A wrong or abstained input counts with radius 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.statistics import bounds
from smoothcert.statistics.bounds import Array, Counts, Interval
from smoothcert.statistics.comparison import differ, mean_interval

CONFIDENCE = 0.95
"""The confidence of bands over inputs. It has nothing to do with the alpha of a certificate."""
_RISK = 0.01
"""The largest probability that more certificates are wrong than is said."""
_EXACT = Context(prec=400)  # room for all digits of any float


def average_certified_radius(radius: ArrayLike, correct: ArrayLike) -> float:
    """ACR: the mean of radius x [prediction correct].

    >>> average_certified_radius([1.0, 0.5, 2.0], [True, True, False])
    0.5
    """
    return float(np.mean(np.asarray(radius, float) * np.asarray(correct, bool)))


def acr_band(radius: ArrayLike, correct: ArrayLike, *, largest: float | None = None) -> Interval:
    """A band for the ACR over all inputs of this kind, given a random sample of them: Student's
    interval, without what is below 0 or above the `largest` radius that an input can have.

    >>> low, high = acr_band([1.0, 0.5, 2.0, 1.5], [True, True, False, True])
    >>> round(low, 3), round(high, 3)
    (0.0, 1.777)
    """
    value = np.asarray(radius, float) * np.asarray(correct, bool)
    low, high = mean_interval(value, alpha=1 - CONFIDENCE)
    if largest is not None:
        high = min(high, largest)
    return Interval(max(low, 0.0), high)


def certified_accuracy(
    radius: ArrayLike, correct: ArrayLike, radii: ArrayLike, *, closed: bool = False
) -> Array:
    """CA(r): the share of inputs that are correct with a radius strictly above r, for each r of
    `radii`.

    >>> certified_accuracy([1.0, 0.5, 2.0], [True, True, False], [0.0, 0.5]).round(2).tolist()
    [0.67, 0.33]
    """
    each = [
        certified(radius, correct, r, closed=closed).mean(axis=-2) for r in np.atleast_1d(radii)
    ]  # less memory
    return np.concatenate(each, axis=-1) if each else np.zeros(0)


def certified(
    radius: ArrayLike, correct: ArrayLike, radii: ArrayLike, *, closed: bool = False
) -> NDArray[np.bool_]:
    """Whether each input (row) is correct with a radius strictly above each r of `radii` (column),
    or at least r.
    """
    proved = np.where(np.asarray(correct, bool), np.asarray(radius, float), -np.inf)
    above = np.greater_equal if closed else np.greater
    return np.asarray(above(proved[..., None], np.asarray(radii, float)))


def certified_accuracy_band(
    radius: ArrayLike, correct: ArrayLike, radii: ArrayLike, *, closed: bool = False
) -> Interval:
    """Clopper-Pearson interval for each CA(r), the inputs being a random sample.

    >>> band = certified_accuracy_band([1.0] * 50, [True] * 50, [0.5])
    >>> band.low.round(3).tolist(), band.high.tolist()
    ([0.929], [1.0])
    """
    n = np.shape(correct)[-1]
    count = np.rint(certified_accuracy(radius, correct, radii, closed=closed) * n)
    return bounds.interval(count, n, alpha=1 - CONFIDENCE)


def largest_decline(radius: ArrayLike, reference: ArrayLike) -> float:
    """MAD: the largest loss of radius over inputs against the same inputs at the full ceiling, on
    the same noise.
    """
    return float(np.max(np.asarray(reference, float) - np.asarray(radius, float), initial=0.0))


def samples_saved(samples: ArrayLike, ceiling: int) -> float:
    """The share of forward passes saved against spending `ceiling` on every input.

    >>> samples_saved([1_000, 4_000], 10_000)
    0.75
    """
    return 1 - float(np.mean(np.asarray(samples, float))) / ceiling


def default_radii(largest: float) -> list[float]:
    """Radii for a table: 0 and steps up to the largest one that was proved, at most ten in all.

    The step is 0.25 where that gives two to eight radii, and else the first of ..., 0.1, 0.2, 0.5,
    1, ... that is large enough.

    >>> default_radii(1.0), default_radii(25.0), default_radii(0.01)
    ([0.0, 0.25, 0.5, 0.75], [0.0, 5.0, 10.0, 15.0, 20.0], [0.0, 0.001, 0.002, ...])
    """
    if not largest:
        return [0.0]
    steps = (digit * 10.0**power for power in itertools.count(-9) for digit in (1, 2, 5))
    step = 0.25 if 0.25 < largest <= 2 else next(step for step in steps if largest <= 10 * step)
    return [step * i for i in range(max(math.ceil(largest / step), 1))]


def evenly(length: int, most: int) -> Counts:
    """Places in a sequence, at most `most` of them, evenly spread."""
    return np.unique(np.linspace(0, length - 1, min(length, most)).astype(np.int64))


def round_down(value: float, digits: int = 3) -> str:
    """A radius as text, never larger than it is.

    >>> round_down(1.9059)
    '1.905'
    """
    if math.isinf(value):  # the ideal radius of an input that is always answered alike
        return str(value)
    return (
        f"{Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-digits), ROUND_FLOOR, _EXACT):f}"
    )


def confidence(alpha: float) -> Decimal:
    """1 - alpha with all of its digits. As a float, that of a tiny alpha would be 1.

    >>> f"{confidence(0.05):%}", str(confidence(1e-20))
    ('95%', '0.99999999999999999999')
    """
    return _EXACT.normalize(_EXACT.subtract(Decimal(1), Decimal(repr(float(alpha)))))


class MostWrong(NamedTuple):
    """How many certificates of a run are wrong at most, and the probability of that,
    rounded down.
    """

    wrong: int
    probability: Decimal


def most_wrong(alpha: float, inputs: int) -> MostWrong:
    """The smallest number of wrong certificates that is not exceeded with a probability of 0.99 or
    more.

    Whatever was seen of other inputs, an input gets a wrong certificate with probability alpha at
    most. So the number of wrong certificates is at most that of a Binomial(N, alpha) variable in
    distribution.

    Args:
        alpha: The largest probability that a certificate is wrong.
        inputs: All inputs that were tried (N), with or without a certificate.

    >>> [(count, str(p)) for count, p in (most_wrong(0.001, 500), most_wrong(0.000142857, 7))]
    [(3, '0.998'), (0, '0.999')]
    """
    most = math.ceil(inputs * alpha + 6 * math.sqrt(inputs * alpha) + 10)
    counts = np.arange(min(most, inputs) + 1)
    risks = bounds.tail(counts + 1, inputs, alpha)
    count = int(np.argmax(risks <= _RISK))
    risk = Context(prec=1, rounding=ROUND_CEILING).create_decimal(repr(float(risks[count])))
    return MostWrong(count, confidence(float(risk)))


def best_of(
    values: Sequence[NDArray[np.generic]],
    *,
    largest: Sequence[float | None] | None = None,
    alpha: float = 1 - CONFIDENCE,
) -> tuple[int, list[int]]:
    """The place of the run with the largest mean, and of all runs that may be as good by chance.

    Args:
        values: One array per run, with one value per input. Runs are paired on the inputs.
        largest: The largest value that each run can have, for values that are not yes or no.
        alpha: The largest probability that the run which is best in truth is not among them.
    """
    best = max(range(len(values)), key=lambda place: values[place].mean())
    alpha /= max(len(values) - 1, 1)
    limits = largest or [None] * len(values)
    as_good = [
        place
        for place, value in enumerate(values)
        if not differ(value, values[best], alpha=alpha, largest=(limits[place], limits[best]))
    ]
    return best, as_good

"""The distribution of a rounded normal number, as thresholds for 64 random bits.

k = round(deviation * z) has P(k <= j) = Phi((j + 1/2) / deviation). If w is 64 random bits as an
integer, then the number of thresholds T_j = 2^64 * Phi((j + 1/2) / deviation) that are at most w
has this distribution, up to the rounding of each threshold and to the tails beyond the first and
the last one.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidInput

_BITS = 64
_DIGITS = 70
"""Decimal digits of the computation."""
LARGEST_DEVIATION = 5_000
"""In steps."""
_SPREAD = 9.2
"""Standard deviations on each side; Phi(-9.2) is below 2^-65."""
_SERIES_END = 10
"""Standard deviations beyond which every threshold is 2^64, and the series would be very long."""


class Thresholds(NamedTuple):
    """How 64 random bits become a rounded normal number."""

    smallest: int
    """The number that stands for bits below the first threshold."""
    values: NDArray[np.uint64]
    """In increasing order. The number is `smallest` plus how many of them are at most the bits."""
    error: float
    """An upper bound on the total-variation distance to a rounded normal number."""


@lru_cache(maxsize=16)
def thresholds(deviation: float) -> Thresholds:
    """The thresholds for rounded normal numbers of this standard deviation.

    >>> thresholds(1.0).smallest, len(thresholds(1.0).values)
    (-9, 18)
    """
    if deviation > LARGEST_DEVIATION:
        raise InvalidInput(
            "deviation-too-large",
            "the standard deviation must be at most {most:,} steps, got {deviation:g}: use a "
            "larger step",
            most=LARGEST_DEVIATION,
            deviation=deviation,
        )
    above: list[int] = []  # 2^64 * Phi((j + 1/2) / deviation) for j = 0, 1, ...
    with localcontext() as context:
        context.prec = _DIGITS
        scale = 1 / Decimal(deviation)
        for j in range(int(_SPREAD * deviation) + 2):
            x = (j + Decimal("0.5")) * scale
            if x > _SERIES_END:
                break
            threshold = int((2**_BITS * _distribution(x)).to_integral_value())
            if threshold >= 2**_BITS:
                break
            above.append(threshold)
    values = [2**_BITS - threshold for threshold in reversed(above)] + above
    # Each threshold is off by at most 2^-65, and so is each of the two tails that are cut off.
    error = (len(values) + 2) * 2.0 ** -(_BITS + 1)
    return Thresholds(-len(above), np.array(values, np.uint64), error)


def _distribution(x: Decimal) -> Decimal:
    """Phi(x) = 1/2 + phi(x) * (x + x^3 / 3 + x^5 / (3 * 5) + ...), for x >= 0.

    All terms are positive.
    """
    term = x
    total = x
    square = x * x
    odd = 1
    limit = Decimal(10) ** -(_DIGITS - 10)
    while term > limit * total:
        odd += 2
        term = term * square / odd
        total += term
    return Decimal("0.5") + total * (-square / 2).exp() / _SQRT_TWO_PI


_SQRT_TWO_PI = Decimal(
    "2.506628274631000502415765284811045253006986740609938316629923576342293654607841974946595838378"
)

"""Figures over a data set, as pure functions of radii and correctness.

A wrong or abstained input counts with radius 0.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


def average_certified_radius(radius: ArrayLike, correct: ArrayLike) -> float:
    """ACR: the mean of radius x [prediction correct].

    >>> average_certified_radius([1.0, 0.5, 2.0], [True, True, False])
    0.5
    """
    return float(np.mean(np.asarray(radius, float) * np.asarray(correct, bool)))


def certified_accuracy(radius: ArrayLike, correct: ArrayLike, radii: ArrayLike) -> NDArray[np.float64]:
    """CA(r): the share of inputs that are correct with a radius strictly above r, for each r of `radii`.

    >>> certified_accuracy([1.0, 0.5, 2.0], [True, True, False], [0.0, 0.5]).round(2).tolist()
    [0.67, 0.33]
    """
    proved = np.where(np.asarray(correct, bool), np.asarray(radius, float), -np.inf)
    return np.mean(proved[..., None] > np.asarray(radii, float), axis=-2)


def largest_decline(radius: ArrayLike, reference: ArrayLike) -> float:
    """MAD: the largest loss of radius over inputs against the same inputs at the full ceiling, on the same noise."""
    return float(np.max(np.asarray(reference, float) - np.asarray(radius, float), initial=0.0))


def default_radii(largest: float) -> list[float]:
    """Radii for a table: 0 and steps of 0.25 (0.5 above 2) up to the largest one that was proved."""
    step = 0.25 if largest <= 2 else 0.5
    return [step * i for i in range(max(math.ceil(largest / step), 1))]


def round_down(value: float, digits: int = 3) -> str:
    """A radius as text, never larger than it is.

    >>> round_down(1.9059)
    '1.905'
    """
    text = f"{value:.{digits}f}"
    return text if float(text) <= value else f"{value - 0.5 * 10**-digits:.{digits}f}"

"""Exact group sequential boundaries: how many votes prove at which look that a probability exceeds
a threshold.

Looks are taken at n_1 < ... < n_m samples. The boundary b(i) is the smallest number of votes such
that, at p = t, the probability to have reached the boundary by look i is at most

    alpha * (n_i / n_m) ** 0.6

"Reached at some look" is an increasing event of the votes. So its probability grows with p, and for
every p <= t it is at most its value at t. Giving up early can only lower it.

The computation is a forward recursion over misses (samples minus votes): the distribution of those
that have not yet reached the boundary is convolved with the next draw, and what reaches the
boundary is cut off.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from smoothcert.statistics.bounds import Array, Counts, likely, smallest

FIRST_LOOK = 60
GROWTH = 1.2
SPENDING = 0.6
"""The exponent of the spending function: how fast alpha may be spent."""
GIVE_UP = 0.02
"""A radius is given up when the chance to reach its last boundary falls below this."""

Group = tuple[int, Array]
"""Neighbouring counts: the first one, and the probability of each count from there on."""

_ROUNDING = 1e-14
"""Per sample; a binomial probability of n samples is off by up to 3.5e-15 * n (relative)."""
_RARE = 1e-20
"""Counts with a smaller probability are cut off at both ends of a distribution."""


class Boundary(NamedTuple):
    """The boundary for one threshold."""

    votes: Counts
    """Votes needed at each look; more than its samples where no votes are enough."""
    spent: float
    """The probability to reach the boundary at p = t, never rounded down."""


def default_looks(samples: int) -> tuple[int, ...]:
    """When to look: at 60 samples, then at 1.2 times as many each, until the ceiling.

    >>> len(default_looks(10_000)), len(default_looks(100_000))
    (29, 42)
    """
    return growing_looks(FIRST_LOOK, GROWTH, samples)


@lru_cache(maxsize=64)
def growing_looks(first: int, growth: float, last: int) -> tuple[int, ...]:
    """Numbers of samples that grow by a factor each, rounded up, from the first to the last."""
    looks = [min(first, last)]
    while looks[-1] < last:
        looks.append(min(ceil(growth * looks[-1]), last))
    return tuple(looks)


def boundary(threshold: float, looks: Sequence[int], *, alpha: float) -> Boundary:
    """The exact boundary for one threshold.

    >>> from scipy.special import ndtr
    >>> votes, spent = boundary(float(ndtr(1)), [100, 1_000, 10_000], alpha=0.001)
    >>> votes.tolist(), round(spent, 12)
    ([97, 882, 8529], 0.000938044201)
    """
    budgets = alpha * (np.asarray(looks, float) / looks[-1]) ** SPENDING
    votes = np.empty(len(looks), np.int64)
    walk = _Walk(threshold, looks)
    for i, n in enumerate(looks):
        walk.step(i)
        votes[i] = n - walk.absorb_up_to_budget(budgets[i])
    return Boundary(votes, walk.spent)


def crossing_probability(votes: ArrayLike, looks: Sequence[int], p: float) -> float:
    """The probability to reach a given boundary at some look, never rounded down."""
    walk = _Walk(p, looks)
    for i, (n, needed) in enumerate(zip(looks, np.asarray(votes).tolist(), strict=True)):
        walk.step(i)
        walk.absorb(n - needed)
    return walk.spent


def crossing_probability_backward(votes: ArrayLike, looks: Sequence[int], p: float) -> float:
    """The probability to reach a given boundary, by a backward recursion over the votes.

    It takes another way than `crossing_probability`: for every count at a look it computes the
    chance to reach the boundary later. An audit compares the two.
    """
    # Before the first look there is one count, 0, that has reached nothing.
    looks = (0, *looks)
    needed = (1, *np.asarray(votes).tolist())
    first = looks[-1]
    chance = np.zeros(0)  # of counts from `first` to just below the boundary
    for i in reversed(range(len(looks))):
        # Counts this far below their mean hardly occur, and would not reach the boundary.
        low = max(int(looks[i] * p - 9.5 * np.sqrt(looks[i] * p * (1 - p)) - 1), 0)
        size = max(needed[i] - low, 0)
        later = np.zeros(size)
        if i < len(looks) - 1 and size:
            # The chance of count c is the sum over k of P(k more votes) times the chance of c + k
            # at the next look.
            more, draw = likely(looks[i + 1] - looks[i], p)
            counts = low + more[0] + np.arange(size + len(draw) - 1)
            later = np.where(counts >= needed[i + 1], 1.0, 0.0)
            computed = (counts >= first) & (counts < first + len(chance))
            later[computed] = chance[counts[computed] - first]
            later = np.convolve(later, draw[::-1])[len(draw) - 1 : len(draw) - 1 + size]
        first = low
        chance = later
    return float(chance[0])


class Stops(NamedTuple):
    """Where nested tests of one probability stop."""

    samples: float
    """Expected samples (ASN), every forward pass counted."""
    levels: Array
    """The probability to have proved 0, 1, 2, ... of the thresholds."""


def stopping_distribution(
    p: float, looks: Sequence[int], needed: Counts, futile: Counts, *, pilot: int = 0
) -> Stops:
    """Where nested tests stop at probability p, exactly.

    Args:
        p: The probability of a vote.
        looks: Samples at each look.
        needed: Votes needed, by threshold and look.
        futile: The largest count with which the next threshold is given up, by threshold and look.
        pilot: Samples of a pilot that does not count.
    """
    levels = np.zeros(len(needed) + 1)
    samples = float(pilot)
    groups = {0: (0, np.ones(1))}
    for i, step in enumerate(np.diff(looks, prepend=0).tolist()):
        drawn: dict[int, list[Group]] = defaultdict(list)
        more, draw = likely(step, p)
        for level, (first, mass) in groups.items():
            samples += step * float(mass.sum())
            drawn[level].append((first + int(more[0]), np.convolve(mass, draw)))
        proved: dict[int, list[Group]] = defaultdict(list)
        for level, (first, mass) in merged(drawn)[0].items():
            counts = first + np.arange(len(mass))
            reached = np.maximum((counts[:, None] >= needed[:, i]).sum(axis=1), level)
            for value in np.unique(reached).tolist():
                proved[value].append((first, np.where(reached == value, mass, 0.0)))
        groups = {}
        for level, (first, mass) in merged(proved)[0].items():
            counts = first + np.arange(len(mass))
            stops = counts <= futile[min(level, len(needed) - 1), i]
            stops |= level == len(needed) or i == len(looks) - 1
            levels[level] += float(mass[stops].sum())
            groups[level] = (first, np.where(stops, 0.0, mass))
    return Stops(samples, levels)


def futility_counts(last: int, looks: Sequence[int], give_up: float = GIVE_UP) -> Counts:
    """The largest count at each look with which a boundary is given up; -1 where no count is
    hopeless.

    The chance to reach the last boundary is that of a beta-binomial distribution with a Jeffreys
    prior, in its normal approximation. Giving up does not touch the guarantee, so an approximation
    is good enough.
    """
    n = np.asarray(looks, float)
    left = n[-1] - n

    def possible(count: Counts) -> NDArray[np.bool_]:
        count = np.clip(count, 0, looks)
        share = (count + 0.5) / (n + 1)
        deviation = np.sqrt(left * share * (1 - share) * (n[-1] + 1) / (n + 2))
        missing = last - count - 0.5 - left * share
        chance = np.where(
            deviation > 0, ndtr(-missing / np.maximum(deviation, 1e-300)), missing <= 0
        )
        return np.asarray(~(chance < give_up))

    return smallest(possible, -1, np.asarray(looks) + 1) - 1


def merged(parts: dict[Any, list[Group]]) -> tuple[dict[Any, Group], float]:
    """The sums of distributions without rare counts at their ends, and the probability that was cut
    off.
    """
    groups = {}
    lost = 0.0
    for key, pieces in parts.items():
        first = min(start for start, _ in pieces)
        total = np.zeros(max(start + len(part) for start, part in pieces) - first)
        for start, part in pieces:
            total[start - first : start - first + len(part)] += part
        common = np.flatnonzero(total > _RARE)
        low = high = 0
        if len(common):
            low = int(common[0])
            high = int(common[-1]) + 1
            groups[key] = first + low, total[low:high]
        lost += float(total[:low].sum() + total[high:].sum())
    return groups, lost


class _Walk:
    """The distribution of misses among those that have not reached the boundary."""

    def __init__(self, p: float, looks: Sequence[int]) -> None:
        self.p = p
        self.looks = looks
        self.spent = 0.0
        self._first = 0
        self._mass = np.ones(1)
        # The logarithms behind a binomial probability are off by some units in the last place of
        # numbers as large as the sample size. This bounds what that does to one look.
        self._rounding = _ROUNDING * looks[-1]

    def step(self, i: int) -> None:
        """Draw up to look i."""
        misses, draw = likely(self.looks[i] - (self.looks[i - 1] if i else 0), 1 - self.p)
        mass = np.convolve(self._mass, draw)
        # What is cut off at the far end, many misses, could still have reached the boundary: it
        # counts as spent.
        end = len(mass) - int(np.searchsorted(np.cumsum(mass[::-1]), 1e-20))
        self.spent += float(mass[end:].sum()) + 2e-20
        self._first, self._mass = self._first + int(misses[0]), mass[:end]

    def absorb_up_to_budget(self, budget: float) -> int:
        """Cut off as many of the smallest misses as the budget allows; returns the largest miss
        that is cut off.
        """
        if self.spent > budget:
            # The tails that `step` leaves out are too likely for a tiny alpha: nothing is proved.
            return -1
        reached = self.spent + np.cumsum(self._mass) * (1 + self._rounding)
        misses = self._first + int(np.searchsorted(reached, budget, side="right")) - 1
        self.absorb(misses)
        return misses

    def absorb(self, misses: int) -> None:
        """Cut off everything up to this many misses."""
        taken = min(max(misses - self._first + 1, 0), len(self._mass))
        self.spent += float(self._mass[:taken].sum()) * (1 + self._rounding)
        self._first, self._mass = self._first + taken, self._mass[taken:]
        if not len(self._mass):
            self._mass = np.zeros(1)

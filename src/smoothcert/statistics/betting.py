"""Bets that a class A beats its rivals everywhere within a radius, on the votes of A, of a rival B
and of all others.

The claim "A beats B everywhere within r" is false only if pA <= h(pB), where h is the noise's
trade-off curve. h is concave, so every tangent encloses the false claims:

    pA - s pB <= k    with s = h'(b0), k = h(b0) - s b0                         (tangent)

X is 1 for a vote for A, -s for a vote for B and 0 for any other vote. Then the payoff

    1 + lam (X - k)    with 0 <= lam < 1 / (s + k)                                  (bet)

has a mean of at most 1 under every false claim, for any b0 and lam that were fixed before the vote
was drawn. So the product of payoffs, the wealth, reaches 1 / alpha with a probability of at most
alpha (Ville), whatever the looks and the reason to stop. A bad choice of b0 and lam costs samples
and never soundness. Only s, k and payoffs are rounded to the safe side.

`plans.betting_radii` says why all rivals and radii can use the full alpha.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers, bisect
from smoothcert.statistics.bounds import Array, Counts
from smoothcert.statistics.group_sequential import default_looks

_COARSE = 128  # tangents among which the best one is searched
_FINE = 32  # times as many are kept
_LEAST = 1e-9  # the smallest b0
_MARGIN = 1e-11  # relative, of h and s; a curve is computed to 1e-13
# Positions between two tangents and stakes are rounded to these grids. Versions of SciPy differ by
# far less.
_PLACES = 2.0**12
_STAKES = 2.0**24
_LARGEST_STAKE = 1 - 2.0**-10
_LOG_MARGIN = 1e-12  # the logarithm of a payoff is off by less
_MOST_NUMBERS = 2**22  # in the largest array
_LOGITS = 21.0  # the largest logit of a probability that is searched for the best payoff
_HALVINGS = 14  # of the interval in which a tangent is searched without a table
_ROUNDS = 5  # of that search, each 32 times as fine
_SIDES = np.array([-1, 0, 1]).reshape(3, 1, 1)


LOOKS: Counts = np.array(default_looks(10**10)[:-1])
"""After how many samples bets change: 60, then 1.2 times as many each, whatever the ceiling."""


class Tangents(NamedTuple):
    """Tangents of the trade-off curves of some radii, on a grid of b0."""

    n_radii: int
    """How many radii there are."""
    zero: bool
    """Whether the first one is 0. Its curve h(b) = b is its own only tangent, and the next two
    arrays leave it out."""
    coarse: Array
    """(3, other radii * coarse points): log h(b0), log b0, log(1 - h(b0) - b0)."""
    points: Array
    """(6, other radii * points): the same three, then h(b0), s, and k as in `_offset`."""
    zero_offset: float
    """k of radius 0."""


@lru_cache(maxsize=64)
def tangents(noise: Noise, radii: tuple[float, ...]) -> Tangents:
    """The tangents for increasing radii; computed once per process."""
    above = [radius for radius in radii if radius > 0]
    points = np.empty((6, len(above), _COARSE * _FINE))
    for j, radius in enumerate(above):
        b = _points(noise, radius)
        h, s = noise.trade_off(radius, b)
        logs = np.log([h, b, np.maximum(1 - h - b, 1e-300)])
        points[:, j] = [*logs, h, s, _offset(noise, h, s, b)]
    coarse = points[:3, :, _FINE // 2 :: _FINE].reshape(3, -1)
    zero = float(_offset(noise, 0.0, 1.0, 0.0))
    return Tangents(len(radii), len(above) < len(radii), coarse, points.reshape(6, -1), zero)


def _offset(noise: Noise, h: ArrayLike, s: ArrayLike, b: ArrayLike) -> Numbers:
    """k = h - s b (tangent), rounded up, for votes whose probabilities are off by the drawing
    error; 1 for no bet.
    """
    h = np.asarray(h)
    slope = np.asarray(s)
    product = slope * np.asarray(b)
    return np.minimum(
        h - product + _MARGIN * (h + product) + (1 + slope) * noise.drawing_error * (1 + _MARGIN),
        1.0,
    )


def _points(noise: Noise, radius: float) -> Array:
    """Where tangents touch: b0 from almost 0 to where h(b0) + b0 = 1, dense at both ends."""
    low = bisect(lambda b: noise.trade_off(radius, b)[0] + b >= 1, _LEAST, 0.5)[0]
    points: Array = low * expit(np.linspace(log(_LEAST / low), -log(_LEAST) / 2, _COARSE * _FINE))
    return points


class Bet(NamedTuple):
    """A bet on the next votes against a rival at each radius; arrays (..., radii)."""

    leader: Array
    """Log payoff of a vote for the class, rounded down, as the next two."""
    rival: Array
    other: Array
    distance: Array
    """How far the votes are from a tie, in standard deviations of one vote; negative on the side of
    a false claim."""


def best_bet(
    table: Tangents,
    leader: ArrayLike,
    rival: ArrayLike,
    drawn: ArrayLike,
) -> Bet:
    """The bet whose wealth grows fastest if votes go on as they came so far.

    With q = (votes + 1/2) / (n + 3/2), b0 maximises qa log h(b) + qb log b + qo log(1 - h(b) - b),
    and lam = (qa / h(b0) - 1) / (1 - k).

    Args:
        table: From `tangents`.
        leader: Votes of the class so far (...).
        rival: Votes of its rival (...).
        drawn: All samples (...).
    """
    a, b, n = np.broadcast_arrays(*(np.asarray(part, float) for part in (leader, rival, drawn)))
    q = ((np.stack([a, b, n - a - b]) + 0.5) / (n + 1.5)).reshape(3, -1, 1)
    shape = (*a.shape, table.n_radii)
    size = _MOST_NUMBERS // (_COARSE * table.n_radii)
    parts = [_bet(table, q[:, i : i + size]) for i in range(0, q.shape[1], size)]
    return Bet(*(np.concatenate(part).reshape(shape) for part in zip(*parts, strict=True)))


def _bet(table: Tangents, q: Array) -> Bet:
    """The best bets for expected votes q (3, n, 1); arrays (n, radii)."""
    h, s, k, likelihood = _touching(table, q)
    divergence = (q * np.log(q)).sum(axis=0) - likelihood
    distance = np.copysign(np.sqrt(np.maximum(2 * divergence, 0)), q[0] - h)
    own, rival, other = _payoffs(q[0], h, s, k)
    return Bet(own, rival, other, distance)


def _payoffs(own: Array, h: Array, s: Array, k: Array) -> Array:
    """Log payoffs of a vote for the class, for the rival and for another class, with the best stake
    on a tangent if votes for the class have the probability `own`.
    """
    edge = own / h - 1
    span = s + k
    rest = 1 - k
    # lam (s + k), from 0 to almost 1. Any stake is sound. Its grid makes results equal on all
    # machines.
    stake = np.minimum(np.maximum(edge * span / np.maximum(rest, _MARGIN), 0), _LARGEST_STAKE) * (
        rest > 0
    )
    stake = np.floor(stake * _STAKES) / _STAKES
    lam = stake / span
    gains = np.empty((3, *h.shape))  # lam (X - k) for X = 1, -s, 0
    gains[0], gains[1], gains[2] = lam * rest, -stake, -lam * k
    payoffs: Array = np.log1p(gains) - _LOG_MARGIN
    return payoffs


class SingleBet(NamedTuple):
    """A bet at one radius."""

    payoffs: Array
    """Log payoffs of a vote for the class, for the rival and for another class (3, ...), rounded
    down."""
    growth: Array
    """How much log wealth grows with a vote, if votes come as expected."""


def bet_at(noise: Noise, radius: ArrayLike, own: ArrayLike, rival: ArrayLike) -> SingleBet:
    """The bet against a rival at one radius, for many inputs, each with a radius of its own.

    The tangent is searched on the curve itself, without a table: any tangent is sound.

    Args:
        noise: The smoothing noise.
        radius: The radius (...).
        own: The expected share of votes for the class (...), above 0.
        rival: That for its rival, above 0.
    """
    radius, a, b = np.broadcast_arrays(radius, own, rival)
    other = np.maximum(1 - a - b, _LEAST)
    low = np.full(radius.shape, -_LOGITS)
    high = np.zeros(radius.shape)
    for _ in range(_HALVINGS):
        middle = np.rint(_PLACES * (low + high) / 2) / _PLACES
        point = expit(middle)
        h, s = noise.trade_off(radius, point)
        room = 1 - h - point
        rises = (room > 0) & (a * s / h + b / point > other * (1 + s) / np.maximum(room, _LEAST))
        low = np.where(rises, middle, low)
        high = np.where(rises, high, middle)
    point = expit(low)
    h, s = noise.trade_off(radius, point)
    payoffs = _payoffs(a, h, s, _offset(noise, h, s, point))
    return SingleBet(payoffs, a * payoffs[0] + b * payoffs[1] + other * payoffs[2])


def _touching(table: Tangents, q: Array) -> Array:
    """h(b0), s, k and the log likelihood of the best tangents (4, n, radii)."""
    tangent = np.empty((4, q.shape[1], table.n_radii))
    if table.zero:
        b0 = (q[0] + q[1]) / 2  # the best point of h(b) = b
        tangent[0, :, :1] = b0
        tangent[1, :, 0] = 1
        tangent[2, :, 0] = table.zero_offset
        tangent[3, :, :1] = 2 * b0 * np.log(b0) + q[2] * np.log(q[2])
    if table.coarse.size:
        _search(table, q, tangent[:, :, table.zero :])
    return tangent


def _search(table: Tangents, q: Array, tangent: Array) -> None:
    """Fill in the best tangents of the radii above 0.

    1. The best coarse point and its neighbours give a parabola, whose top is near a fine point.
    2. This fine point and its neighbours give another one. The tangent is taken at its top.
    """
    coarse = (q[:, :, 0].T @ table.coarse).reshape(-1, _COARSE)  # log likelihoods
    best = np.minimum(np.maximum(coarse.argmax(axis=1), 1), _COARSE - 2)
    first_of_row = np.arange(0, coarse.size, _COARSE)
    top = _top(coarse.take(first_of_row + best + _SIDES[:, 0]))

    fine = (np.rint(_FINE * (best + top)).astype(int) + _FINE // 2).reshape(q.shape[1], -1)
    first_of_radius = np.arange(0, table.points.shape[1], _COARSE * _FINE)
    points = table.points.take(first_of_radius + fine + _SIDES, axis=1)  # (6, sides, n, radii)
    likelihood = q[0] * points[0] + q[1] * points[1] + q[2] * points[2]
    top = np.rint(_PLACES * _top(likelihood)) / _PLACES

    # A mean of bounds is a bound, so s and k between two tangents are as sound as theirs.
    middle = points[3:, 1]
    right = np.maximum(top, 0)
    left = np.maximum(-top, 0)
    tangent[:3] = middle + right * (points[3:, 2] - middle) + left * (points[3:, 0] - middle)
    tangent[3] = likelihood[1]


def _top(values: Array) -> Array:
    """Where a parabola through three values has its top, in steps from the middle one, from -1 to
    1.
    """
    left, middle, right = values
    bend = np.maximum(2 * middle - left - right, 1e-300)
    top: Array = np.minimum(np.maximum((right - left) / (2 * bend), -1), 1)
    return top


def fair_payoffs(payoffs: Array, noise: Noise, radii: Sequence[float]) -> Array:
    """Log payoffs that yield at most 1 on average, whatever probabilities a false claim has.

    Each payoff is divided by the most that it yields under a false claim. That is computed from the
    trade-off curve itself, not from its tangents, so an audit does not trust them twice.

    Args:
        payoffs: Log payoffs of a vote for the class, for the rival and for another class, of shape
            (3, rivals, radii).
        noise: The smoothing noise.
        radii: The radii.
    """
    leader, rival, other = np.exp(payoffs)
    most = np.empty_like(leader)
    for j, radius in enumerate(radii):
        centre = np.zeros((len(leader), 1))  # of the probability of the rival, as a logit
        width = _LOGITS
        for _ in range(_ROUNDS):
            place = centre + width * np.linspace(-1, 1, 65)
            b = expit(place)
            a = np.minimum(noise.trade_off(radius, b)[0], expit(-place))
            mean = a * leader[:, [j]] + b * rival[:, [j]] + (1 - a - b) * other[:, [j]]
            centre = np.take_along_axis(place, mean.argmax(axis=1)[:, None], axis=1)
            width = width / 32
        most[:, j] = mean.max(axis=1) + noise.drawing_error * (leader - rival)[:, j]
    fair: Array = payoffs - np.log(np.maximum(most, 1))
    return fair

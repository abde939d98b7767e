"""Bets that a class A beats its rivals everywhere within a radius, on the votes of A, of a rival B and of all others.

The claim "A beats B everywhere within r" is false only if pA <= h(pB), where h is the noise's trade-off curve.
h is concave, so every tangent encloses the false claims:

    pA - s pB <= k    with s = h'(b0), k = h(b0) - s b0                                                 (tangent)

X is 1 for a vote for A, -s for a vote for B and 0 for any other vote. Then the payoff

    1 + lam (X - k)    with 0 <= lam < 1 / (s + k)                                                          (bet)

has a mean of at most 1 under every false claim, for any b0 and lam that were fixed before the vote was drawn. So the
product of payoffs, the wealth, reaches 1 / alpha with a probability of at most alpha (Ville), whatever the looks and
the reason to stop. A bad choice of b0 and lam costs samples and never soundness. Only s, k and payoffs are rounded to
the safe side.

A radius is proved when every rival is beaten at it and at every smaller radius. If a claim is false, the first false
radius needed a true hypothesis to be rejected. So all rivals and radii use the full alpha, for a class that is known or
chosen by samples that do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtri

from smoothcert.noises import Noise
from smoothcert.statistics.boundaries import GIVE_UP, default_looks
from smoothcert.statistics.bounds import Array, Counts

_COARSE = 128  # tangents among which the best one is searched
_FINE = 32  # times as many are kept
_LEAST = 1e-9  # the smallest b0
_MARGIN = 1e-11  # relative, of h and s; a curve is computed to 1e-13
# Positions between two tangents and stakes are rounded to these grids. Versions of SciPy differ by far less.
_PLACES = 2.0**12
_STAKES = 2.0**24
_LARGEST_STAKE = 1 - 2.0**-10
_LOG_MARGIN = 1e-12  # the logarithm of a payoff is off by less
_SUM_MARGIN = 1e-6  # the sum of all gains is off by less
_CHUNK = 2**22  # numbers in the largest array
_SIDES = np.array([-1, 0, 1]).reshape(3, 1, 1)


LOOKS: Counts = np.array(default_looks(10**10)[:-1])
"""After how many samples bets change: 60, then 1.2 times as many each, whatever the ceiling."""


class Tangents(NamedTuple):
    """Tangents of the trade-off curves of some radii, on a grid of b0."""

    radii: int
    """How many radii there are."""
    zero: bool
    """Whether the first one is 0. Its curve h(b) = b is its own only tangent, and the next two arrays leave it out."""
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


def _offset(noise: Noise, h: ArrayLike, s: ArrayLike, b: ArrayLike) -> Any:
    """k = h - s b (tangent), rounded up, for votes whose probabilities are off by the drawing error; 1 for no bet."""
    h, slope, product = np.asarray(h), np.asarray(s), np.asarray(s) * np.asarray(b)
    return np.minimum(
        h - product + _MARGIN * (h + product) + (1 + slope) * noise.drawing_error * (1 + _MARGIN),
        1.0,
    )


def _points(noise: Noise, radius: float) -> Array:
    """Where tangents touch: b0 from almost 0 to where h(b0) + b0 = 1, dense at both ends."""
    low, high = _LEAST, 0.5
    while low < (middle := (low + high) / 2) < high:
        low, high = (
            (middle, high) if noise.trade_off(radius, middle)[0] + middle < 1 else (low, middle)
        )
    points: Array = low * expit(np.linspace(log(_LEAST / low), -log(_LEAST) / 2, _COARSE * _FINE))
    return points


class Bet(NamedTuple):
    """A bet on the next votes against a rival at each radius; arrays (..., radii)."""

    own: Array
    """Log payoff of a vote for the class, rounded down, as the next two."""
    rival: Array
    other: Array
    distance: Array
    """How far the votes are from a tie, in standard deviations of one vote; negative on the side of a false claim."""


def best_bet(table: Tangents, own: ArrayLike, rival: ArrayLike, drawn: ArrayLike) -> Bet:
    """The bet whose wealth grows fastest if votes go on as they came so far.

    With q = (votes + 1/2) / (n + 3/2), b0 maximises qa log h(b) + qb log b + qo log(1 - h(b) - b), and
    lam = (qa / h(b0) - 1) / (1 - k).

    Args:
        table: From `tangents`.
        own: Votes of the class so far (...).
        rival: Votes of its rival (...).
        drawn: All samples (...).
    """
    a, b, n = np.broadcast_arrays(*(np.asarray(part, float) for part in (own, rival, drawn)))
    q = ((np.stack([a, b, n - a - b]) + 0.5) / (n + 1.5)).reshape(3, -1, 1)
    shape, size = (*a.shape, table.radii), _CHUNK // (_COARSE * table.radii)
    parts = [_bet(table, q[:, i : i + size]) for i in range(0, q.shape[1], size)]
    return Bet(*(np.concatenate(part).reshape(shape) for part in zip(*parts, strict=True)))


def _bet(table: Tangents, q: Array) -> Bet:
    """The best bets for expected votes q (3, n, 1); arrays (n, radii)."""
    h, s, k, likelihood = _touching(table, q)
    edge, span, rest = q[0] / h - 1, s + k, 1 - k
    # lam (s + k), from 0 to almost 1. Any stake is sound. Its grid makes results equal on all machines.
    stake = np.minimum(np.maximum(edge * span / np.maximum(rest, _MARGIN), 0), _LARGEST_STAKE) * (
        rest > 0
    )
    stake = np.floor(stake * _STAKES) / _STAKES
    lam = stake / span
    gains = np.empty((3, *h.shape))  # lam (X - k) for X = 1, -s, 0
    gains[0], gains[1], gains[2] = lam * rest, -stake, -lam * k
    own, rival, other = np.log1p(gains) - _LOG_MARGIN
    divergence = (q * np.log(q)).sum(axis=0) - likelihood
    return Bet(own, rival, other, np.copysign(np.sqrt(np.maximum(2 * divergence, 0)), edge))


def _touching(table: Tangents, q: Array) -> Array:
    """h(b0), s, k and the log likelihood of the best tangents (4, n, radii)."""
    found = np.empty((4, q.shape[1], table.radii))
    if table.zero:
        b0 = (q[0] + q[1]) / 2  # the best point of h(b) = b
        found[0, :, :1] = b0
        found[1, :, 0] = 1
        found[2, :, 0] = table.zero_offset
        found[3, :, :1] = 2 * b0 * np.log(b0) + q[2] * np.log(q[2])
    if table.coarse.size:
        _search(table, q, found[:, :, table.zero :])
    return found


def _search(table: Tangents, q: Array, found: Array) -> None:
    """Fill in the radii above 0: the best of the coarse points, then the top of a parabola, twice."""
    coarse = (q[:, :, 0].T @ table.coarse).reshape(-1, _COARSE)
    best = np.minimum(np.maximum(coarse.argmax(axis=1), 1), _COARSE - 2)
    top = _top(coarse.take(best + np.arange(0, coarse.size, _COARSE) + _SIDES[:, 0]))
    place = (np.rint(_FINE * (best + top)).astype(int) + _FINE // 2).reshape(q.shape[1], -1)
    place += np.arange(0, table.points.shape[1], _COARSE * _FINE)
    points = table.points.take(place + _SIDES, axis=1)  # (6, sides, n, radii)
    likelihood = q[0] * points[0] + q[1] * points[1] + q[2] * points[2]
    top = np.rint(_PLACES * _top(likelihood)) / _PLACES
    # A mean of bounds is a bound, so s and k between two tangents are as sound as theirs.
    middle = points[3:, 1]
    right, left = np.maximum(top, 0), np.maximum(-top, 0)
    found[:3] = middle + right * (points[3:, 2] - middle) + left * (points[3:, 0] - middle)
    found[3] = likelihood[1]


def _top(values: Array) -> Array:
    """Where a parabola through three values has its top, in steps from the middle one, from -1 to 1."""
    left, middle, right = values
    bend = np.maximum(2 * middle - left - right, 1e-300)
    top: Array = np.minimum(np.maximum((right - left) / (2 * bend), -1), 1)
    return top


class Wealth(NamedTuple):
    """What a plan keeps between looks, for bets against rivals in any shape (...)."""

    own: Array
    """Votes of the class so far (...)."""
    rival: Array
    """Votes of its rival (...)."""
    drawn: Array
    """All samples (...)."""
    log: Array
    """Log wealth (..., radii); infinite once the rival is beaten at the radius, for good."""
    bet: Bet
    """The bet on the votes up to the next look."""


def begin(table: Tangents, shape: tuple[int, ...] = ()) -> Wealth:
    """Wealth 1 everywhere. Nothing is known, so there is no bet on the first look."""
    nothing, wealth = np.zeros(shape), np.zeros((*shape, table.radii))
    distance = best_bet(table, nothing, nothing, nothing).distance
    return Wealth(nothing, nothing, nothing, wealth, Bet(wealth, wealth, wealth, distance))


def update(
    table: Tangents,
    wealth: Wealth,
    own: ArrayLike,
    rival: ArrayLike,
    drawn: ArrayLike,
    *,
    alpha: float,
    look: ArrayLike = True,
) -> Wealth:
    """Wealth after more votes, and the next bet.

    Args:
        table: From `tangents`.
        wealth: Wealth before them.
        own: New votes of the class (...).
        rival: New votes of its rival (...).
        drawn: New samples (...).
        alpha: The largest probability to beat a rival wrongly.
        look: Whether bets change now (...). Bets that change only at `LOOKS` do not depend on a ceiling.
    """
    a, b, n = (np.asarray(part, float) for part in (own, rival, drawn))
    gain = sum(
        votes[..., None] * payoff
        for votes, payoff in zip((a, b, n - a - b), wealth.bet[:3], strict=True)
    )
    grown = wealth.log + gain
    grown[grown >= _SUM_MARGIN - log(alpha)] = np.inf
    votes = wealth.own + a, wealth.rival + b, wealth.drawn + n
    if not np.any(look):
        return Wealth(*votes, grown, wealth.bet)
    changed = np.asarray(look)[..., None]
    new = zip(best_bet(table, *votes), wealth.bet, strict=True)
    return Wealth(*votes, grown, Bet(*(np.where(changed, *parts) for parts in new)))


def hopeless(
    wealth: Wealth, ceiling: ArrayLike, *, alpha: float, give_up: float = GIVE_UP
) -> NDArray[np.bool_]:
    """Whether the chance to beat a rival at a radius by the ceiling (...) is below `give_up` (..., radii).

    With good bets, log wealth grows as n d^2 / 2 with the distance d of the votes from a tie, less what learning the
    bet costs. d after N samples is normal around d after n, with variance 1 / n - 1 / N. Giving up proves nothing, so
    an approximation is good enough.
    """
    n, ceiling = np.maximum(wealth.drawn, 1.0)[..., None], np.asarray(ceiling, float)[..., None]
    d = wealth.bet.distance
    missing = n / 2 * np.maximum(d, 0) ** 2 - wealth.log + (np.log(ceiling / n) / 2 - log(alpha))
    needed = np.sqrt(np.maximum(missing, 0) * (2 / ceiling))
    spread = np.sqrt(np.maximum(1 / n - 1 / ceiling, 1e-300))
    given_up: NDArray[np.bool_] = (d - needed < ndtri(give_up) * spread) & (wealth.log < np.inf)
    return given_up


class Histories(NamedTuple):
    """Wealth of one input, where rivals with the same votes at every look share a row.

    So ten thousand classes are as cheap as the few histories that differ.
    """

    rows: Mapping[int, int]
    """The row of each rival, by class. Row 0 is that of all other classes, which had no vote."""
    wealth: Wealth
    """The bets against the rival of each row (rows)."""


def begin_histories(table: Tangents) -> Histories:
    return Histories({}, begin(table, (1,)))


def update_histories(
    table: Tangents,
    before: Sequence[Histories],
    votes: Sequence[Mapping[int, int]],
    drawn: ArrayLike,
    *,
    chosen: Sequence[int],
    alpha: float,
    look: ArrayLike = True,
    radii: ArrayLike | None = None,
) -> list[Histories]:
    """The wealth of several inputs after more votes; see `update`. Together they are much faster than one by one.

    Args:
        table: From `tangents`.
        before: Wealth of each input before them.
        votes: New votes by class; classes without a vote may be left out.
        drawn: New samples of each input.
        chosen: The class that bets, for each input.
        alpha: As for `update`.
        look: As for `update`, for each input.
        radii: How many radii each input bets on by now. The wealth at larger ones stays 1. Default: all.
    """
    together, starts = _stacked(before)
    beaten: Any = np.isinf(together.log).all(axis=1).tolist()
    maps, parents, new, sizes = [], [], [], []
    for (rows, _), first, added, own in zip(before, starts.tolist(), votes, chosen, strict=True):
        keys: dict[tuple[int, int], int] = {(first, 0): 0}  # of the old row and the new votes
        joined: int | None = (
            None  # rivals that are beaten at every radius need no rows of their own
        )
        now = {}
        for rival in {**rows, **added}:
            if rival != own:
                row = first + rows.get(rival, 0)
                if beaten[row]:
                    joined = row if joined is None else joined
                    key = (joined, 0)
                else:
                    key = (row, added.get(rival, 0))
                now[rival] = keys.setdefault(key, len(keys))
        maps.append(now)
        sizes.append(len(keys))
        parents += [row for row, _ in keys]
        new += [count for _, count in keys]
    repeats = np.asarray(sizes)
    own_votes = [added.get(own, 0) for added, own in zip(votes, chosen, strict=True)]
    split = _map(lambda part: part.take(parents, axis=0), together)
    a, n, looks = (
        np.repeat(np.broadcast_to(part, len(repeats)), repeats) for part in (own_votes, drawn, look)
    )
    grown = update(table, split, a, np.array(new), n, alpha=alpha, look=looks)
    if radii is not None:
        entered = np.repeat(np.asarray(radii), repeats)[:, None] > np.arange(table.radii)
        grown = grown._replace(log=np.where(entered, grown.log, 0.0))
    ends = np.cumsum(repeats).tolist()
    return [
        Histories(rows, _map(lambda part, i=end - size, j=end: part[i:j], grown))
        for rows, size, end in zip(maps, sizes, ends, strict=True)
    ]


class Outcome(NamedTuple):
    """What bets have shown so far, for each input."""

    proved: Counts
    """How many radii are proved, counted from the smallest one."""
    hopeless: NDArray[np.bool_]
    """Whether the chance to prove the next radius by the ceiling is small."""


def outcome(
    histories: Sequence[Histories], ceiling: ArrayLike, *, alpha: float, give_up: float
) -> Outcome:
    """What the bets of several inputs have shown; `ceiling` is that of each of them."""
    wealth, starts = _stacked(histories)
    sizes = np.diff(starts, append=len(wealth.own))
    stop = hopeless(
        wealth, np.repeat(np.broadcast_to(ceiling, len(sizes)), sizes), alpha=alpha, give_up=give_up
    )
    beaten = np.logical_and.reduceat(np.isinf(wealth.log), starts, axis=0)
    proved = np.logical_and.accumulate(beaten, axis=1).sum(axis=1)
    given_up = np.logical_or.reduceat(stop, starts, axis=0)
    following = np.minimum(proved, given_up.shape[1] - 1)
    return Outcome(proved, given_up[np.arange(len(sizes)), following])


def _stacked(histories: Sequence[Histories]) -> tuple[Wealth, Counts]:
    """The rows of several inputs, one below the other, and where each input begins."""
    if len(histories) == 1:
        return histories[0].wealth, np.zeros(1, int)
    starts = np.cumsum([0, *(len(one.wealth.own) for one in histories[:-1])])
    return _map(lambda *parts: np.concatenate(parts), *(one.wealth for one in histories)), starts


def _map(function: Callable[..., Array], *wealth: Wealth) -> Wealth:
    """Apply a function to every array."""
    own, rivals, drawn, grown, bets = zip(*wealth, strict=True)
    bet = Bet(*(function(*parts) for parts in zip(*bets, strict=True)))
    return Wealth(function(*own), function(*rivals), function(*drawn), function(*grown), bet)

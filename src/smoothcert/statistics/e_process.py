"""The e-process of bets: the wealth of a class against its rivals at every radius, look after look.

Wealth starts at 1 and is multiplied by the payoff of every vote (`betting`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from math import log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from smoothcert.statistics.betting import Bet, Tangents, best_bet
from smoothcert.statistics.bounds import Array, Counts

_SUM_MARGIN = 1e-6
"""The sum of all gains is off by less."""


class Wealth(NamedTuple):
    """What a plan keeps between looks, for bets against rivals in any shape (...)."""

    leader: Array
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
    nothing = np.zeros(shape)
    wealth = np.zeros((*shape, table.n_radii))
    distance = best_bet(table, nothing, nothing, nothing).distance
    return Wealth(nothing, nothing, nothing, wealth, Bet(wealth, wealth, wealth, distance))


def update(
    table: Tangents,
    wealth: Wealth,
    leader: ArrayLike,
    rival: ArrayLike,
    drawn: ArrayLike,
    *,
    alpha: float,
    bets_change: ArrayLike = True,
) -> Wealth:
    """Wealth after more votes, and the next bet.

    Args:
        table: From `tangents`.
        wealth: Wealth before them.
        leader: New votes of the class (...).
        rival: New votes of its rival (...).
        drawn: New samples (...).
        alpha: The largest probability to beat a rival wrongly.
        bets_change: Whether bets change now (...). Bets that change only at `LOOKS` do not depend
            on a ceiling.
    """
    a, b, n = (np.asarray(part, float) for part in (leader, rival, drawn))
    gain = sum(
        votes[..., None] * payoff
        for votes, payoff in zip((a, b, n - a - b), wealth.bet[:3], strict=True)
    )
    grown = wealth.log + gain
    grown[grown >= _SUM_MARGIN - log(alpha)] = np.inf
    votes = wealth.leader + a, wealth.rival + b, wealth.drawn + n
    if not np.any(bets_change):
        return Wealth(*votes, grown, wealth.bet)
    changed = np.asarray(bets_change)[..., None]
    new = zip(best_bet(table, *votes), wealth.bet, strict=True)
    return Wealth(*votes, grown, Bet(*(np.where(changed, *parts) for parts in new)))


def hopeless(
    wealth: Wealth, ceiling: ArrayLike, *, alpha: float, give_up: float
) -> NDArray[np.bool_]:
    """Whether a rival will probably stay unbeaten at a radius (..., radii).

    That is so where the chance to beat it by the ceiling is below `give_up`. Giving up proves
    nothing, so an approximation of this chance is good enough:

    1. With good bets, log wealth grows as n d^2 / 2, less what learning the bet costs. d is the
       distance of the votes from a tie.
    2. d after N samples is normal around d after n, with variance 1 / n - 1 / N.

    Args:
        wealth: Wealth after n samples.
        ceiling: The ceiling N (...).
        alpha: The largest probability to beat a rival wrongly.
        give_up: The chance below which a rival is given up.
    """
    n = np.maximum(wealth.drawn, 1.0)[..., None]
    ceiling = np.asarray(ceiling, float)[..., None]
    d = wealth.bet.distance
    missing = n / 2 * np.maximum(d, 0) ** 2 - wealth.log + (np.log(ceiling / n) / 2 - log(alpha))
    needed = np.sqrt(np.maximum(missing, 0) * (2 / ceiling))
    spread = np.sqrt(np.maximum(1 / n - 1 / ceiling, 1e-300))
    given_up: NDArray[np.bool_] = (d - needed < ndtri(give_up) * spread) & (wealth.log < np.inf)
    return given_up


class Histories(NamedTuple):
    """Wealth of one input, where rivals with the same votes at every look share a row.

    So ten thousand classes are as cheap as the few histories that differ. Inputs that are updated
    together share the arrays of their wealth, because a slice of each array for each input would
    take more time than the bets.
    """

    rows: Mapping[int, int]
    """The row of each rival, by class. Row 0 is that of all other classes, which had no vote."""
    together: Wealth
    """The rows of this input and of its neighbours."""
    first: int
    """Where the rows of this input begin."""
    end: int
    """Where they end."""

    @property
    def wealth(self) -> Wealth:
        """The bets against the rival of each row (rows)."""
        return _map(lambda part: part[self.first : self.end], self.together)


def begin_histories(table: Tangents) -> Histories:
    return Histories({}, begin(table, (1,)), 0, 1)


def update_histories(
    table: Tangents,
    before: Sequence[Histories],
    votes: Sequence[Mapping[int, int]],
    drawn: ArrayLike,
    *,
    chosen: Sequence[int],
    alpha: float,
    bets_change: ArrayLike = True,
    n_radii: ArrayLike | None = None,
) -> list[Histories]:
    """The wealth of several inputs after more votes; see `update`.

    Together they are much faster than one by one.

    Args:
        table: From `tangents`.
        before: Wealth of each input before them.
        votes: New votes by class; classes without a vote may be left out.
        drawn: New samples of each input.
        chosen: The class that bets, for each input.
        alpha: As for `update`.
        bets_change: As for `update`, for each input.
        n_radii: How many radii each input bets on by now. The wealth at larger ones stays 1.
            Default: all.
    """
    together, starts = _stacked(before)
    beaten: Any = np.isinf(together.log).all(axis=1).tolist()
    rows_of_rivals = []
    sizes = []
    old_rows = []
    rival_votes = []
    for one, first, added, leader in zip(before, starts.tolist(), votes, chosen, strict=True):
        rows = one.rows
        rivals = {c: first + rows.get(c, 0) for c in {**rows, **added} if c != leader}
        new_rows, keys = _rows_after(rivals, added, first, beaten)
        rows_of_rivals.append(new_rows)
        sizes.append(len(keys))
        old_rows += [row for row, _ in keys]
        rival_votes += [count for _, count in keys]

    def for_each_row(of_inputs: ArrayLike) -> Array:
        return np.repeat(np.broadcast_to(of_inputs, len(sizes)), sizes)

    leader_votes = [added.get(leader, 0) for added, leader in zip(votes, chosen, strict=True)]
    grown = update(
        table,
        _map(lambda part: part.take(old_rows, axis=0), together),
        for_each_row(leader_votes),
        np.array(rival_votes),
        for_each_row(drawn),
        alpha=alpha,
        bets_change=for_each_row(bets_change),
    )
    if n_radii is not None:
        entered = for_each_row(n_radii)[:, None] > np.arange(table.n_radii)
        grown = grown._replace(log=np.where(entered, grown.log, 0.0))
    ends = np.cumsum(sizes).tolist()
    return [
        Histories(rows, grown, end - size, end)
        for rows, size, end in zip(rows_of_rivals, sizes, ends, strict=True)
    ]


def _rows_after(
    rivals: Mapping[int, int], added: Mapping[int, int], first: int, beaten: Sequence[bool]
) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """The new row of each rival, and the old row and the new votes of each new row.

    Rivals that are beaten at every radius need no rows of their own, so they share one.

    Args:
        rivals: The old row of each rival.
        added: New votes by class.
        first: The old row of all other classes.
        beaten: Whether the rivals of each old row are beaten at every radius.
    """
    rows: dict[tuple[int, int], int] = {(first, 0): 0}
    shared = None
    now = {}
    for rival, row in rivals.items():
        key = (row, added.get(rival, 0))
        if beaten[row]:
            shared = shared or (row, 0)
            key = shared
        now[rival] = rows.setdefault(key, len(rows))
    return now, list(rows)


class Outcome(NamedTuple):
    """What bets have shown so far, for each input."""

    proved: Counts
    """How many radii are proved, counted from the smallest one."""
    hopeless: NDArray[np.bool_]
    """Whether the chance to prove the next radius by the ceiling is small."""


def outcome(
    histories: Sequence[Histories],
    ceiling: ArrayLike,
    *,
    alpha: float,
    give_up: float,
    top: int = 1,
) -> Outcome:
    """What the bets of several inputs have shown.

    Args:
        histories: The wealth of each input.
        ceiling: The ceiling of each input.
        alpha: The largest probability to beat a rival wrongly.
        give_up: The chance below which a radius is hopeless.
        top: A radius is proved as long as fewer rivals than this are unbeaten.
    """
    wealth, starts = _stacked(histories)
    sizes = np.diff(starts, append=len(wealth.leader))
    classes = _classes_of_rows(histories, starts, len(wealth.leader), top)[:, None]
    stop = hopeless(
        wealth, np.repeat(np.broadcast_to(ceiling, len(sizes)), sizes), alpha=alpha, give_up=give_up
    )
    unbeaten = np.add.reduceat((wealth.log != np.inf) * classes, starts, axis=0)
    proved = np.logical_and.accumulate(unbeaten < top, axis=1).sum(axis=1)
    given_up = np.add.reduceat(stop * classes, starts, axis=0) >= top
    following = np.minimum(proved, given_up.shape[1] - 1)
    return Outcome(proved, given_up[np.arange(len(sizes)), following])


def _classes_of_rows(
    histories: Sequence[Histories], starts: Counts, size: int, most: int
) -> Counts:
    """How many rivals share each of the stacked rows, up to `most`.

    Row 0 of an input counts as `most`, because nobody knows here how many classes had no vote.
    """
    if most == 1:
        return np.ones(size, int)
    own_rows = np.fromiter(chain.from_iterable(one.rows.values() for one in histories), int)
    rows = own_rows + np.repeat(starts, [len(one.rows) for one in histories])
    counts = np.bincount(rows, minlength=size)
    counts[starts] = most
    return np.minimum(counts, most)


def _stacked(histories: Sequence[Histories]) -> tuple[Wealth, Counts]:
    """The rows of several inputs, one below the other, and where each input begins."""
    starts = np.cumsum([0, *(one.end - one.first for one in histories[:-1])])
    spans: list[Histories] = []  # neighbours that share arrays are one span
    for one in histories:
        if spans and spans[-1].together is one.together and spans[-1].end == one.first:
            spans[-1] = spans[-1]._replace(end=one.end)
        else:
            spans.append(one)
    if len(spans) == 1:
        return spans[0].wealth, starts
    return _map(lambda *parts: np.concatenate(parts), *(span.wealth for span in spans)), starts


def _map(function: Callable[..., Array], *wealth: Wealth) -> Wealth:
    """Apply a function to every array."""
    leader, rivals, drawn, grown, bets = zip(*wealth, strict=True)
    bet = Bet(*(function(*parts) for parts in zip(*bets, strict=True)))
    return Wealth(function(*leader), function(*rivals), function(*drawn), function(*grown), bet)

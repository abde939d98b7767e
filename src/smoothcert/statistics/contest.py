"""Which class is most likely, by as few votes as a clear answer needs: bets at radius 0 against all rivals.

The first look chooses the leader and does not count. When another class takes the lead, wealth starts again. The
leaders may use alpha / 2, alpha / 4, ..., so that any of them wins wrongly with a probability of at most alpha.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil, log
from typing import NamedTuple

import numpy as np

from smoothcert.statistics.bets import Counts, Histories, Tangents, Wealth, begin_histories, best_bet, update_histories


def _looks(largest: int = 10**10) -> Counts:
    looks = [8, 20]  # at alpha .001, unanimous votes settle it at the second look
    while looks[-1] < largest:
        looks.append(ceil(1.3 * looks[-1]))
    return np.array(looks)


LOOKS = _looks()
"""After how many samples to look: 8, 20, then 1.3 times as many each, whatever the ceiling."""
_NOBODY = -1


class Contest(NamedTuple):
    """Where the contest about one input stands."""

    votes: Counter[int]
    """All votes so far."""
    drawn: int
    """All samples so far."""
    leader: int
    """The class that leads; -1 before the first vote."""
    changes: int
    """How often the leader has changed; -1 before the first vote."""
    settled: bool
    """Whether the leader has beaten all others."""
    histories: Histories


def begin_contest(table: Tangents) -> Contest:
    """A contest before its first look, with the tangents of radius 0."""
    return Contest(Counter(), 0, _NOBODY, -1, False, begin_histories(table))


def update_contests(
    table: Tangents,
    before: Sequence[Contest],
    votes: Sequence[Mapping[int, int]],
    drawn: Sequence[int],
    *,
    alpha: float,
) -> list[Contest]:
    """Several contests after one more look of each.

    Args:
        table: The tangents of radius 0.
        before: The contests before the look. Those that are settled keep their leader.
        votes: New votes of each contest, by class.
        drawn: New samples of each contest.
        alpha: The probability that a contest settles for a wrong class, at most.
    """
    leaders = [contest.leader for contest in before]
    stakes = [contest.histories for contest in before]
    after = update_histories(table, stakes, votes, drawn, chosen=leaders, alpha=alpha)
    contests = []
    for contest, new, n, histories in zip(before, votes, drawn, after, strict=True):
        total, samples = contest.votes + Counter(new), contest.drawn + n
        leader, changes = contest.leader, contest.changes
        won = bool(np.isinf(histories.wealth.log).all())
        top = max(total.values(), default=0)
        if not won and top > total[leader]:
            leader, changes = min(c for c, count in total.items() if count == top), changes + 1
            histories = _new_leader(table, total, samples, leader, changes)
        contests.append(Contest(total, samples, leader, changes, won, histories))
    return contests


def _new_leader(table: Tangents, votes: Counter[int], drawn: int, leader: int, changes: int) -> Histories:
    """The bets of a new leader. Earlier votes only teach them."""
    counts = sorted({0, *(count for c, count in votes.items() if c != leader)})
    rows = {c: counts.index(count) for c, count in votes.items() if c != leader}
    seen = (
        np.full(len(counts), float(votes[leader])),
        np.array(counts, float),
        np.full(len(counts), float(drawn)),
    )
    wealth = np.full((len(counts), 1), -log(2) * (changes + 1))
    return Histories(rows, Wealth(*seen, wealth, best_bet(table, *seen)))

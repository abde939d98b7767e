"""Which class is most likely, by as few votes as a clear answer needs: bets at radius 0 against all rivals."""

from __future__ import annotations

from math import ceil, log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.statistics.bets import Counts, Tangents, Wealth, begin, best_bet, update


def _looks(largest: int = 10**10) -> Counts:
    looks = [8, 20]  # at alpha .001, unanimous votes settle it at the second look
    while looks[-1] < largest:
        looks.append(ceil(1.3 * looks[-1]))
    return np.array(looks)


LOOKS = _looks()
"""After how many samples to look: 8, 20, then 1.3 times as many each, whatever the ceiling."""


class Contest(NamedTuple):
    """Which class is most likely: bets at radius 0 for the class that leads, against all others; states (...)."""

    leader: Counts
    """The class that leads (...)."""
    changes: Counts
    """How often the leader has changed (...); -1 before the first look."""
    wealth: Wealth
    """Its rivals are all classes. The leader's place stands for classes without a vote."""

    @property
    def settled(self) -> Any:
        """Whether the leader has beaten all others (...)."""
        return self.wealth.proved == 1


def begin_contest(table: Tangents, shape: tuple[int, ...], classes: int) -> Contest:
    """A contest before its first look, with the tangents of radius 0."""
    return Contest(np.zeros(shape, np.int64), np.full(shape, -1), begin(table, shape, classes))


def update_contest(table: Tangents, contest: Contest, votes: ArrayLike, drawn: ArrayLike, *, alpha: float) -> Contest:
    """The contest after one more look.

    The first look chooses the leader and does not count. When another class takes the lead, wealth starts again. The
    leaders may use alpha / 2, alpha / 4, ..., so that any of them wins wrongly with a probability of at most alpha.

    Args:
        table: The tangents of radius 0.
        contest: The contest before the look. Those that are settled keep their leader.
        votes: New votes of each class (..., classes).
        drawn: New samples (...).
        alpha: The probability that the contest settles for a wrong class, at most.
    """
    new = np.asarray(votes, float)
    place = contest.leader[..., None] == np.arange(new.shape[-1])
    wealth = update(table, contest.wealth, (new * place).sum(axis=-1), new * ~place, drawn, alpha=alpha, look=False)
    total = wealth.rivals + place * wealth.own[..., None]
    changed = (wealth.proved == 0) & ((total.max(axis=-1) > wealth.own) | (contest.changes < 0))
    leader = np.where(changed, total.argmax(axis=-1), contest.leader)
    changes = contest.changes + changed
    place = leader[..., None] == np.arange(new.shape[-1])
    seen = (total * place).sum(axis=-1), total * ~place, wealth.drawn
    start = -log(2) * (changes + 1.0)[..., None, None]
    grown = np.where(changed[..., None, None], start, wealth.log)
    return Contest(leader, changes, Wealth(*seen, grown, best_bet(table, *seen)))

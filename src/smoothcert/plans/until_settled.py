"""The plan of `predict`: draw until one class is known to be the most likely, by bets at radius 0 against all rivals.

The first look chooses the leader and does not count. When another class takes the lead, wealth starts again. The
leaders may use alpha / 2, alpha / 4, ..., so that any of them wins wrongly with a probability of at most alpha.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import ClassVar, NamedTuple, Self

import numpy as np

from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.plans.base import Look, Plan, Proof, State, Votes
from smoothcert.plans.machine import proof, unanimous
from smoothcert.statistics.bets import (
    Histories,
    Tangents,
    Wealth,
    begin_histories,
    best_bet,
    tangents,
    update_histories,
)
from smoothcert.statistics.boundaries import growing_looks

LOOKS = np.array([8, *growing_looks(20, 1.3, 10**10)])
"""After how many samples to look. At alpha .001, unanimous votes settle the answer at the second look."""
_NOBODY = -1


class Contest(NamedTuple):
    """Where the contest about one input stands."""

    seen: Look
    """All votes so far."""
    leader: int
    """The class that leads; -1 before the first vote."""
    changes: int
    """How often the leader has changed; -1 before the first vote."""
    settled: bool
    """Whether the leader has beaten all others, for good."""
    histories: Histories


@dataclass(frozen=True)
class UntilSettled(Plan):
    """Draw until one class has beaten all others. There is nothing to certify.

    Args:
        samples: The ceiling.
        alpha: The largest probability to settle for a wrong class.
    """

    samples: int
    alpha: float
    name: ClassVar[str] = "until-settled"
    pilot: ClassVar[int] = int(LOOKS[0])  # type: ignore[misc]

    def __str__(self) -> str:
        return f"until it is settled, {self.samples:,} samples at most"

    def remember(self, state: State, votes: Votes, noise: Noise) -> Contest:
        assert isinstance(votes, Look)
        return self.remember_each([state], [votes], noise)[0]

    def remember_each(
        self, states: Sequence[State], looks: Sequence[Look], noise: Noise
    ) -> list[Contest]:
        table = tangents(noise, (0.0,))
        start = Contest(Look(0, {}), _NOBODY, -1, False, begin_histories(table))
        before: list[Contest] = [state.memory or start for state in states]
        after = update_histories(
            table,
            [contest.histories for contest in before],
            [look.votes for look in looks],
            [look.samples for look in looks],
            chosen=[contest.leader for contest in before],
            alpha=self.alpha,
        )
        return [_after(table, *one) for one in zip(before, looks, after, strict=True)]

    def request(self, state: State, noise: Noise) -> int:
        contest: Contest = state.memory
        drawn = contest.seen.samples
        due = min(int(LOOKS[np.searchsorted(LOOKS, drawn, side="right")]), self.samples)
        return 0 if contest.settled else due - drawn

    def lower_bound(self, state: State, noise: Noise) -> float:
        return 0.0

    def for_noise(self, noise: Noise) -> Self:
        needed = unanimous(replace(self, samples=10**9), noise).state.memory.seen.samples
        if self.samples < needed:
            raise InvalidInput(
                f"samples {self.samples} can never settle an answer at alpha {self.alpha:g}: even unanimous votes "
                f"could be chance; use at least {needed}"
            )
        return super().for_noise(noise)


@proof.register
def _(plan: UntilSettled, noise: Noise, state: State) -> Proof:
    contest: Contest | None = state.memory
    won = contest is not None and contest.settled
    return Proof(contest.leader if contest and won else None, 0.0, radius=0.0 if won else None)


def _after(table: Tangents, contest: Contest, look: Look, histories: Histories) -> Contest:
    """A contest after one more look, if its leader stays; else it begins again with a new one."""
    seen, leader, changes = contest.seen + look, contest.leader, contest.changes
    won = bool(np.isinf(histories.wealth.log).all())
    top = seen.top
    if not won and top is not None and seen.of(top) > seen.of(leader):
        leader, changes = top, changes + 1
        histories = _new_leader(table, seen, leader, changes)
    return Contest(seen, leader, changes, won, histories)


def _new_leader(table: Tangents, seen: Look, leader: int, changes: int) -> Histories:
    """The bets of a new leader. Earlier votes only teach them."""
    others = {c: count for c, count in seen.votes.items() if c != leader}
    counts = sorted({0, *others.values()})
    rows = {c: counts.index(count) for c, count in others.items()}
    known = (seen.of(leader), counts, seen.samples)
    own, rival, total = (np.broadcast_to(np.asarray(n, float), len(counts)) for n in known)
    wealth = np.full((len(counts), 1), -log(2) * (changes + 1))
    return Histories(rows, Wealth(own, rival, total, wealth, best_bet(table, own, rival, total)))

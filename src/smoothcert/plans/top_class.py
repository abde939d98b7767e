"""The rule of `predict`: draw until one class is known to be the most likely, by bets at radius 0
against all rivals.

The first look chooses the leader and does not count. When another class takes the lead, wealth
starts again. The leaders may use alpha / 2, alpha / 4, ..., so that any of them wins wrongly with a
probability of at most alpha.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import ClassVar, NamedTuple, Self

import numpy as np

from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers
from smoothcert.plans.base import Rule, check_random
from smoothcert.plans.follow import unanimous
from smoothcert.plans.votes import Look, Votes
from smoothcert.statistics.betting import Tangents, tangents
from smoothcert.statistics.e_process import Histories, begin_histories, update_histories
from smoothcert.statistics.group_sequential import growing_looks

LOOKS = np.array([8, *growing_looks(20, 1.3, 10**10)])
"""After how many samples to look. At alpha .001, unanimous votes settle the answer at the second
look."""
_NOBODY = -1


class Contest(NamedTuple):
    """Where the contest about one input stands."""

    tangents: Tangents
    seen: Look
    """All votes so far."""
    leader: int
    """The class that leads; -1 before the first vote."""
    changes: int
    """How often the leader has changed; -1 before the first vote."""
    settled: bool
    """Whether the leader has beaten all others, for good."""
    histories: Histories


@dataclass(frozen=True, slots=True)
class TopClass(Rule):
    """Draw until one class has beaten all others. There is nothing to certify.

    Args:
        samples: The ceiling.
        alpha: The largest probability to settle for a wrong class.
    """

    samples: int
    alpha: float
    name: ClassVar[str] = "top-class"
    smallest_request: ClassVar[int] = 8

    def __str__(self) -> str:
        return f"until the top class is settled, {self.samples:,} samples at most"

    def init(self, noise: Noise, chosen: Numbers = None) -> Contest:
        table = tangents(noise, (0.0,))
        return Contest(table, Look(0, {}), _NOBODY, -1, False, begin_histories(table))

    def update(self, state: Contest, votes: Votes) -> Contest:
        assert isinstance(votes, Look)
        return self.update_each([state], [votes])[0]

    def update_each(self, states: Sequence[Contest], looks: Sequence[Look]) -> list[Contest]:
        after = update_histories(
            states[0].tangents,
            [contest.histories for contest in states],
            [look.votes for look in looks],
            [look.samples for look in looks],
            chosen=[contest.leader for contest in states],
            alpha=self.alpha,
        )
        return [self._after(*one) for one in zip(states, looks, after, strict=True)]

    def _after(self, contest: Contest, look: Look, histories: Histories) -> Contest:
        """A contest after one more look, if its leader stays; else it begins again with a new
        one.
        """
        seen = contest.seen + look
        won = bool(np.isinf(histories.wealth.log).all())
        top = seen.top
        if won or top is None or seen.of(top) <= seen.of(contest.leader):
            return contest._replace(seen=seen, settled=won, histories=histories)
        changes = contest.changes + 1
        histories = self._bets_of(top, seen, contest.tangents, wealth=-log(2) * (changes + 1))
        return contest._replace(seen=seen, leader=top, changes=changes, histories=histories)

    def _bets_of(self, leader: int, seen: Look, table: Tangents, *, wealth: float) -> Histories:
        """The bets of a new leader with this log wealth. Earlier votes only teach them."""
        [taught] = update_histories(
            table,
            [begin_histories(table)],
            [seen.votes],
            [seen.samples],
            chosen=[leader],
            alpha=self.alpha,
        )
        together = taught.together
        return taught._replace(together=together._replace(log=np.full_like(together.log, wealth)))

    def request(self, state: Contest) -> int:
        if state.settled:
            return 0
        drawn = state.seen.samples
        following = int(LOOKS[np.searchsorted(LOOKS, drawn, side="right")])
        return min(following, self.samples) - drawn

    def answer(self, state: Contest) -> int | None:
        return state.leader if state.settled else None

    def for_noise(self, noise: Noise) -> Self:
        needed = unanimous(replace(self, samples=10**9), noise).spent
        if self.samples < needed:
            raise InvalidInput(
                "never-settled",
                "samples {samples} can never settle an answer at alpha {alpha:g}: even unanimous "
                "votes could be chance; use at least {needed}",
                samples=self.samples,
                alpha=self.alpha,
                needed=needed,
            )
        check_random(noise)
        return self

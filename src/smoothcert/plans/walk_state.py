"""Where one input of a walk stands: its sides of 0, its test, and how votes change them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import ndtri

from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers
from smoothcert.noises.transformed import Transformed
from smoothcert.plans.votes import Look
from smoothcert.statistics.betting import bet_at
from smoothcert.statistics.bounds import Array

_AIM = 0.3
"""The best margin is this share of the estimated radius: there all tests together need fewest
samples."""
_LARGEST_AIM = 0.7
_SMALLEST_AIM = 0.02
"""Limits of the aim, as shares of the deviation of the noise."""
_LEAST_SHARE = 1e-4
"""The smallest share of votes that a bet expects."""
_SLOWEST = 1e-9
"""Slower growth of log wealth by a sample counts as none."""
_GROUPS = 3
"""Rivals that are bet against one by one."""


class Side(NamedTuple):
    """How far one side of 0 is proved, and what its last cells were like."""

    front: float
    """All amounts up to this one, without its sign."""
    slope: float
    """The margin of the last cell, by its width."""
    votes: dict[int, float]
    """Recent votes by class."""
    seen: float
    """The samples behind them."""
    failed: tuple[float, ...] = ()
    """The ends of cells beyond the front whose tests have failed."""
    widest: float = inf
    """The next cell is not wider than this. After a failure it gets narrower."""
    given_up: bool = False

    def rivals_of(self, chosen: int | None) -> tuple[int, ...]:
        """The other classes with most recent votes, `_GROUPS` of them at most."""
        others = [c for c in self.votes if c != chosen]
        return tuple(sorted(others, key=lambda c: (-self.votes[c], c))[:_GROUPS])

    def shares(self, chosen: int | None, rivals: Sequence[int]) -> tuple[float, Array]:
        """Expected shares of votes for the class, for each rival, and for all others together."""
        own = self.votes.get(chosen, 0)  # type: ignore[arg-type]
        against = [self.votes.get(c, 0) for c in rivals]
        pool = sum(self.votes.values()) - own - sum(against)
        counts = np.array([own, *against, pool])
        shares = (counts + 0.5) / (self.seen + 1.5)
        return float(shares[0]), shares[1:]


class Test(NamedTuple):
    """A test of one cell."""

    side: int
    """0 for amounts above 0, 1 for those below."""
    end: float
    """Where its cell ends, without the sign."""
    needed: float
    """The log wealth that proves it."""
    rivals: tuple[int, ...]
    """Classes that are bet against one by one; all others are one rival together."""
    margin: float
    """The radius that covers the cell; before the first look, about what it will be."""
    wealth: Array
    """Log wealth against each rival."""
    drawn: int = 0
    payoffs: Array = np.zeros((3, 0))
    """Log payoffs of the bets on the next look (3, rivals)."""
    growth: Array = np.zeros(0)
    """By how much a sample is expected to let log wealth grow."""

    @property
    def is_proved(self) -> bool:
        return bool(np.all(self.wealth >= self.needed))

    @property
    def need(self) -> float:
        """How many more samples the bets are expected to need."""
        missing = np.maximum(self.needed - self.wealth, 0)
        return float((missing / np.maximum(self.growth, _SLOWEST)).max())


class State(NamedTuple):
    """Where one input stands."""

    noise: Noise
    chosen: int | None
    more: int
    sides: tuple[Side, ...] = ()
    """Empty before the first look."""
    test: Test | None = None
    """None before the first look and at the end."""
    spent: int = 0
    own: int = 0
    """Votes for the class, without those of the first look."""

    @property
    def behind(self) -> int:
        """The number of the side that is proved less far."""
        return int(self.sides[1].front < self.sides[0].front)

    @property
    def tested_side(self) -> Side:
        """The side of the test."""
        return self.sides[test_of(self).side]

    def with_side(self, number: int, side: Side) -> Self:
        """The state with another side."""
        sides = (side, self.sides[1]) if number == 0 else (self.sides[0], side)
        return self._replace(sides=sides)

    def without_test(self, side: Side) -> Self:
        """The state without a test; `side` replaces the side that was tested."""
        return self.with_side(test_of(self).side, side)._replace(test=None, more=0)


def changed(
    states: Iterable[State],
    which: Callable[[State], object],
    change: Callable[[list[State]], list[State]],
) -> list[State]:
    """The states after some of them have changed, all at once, which is faster than one by one."""
    after = list(states)
    places = [i for i, state in enumerate(after) if which(state)]
    if places:
        for i, state in zip(places, change([after[i] for i in places]), strict=True):
            after[i] = state
    return after


def is_new(state: State) -> bool:
    """Whether an input has a test without a sample."""
    return state.test is not None and not state.test.drawn


def is_undecided(state: State) -> bool:
    return state.test is not None and not state.test.is_proved


def test_of(state: State) -> Test:
    assert state.test is not None
    return state.test


def moved(state: State) -> State:
    """The state after a proved test: the front of its side is the end of its cell."""
    test = state.test
    if test is None:
        return state
    side = state.tested_side
    slope = test.margin / (test.end - side.front)
    failed = tuple(end for end in side.failed if end > test.end)
    return state.without_test(Side(test.end, slope, side.votes, side.seen, failed))


def counted(state: State, look: Look) -> State:
    """The state with the votes of a look."""
    spent = state.spent + look.samples
    test = state.test
    if test is None:
        return state._replace(spent=spent, more=0)
    own = look.of(state.chosen)
    gain = log_gain(test.payoffs, test.rivals, state.chosen, look)
    side = state.tested_side
    votes = {c: side.votes.get(c, 0) + look.votes.get(c, 0) for c in {**side.votes, **look.votes}}
    side = side._replace(votes=votes, seen=side.seen + look.samples)
    test = test._replace(wealth=test.wealth + gain, drawn=test.drawn + look.samples)
    return state.with_side(test.side, side)._replace(
        test=test,
        more=0,
        spent=spent,
        own=state.own + own,
    )


def log_gain(payoffs: Array, rivals: Sequence[int], chosen: int | None, look: Look) -> Array:
    """By how much the votes of a look let log wealth grow, against each rival and all others."""
    own = look.of(chosen)
    alone = [look.of(c) for c in rivals]
    against = np.array([*alone, sum(look.votes.values()) - own - sum(alone)])
    others = look.samples - own - against
    gain: Array = own * payoffs[0] + against * payoffs[1] + others * payoffs[2]
    return gain


def _shares_in_test(state: State) -> tuple[float, Array]:
    return state.tested_side.shares(state.chosen, test_of(state).rivals)


def with_bets(states: Sequence[State]) -> list[State]:
    """The states with the bets of their tests on the next look, from the votes so far."""
    tests = list(map(test_of, states))
    shares = list(map(_shares_in_test, states))
    sizes = [len(test.wealth) for test in tests]
    bet = bet_at(
        states[0].noise,
        np.repeat([test.margin for test in tests], sizes),
        np.repeat([own for own, _ in shares], sizes),
        np.concatenate([against for _, against in shares]),
    )
    ends = np.cumsum(sizes)[:-1]
    payoffs = np.split(bet.payoffs, ends, axis=1)
    growth = np.split(bet.growth, ends)
    return [
        state._replace(test=test._replace(payoffs=one, growth=grows))
        for state, test, one, grows in zip(states, tests, payoffs, growth, strict=True)
    ]


def best_margins(noise: Noise, own: Any, rival: Numbers) -> Numbers:
    """The margins for which a walk needs fewest samples, if votes have these shares."""
    assert isinstance(noise, Transformed)
    radius = _AIM * noise.noise.radius_between(own, np.minimum(rival, 1 - own))
    limits = np.array([_SMALLEST_AIM, _LARGEST_AIM]) * noise.deviation
    return np.clip(radius, *limits)


def prices_of(states: Sequence[State], extra: float, give_up: float) -> tuple[Array, Array]:
    """The samples that new tests of these sides need for a margin of 1: of the next level if votes
    come as expected; and of this level if they are better than they look.

    Args:
        states: Where the inputs stand.
        extra: How much more log wealth the next level needs.
        give_up: The probability that votes look as bad by bad luck.
    """
    noise = states[0].noise
    seen = np.array([state.tested_side.seen for state in states])
    shares = map(_shares_in_test, states)
    own, rival = np.array([(own, against.max()) for own, against in shares]).T
    luck = -ndtri(max(give_up, _LEAST_SHARE)) * np.sqrt((own + rival) / seen) / 2
    lucky_own = np.minimum(own + luck, 1 - _LEAST_SHARE)
    lucky_rival = np.clip(rival - luck, _LEAST_SHARE / 2, 1 - lucky_own)
    own = np.stack([own, lucky_own])
    rival = np.stack([rival, lucky_rival])
    margins = best_margins(noise, own, rival)
    growth = bet_at(noise, margins, own, rival).growth
    needed = np.array([test_of(state).needed for state in states])
    needs = np.stack([needed + extra, needed]) / np.maximum(growth, _SLOWEST)
    price, lucky_price = needs / margins
    return price, lucky_price

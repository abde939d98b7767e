"""Intervals of angles or zooms, proved by walking outwards from 0 in small steps.

A test is about one cell of amounts. It bets (`statistics.betting`) that the class beats each rival
everywhere within the margin of the cell around the picture at its centre. The margin is computed from
the picture: no picture of the cell is further from the one at the centre. So a test that succeeds
proves every amount in its cell, and the front of its side moves to the end of the cell. A claim "all
amounts up to r" needs both fronts at r.

Why alpha is not divided over the tests. Let a* be the amount nearest to 0 at which the class does not
beat every other class, and consider its side of 0. A false claim needs the front of this side to pass
a*, so a test whose cell contains a* has to succeed: cells begin at the front. Number these tests of
a* in their order. None of those before the i-th has succeeded, or the claim would already be false,
and all of them end at or beyond a*, which lies at or beyond the front. So when the i-th begins, i - 1
earlier tests of its side end beyond the front, or more, and its level is at least i - 1. A test of
level j gets alpha_j, and its wealth reaches 1 / alpha_j with a probability of at most alpha_j if the
class does not beat its rivals at a* (Ville's inequality), given everything before its first sample:
its cell, its level and its bets follow from earlier votes, and its noise is new. So the probability
of a false claim is at most alpha_0 + alpha_1 + ... = alpha. Tests that succeed cost nothing, because
they end at the front. Failures count until the front has passed the ends of their cells: forgetting
them after a success is wrong. Both sides use the full alpha, because a claim is symmetric and fails
first on one side.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, exp, floor, inf, log
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import ndtri

from smoothcert.errors import InvalidInput, either
from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers
from smoothcert.noises.transformed import Transformed
from smoothcert.plans.base import Proof
from smoothcert.plans.coverage import Coverage
from smoothcert.plans.decided import DecidingPlan
from smoothcert.plans.follow import Case
from smoothcert.plans.votes import Cell, Look, Votes
from smoothcert.statistics.betting import bet_at, fair_payoffs
from smoothcert.statistics.bounds import Array

_LEVEL_SHARE = 0.2
"""alpha_j = alpha (1 - share) share^j. Few tests fail, so the first level gets most of alpha."""
_SCOUTS = 32
"""Samples at amount 0 that only teach the first bet, where the label is known."""
_FIRST_CELL = 1e-3
"""The half-width of the cell that shows how steep a picture is at 0, as a share of the largest
radius."""
_STEPS = 1e6
"""Cells end at multiples of 1 / _STEPS, so that rounding does not change them."""
_AIM = 0.3
"""A test aims at this share of the estimated radius: there all tests together need fewest samples."""
_LARGEST_AIM = 0.7
_SMALLEST_AIM = 0.02
"""Limits of the aim, as shares of the deviation of the noise."""
_MEMORY = 100.0
"""At most so many earlier samples teach the first bet of a test."""
_HORIZON = 0.2
"""A side is given up if a stretch of this share of the largest radius costs more than what is left."""
_NARROWER = 0.7
"""The cell after a failed one is narrower by this factor at least."""
_SPARE = 1.1
"""A look has this many times the samples that its bets are expected to need."""
_FEWEST = 12
_MOST_FIRST = 500
"""Samples of a look at least, and of the first one at a cell at most."""
_LEAST_SHARE = 1e-4
"""The smallest share of votes that a bet expects."""
_SLOWEST = 1e-9
"""The smallest growth of log wealth by a sample that is told from none."""
_SUM_MARGIN = 1e-6
"""The sum of all gains is off by less."""
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
    """Votes for the class among the `counted` samples."""
    counted: int = 0


@dataclass(frozen=True, slots=True)
class Walk(DecidingPlan):
    """Decide up to which amounts of a transformation the class is proved, from 0 outwards.

    The noise is a `Rotation` or a `Zoom`. A certificate states the largest radius r such that every
    amount from -r to r is proved.

    Args:
        radii: The amounts to decide, above 0.
        samples: The ceiling: the most samples of an input, without its pilot.
        give_up: A side is given up when its next stretch would cost more than what is left, even
            with votes that are better by as much as happens with this probability; 0 for never.

    The other arguments are those of `DecidingPlan`.

    >>> print(Walk([5, 10], known_labels=True))
    radii 5, 10, ceiling 100,000, runner-up bound, known labels
    """

    name: ClassVar[str] = "walk"
    bound: ClassVar[str] = "runner-up"  # type: ignore[misc]
    default_pilot: ClassVar[int] = 105
    most_looks: ClassVar[int] = 1_000_000

    def __post_init__(self) -> None:
        DecidingPlan.__post_init__(self)
        if self.radii[0] <= 0:
            raise InvalidInput(
                "no-interval",
                "radii of a walk must be above 0, got {radius:g}",
                radius=self.radii[0],
            )
        if self.top > 1:
            raise InvalidInput(
                "walk-of-top",
                "a walk proves that a class beats all others, and answers no question about the "
                "top {top}: leave `top={top}` out",
                top=self.top,
            )

    def for_noise(self, noise: Noise) -> Self:
        if not isinstance(noise, Transformed):
            raise InvalidInput(
                "not-transformed",
                "a walk needs a transformation, as in `Rotation(Gaussian(0.25))|--transform "
                "rotation`, got {noise}",
                noise=noise,
            )
        if self.radii[-1] > noise.largest:
            name = type(noise).__name__.lower()
            raise InvalidInput(
                "beyond-largest",
                "radii go up to {radius:g}, but {noise} only up to {largest:g}: give {how}",
                radius=self.radii[-1],
                noise=noise,
                largest=noise.largest,
                how=either("a larger `largest`", f"--transform {name}:{self.radii[-1]:g}"),
            )
        return self

    def init(self, noise: Noise, chosen: Numbers = None) -> State:
        self.for_noise(noise)
        return State(noise, chosen, more=self.pilot or _SCOUTS)

    def update(self, state: State, votes: Votes) -> State:
        if not isinstance(votes, Look):
            raise InvalidInput(
                "needs-pictures",
                "a walk depends on the pictures, so it cannot be followed on votes alone",
            )
        return self.update_each([state], [votes])[0]

    def update_each(self, states: Sequence[State], looks: Sequence[Look]) -> list[State]:
        placed = map(self._placed, states, looks)
        after = list(map(_counted, _changed(placed, _is_new, _with_bets), looks))
        after = _changed(after, _is_undecided, self._continued)
        return _changed(after, lambda state: state.sides and not state.more, self._next)

    def request(self, state: State) -> int:
        return state.more

    def view(self, state: State) -> Cell:
        if state.test is None:
            width = _FIRST_CELL * self.radii[-1]
            return Cell(0.0, -width, width)
        sign = 1 - 2 * state.test.side
        near = state.sides[state.test.side].front
        far = state.test.end
        return Cell(sign * (near + far) / 2, sign * near, sign * far)

    def prove(self, state: State) -> Proof:
        front = min((side.front for side in state.sides), default=0.0)
        level = bisect_right(self.radii, front)
        radius = self.radii[level - 1] if level else None
        return Proof(state.chosen, radius, count=state.own, counted=state.counted)

    def _placed(self, state: State, look: Look) -> State:
        """The state with the margin of a new cell. The first look of all only teaches."""
        test = state.test
        if test is not None and test.drawn:
            return state
        if look.margin is None or not 0 < look.margin < inf:
            raise InvalidInput(
                "no-margin",
                "the first look at a cell must have its margin, got {margin}",
                margin=look.margin,
            )
        if test is not None:
            return state._replace(test=test._replace(margin=look.margin))
        chosen = look.top if state.chosen is None else state.chosen
        if chosen is None:  # no sample had a vote
            return state
        cell = self.view(state)
        slope = look.margin / (cell.far - cell.near)
        side = Side(0.0, slope, dict(look.votes), look.samples)
        return state._replace(chosen=chosen, sides=(side, side))

    def _continued(self, states: Sequence[State]) -> list[State]:
        """What becomes of tests that are not decided: more samples, or no test."""
        prices = _prices(states, self._needed_wealth(1) - self._needed_wealth(0), self.give_up)
        return list(map(self._continued_or_failed, _with_bets(states), *prices))

    def _continued_or_failed(self, state: State, price: float, lucky_price: float) -> State:
        """An undecided test gets more samples, unless that of a smaller cell is cheaper.

        Args:
            state: Where an input stands.
            price: The samples that a new test needs for a margin of 1.
            lucky_price: The same if votes are better than they look.
        """
        test = _test_of(state)
        side = state.sides[test.side]
        left = self.most_samples - state.spent
        stretch = min(_HORIZON * self.radii[-1], self._goal(state) - side.front)
        if not left or (self.give_up and lucky_price * side.slope * stretch > left):
            return _without_test(state, side._replace(given_up=True))
        if test.need > price * test.margin:
            width = test.end - side.front
            failed = side._replace(
                failed=(*side.failed, test.end),
                widest=_NARROWER * width,
                slope=test.margin / width,
            )
            return _without_test(state, failed)
        more = ceil(_SPARE * min(test.need, 2 * test.drawn))
        return state._replace(more=min(max(more, _FEWEST), left))

    def _next(self, states: Sequence[State]) -> list[State]:
        """The next tests of inputs without an undecided one; none for those at their end."""
        begun = _changed(map(_moved, states), self._goes_on, self._begun)
        return _changed(begun, _is_new, self._with_first_looks)

    def _goes_on(self, state: State) -> bool:
        """Whether an input has more to prove, and samples left."""
        front = state.sides[_behind(state)].front
        return front < self._goal(state) and state.spent < self.most_samples

    def _with_first_looks(self, states: Sequence[State]) -> list[State]:
        """New tests with the samples of their first look."""
        after = []
        for state in _with_bets(states):
            more = max(ceil(min(_SPARE * _test_of(state).need, _MOST_FIRST)), _FEWEST)
            after.append(state._replace(more=min(more, self.most_samples - state.spent)))
        return after

    def _begun(self, states: Sequence[State]) -> list[State]:
        """Inputs with their next tests, on the side that is behind."""
        numbers = list(map(_behind, states))
        sides = [state.sides[number] for state, number in zip(states, numbers, strict=True)]
        chosen = [state.chosen for state in states]
        rivals = list(map(Side.rivals_of, sides, chosen))
        shares = list(map(_shares, sides, chosen, rivals))
        own = np.array([share for share, _ in shares])
        rival = np.array([against.max() for _, against in shares])
        aims = _aims(states[0].noise, own, rival).tolist()
        return list(map(self._with_test, states, numbers, rivals, aims))

    def _with_test(self, state: State, number: int, rivals: tuple[int, ...], aim: float) -> State:
        """An input with a test whose margin is about the aim, if there is a cell for it."""
        side = state.sides[number]
        width = min(aim / side.slope, side.widest)
        end = min(floor((side.front + width) * _STEPS) / _STEPS, self._goal(state))
        if end <= side.front:  # the picture is too steep, or the class too weak
            return state
        level = sum(failed > side.front for failed in side.failed)
        wealth = np.zeros(len(rivals) + 1)
        margin = side.slope * (end - side.front)
        test = Test(number, end, self._needed_wealth(level), rivals, margin, wealth)
        fading = min(_MEMORY / side.seen, 1.0)
        votes = {c: fading * count for c, count in side.votes.items()}
        remembered = side._replace(votes=votes, seen=fading * side.seen)
        return _with_side(state, number, remembered)._replace(test=test)

    def _goal(self, state: State) -> float:
        """The largest radius that can still be proved; 0 if there is none."""
        ends = [side.front for side in state.sides if side.given_up]
        level = bisect_right(self.radii, min(ends, default=inf))
        return self.radii[level - 1] if level else 0.0

    def _needed_wealth(self, level: int) -> float:
        """log(1 / alpha_j) for level j, rounded up."""
        return _SUM_MARGIN - log(self.alpha * (1 - _LEVEL_SHARE) * _LEVEL_SHARE**level)

    def coverage(self, noise: Noise) -> Coverage:
        return Coverage.by_theorem("Ville's inequality", self.alpha)

    def cells(
        self, looks: Sequence[Look], noise: Noise, label: int | None = None
    ) -> Iterator[tuple[Cell, float]]:
        """The cells that were proved, each with the margin that was used.

        Args:
            looks: All votes of one input.
            noise: The smoothing noise.
            label: The label of the input.
        """
        for cell, state in self._counted_looks(looks, noise, label):
            if state.test is not None and state.test.is_proved:
                yield cell, state.test.margin

    def p_value(
        self, looks: Sequence[Look], radius: float, noise: Noise, label: int | None = None
    ) -> float:
        """alpha times the largest 1 / (alpha_j * wealth) of the tests that were proved, where payoffs
        are checked on the curve, not on tangents.
        """
        worst = 0.0
        wealth = np.zeros(0)
        states = self._counted_looks(looks, noise, label)
        for (_, state), look in zip(states, looks, strict=True):
            test = state.test
            if test is None:
                continue
            if test.drawn == look.samples:
                wealth = np.zeros(len(test.wealth))
            payoffs = fair_payoffs(test.payoffs[:, :, None], noise, [test.margin])[:, :, 0]
            wealth = wealth + _gain(payoffs, test.rivals, state.chosen, look)
            if test.is_proved:
                worst = max(worst, exp(test.needed - wealth.min()))
        return self.alpha * worst

    def _counted_looks(
        self, looks: Sequence[Look], noise: Noise, label: int | None
    ) -> Iterator[tuple[Cell, State]]:
        """After each look, its cell and where its test stood when its votes were counted."""
        case = Case(self, noise, label)
        for look in looks:
            cell = case.cell
            [placed] = _changed([self._placed(case.state, look)], _is_new, _with_bets)
            yield cell, _counted(placed, look)
            case.add(look)


def _changed(
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


def _is_new(state: State) -> bool:
    """Whether an input has a test without a sample."""
    return state.test is not None and not state.test.drawn


def _is_undecided(state: State) -> bool:
    return state.test is not None and not state.test.is_proved


def _test_of(state: State) -> Test:
    assert state.test is not None
    return state.test


def _behind(state: State) -> int:
    """The number of the side that is proved less far."""
    return int(state.sides[1].front < state.sides[0].front)


def _with_side(state: State, number: int, side: Side) -> State:
    sides = (side, state.sides[1]) if number == 0 else (state.sides[0], side)
    return state._replace(sides=sides)


def _without_test(state: State, side: Side) -> State:
    """The state after a test that has failed."""
    return _with_side(state, _test_of(state).side, side)._replace(test=None, more=0)


def _moved(state: State) -> State:
    """The state after a proved test: the front of its side is the end of its cell."""
    test = state.test
    if test is None:
        return state
    side = state.sides[test.side]
    slope = test.margin / (test.end - side.front)
    failed = tuple(end for end in side.failed if end > test.end)
    moved = Side(test.end, slope, side.votes, side.seen, failed)
    return _without_test(state, moved)


def _counted(state: State, look: Look) -> State:
    """The state with the votes of a look."""
    spent = state.spent + look.samples
    test = state.test
    if test is None:
        return state._replace(spent=spent, more=0)
    own = look.of(state.chosen)
    gain = _gain(test.payoffs, test.rivals, state.chosen, look)
    side = state.sides[test.side]
    votes = {c: side.votes.get(c, 0) + look.votes.get(c, 0) for c in {**side.votes, **look.votes}}
    side = side._replace(votes=votes, seen=side.seen + look.samples)
    test = test._replace(wealth=test.wealth + gain, drawn=test.drawn + look.samples)
    return _with_side(state, test.side, side)._replace(
        test=test,
        more=0,
        spent=spent,
        own=state.own + own,
        counted=state.counted + look.samples,
    )


def _gain(payoffs: Array, rivals: Sequence[int], chosen: int | None, look: Look) -> Array:
    """By how much the votes of a look let log wealth grow, against each rival and all others."""
    own = look.of(chosen)
    alone = [look.of(c) for c in rivals]
    against = np.array([*alone, sum(look.votes.values()) - own - sum(alone)])
    others = look.samples - own - against
    gain: Array = own * payoffs[0] + against * payoffs[1] + others * payoffs[2]
    return gain


def _shares(side: Side, chosen: int | None, rivals: Sequence[int]) -> tuple[float, Array]:
    """The expected shares of votes for the class, for each rival, and for all others together."""
    own = side.votes.get(chosen, 0)  # type: ignore[arg-type]
    against = [side.votes.get(c, 0) for c in rivals]
    pool = sum(side.votes.values()) - own - sum(against)
    counts = np.array([own, *against, pool])
    shares = (counts + 0.5) / (side.seen + 1.5)
    return float(shares[0]), shares[1:]


def _shares_in_test(state: State) -> tuple[float, Array]:
    test = _test_of(state)
    return _shares(state.sides[test.side], state.chosen, test.rivals)


def _with_bets(states: Sequence[State]) -> list[State]:
    """The states with the bets of their tests on the next look, from the votes so far."""
    tests = list(map(_test_of, states))
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


def _aims(noise: Noise, own: Any, rival: Numbers) -> Numbers:
    """The margins for which a walk needs fewest samples, if votes have these shares."""
    assert isinstance(noise, Transformed)
    radius = _AIM * noise.noise.radius_between(own, np.minimum(rival, 1 - own))
    limits = np.array([_SMALLEST_AIM, _LARGEST_AIM]) * noise.deviation
    return np.clip(radius, *limits)


def _prices(states: Sequence[State], extra: float, give_up: float) -> tuple[Array, Array]:
    """The samples that new tests of these sides need for a margin of 1: of the next level if votes
    come as expected; and of this level if they are better than they look.

    Args:
        states: Where the inputs stand.
        extra: How much more log wealth the next level needs.
        give_up: The probability that votes look as bad by bad luck.
    """
    noise = states[0].noise
    tests = list(map(_test_of, states))
    seen = np.array(
        [state.sides[test.side].seen for state, test in zip(states, tests, strict=True)]
    )
    shares = list(map(_shares_in_test, states))
    own = np.array([a for a, _ in shares])
    rival = np.array([against.max() for _, against in shares])
    luck = -ndtri(max(give_up, _LEAST_SHARE)) * np.sqrt((own + rival) / seen) / 2
    lucky_own = np.minimum(own + luck, 1 - _LEAST_SHARE)
    lucky_rival = np.clip(rival - luck, _LEAST_SHARE / 2, 1 - lucky_own)
    own = np.stack([own, lucky_own])
    rival = np.stack([rival, lucky_rival])
    aims = _aims(noise, own, rival)
    growth = bet_at(noise, aims, own, rival).growth
    needed = np.array([test.needed for test in tests])
    needs = np.stack([needed + extra, needed]) / np.maximum(growth, _SLOWEST)
    price, lucky_price = needs / aims
    return price, lucky_price

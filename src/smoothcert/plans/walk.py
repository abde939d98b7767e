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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, exp, floor, inf, log
from typing import ClassVar, Self

import numpy as np

from smoothcert.errors import InvalidInput, either
from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers
from smoothcert.noises.transformed import Transformed
from smoothcert.plans.base import Proof
from smoothcert.plans.coverage import Coverage
from smoothcert.plans.decided import DecidingPlan
from smoothcert.plans.follow import Case
from smoothcert.plans.votes import Cell, Look, Votes
from smoothcert.plans.walk_state import (
    Side,
    State,
    Test,
    best_margins,
    changed,
    counted,
    is_new,
    is_undecided,
    log_gain,
    moved,
    prices_of,
    test_of,
    with_bets,
)
from smoothcert.statistics.betting import fair_payoffs

_LEVEL_SHARE = 0.2
"""alpha_j = alpha (1 - share) share^j. Few tests fail, so the first level gets most of alpha."""
_TEACHING_SAMPLES = 32
"""Samples at amount 0 that only teach the first bet, where the label is known."""
_FIRST_CELL = 1e-3
"""The half-width of the cell that shows how steep a picture is at 0, as a share of the largest
radius."""
_STEPS = 1e6
"""Cells end at multiples of 1 / _STEPS, so that rounding does not change them."""
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
_SUM_MARGIN = 1e-6
"""The sum of all gains is off by less."""


@dataclass(frozen=True, slots=True)
class Walk(DecidingPlan):
    """Decide up to which amounts of a transformation the class is proved, from 0 outwards.

    The noise is a `Rotation` or a `Zoom`. A certificate states the largest radius r such that every
    amount from -r to r is proved.

    Args:
        radii: The amounts to decide, above 0.
        samples: The ceiling: the most samples of an input, without its pilot. With known labels, the
            first 32 of them only teach the first bet.
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
                "radii of a rotation or zoom must be above 0, got {radius:g}",
                radius=self.radii[0],
            )
        if self.known_labels and self.samples <= _TEACHING_SAMPLES:
            raise InvalidInput(
                "too-few-samples",
                "a rotation or zoom with known labels needs more than {least} samples, got {samples}",
                least=_TEACHING_SAMPLES,
                samples=self.samples,
            )
        if self.top > 1:
            raise InvalidInput(
                "walk-of-top",
                "under a rotation or zoom, only the first class is proved: leave `top={top}` out",
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
            raise InvalidInput(
                "beyond-largest",
                "radii go up to {radius:g}, but {noise} only up to {largest:g}: give {how}",
                radius=self.radii[-1],
                noise=noise,
                largest=noise.largest,
                how=either("a larger `largest`", f"--transform {noise.title}:{self.radii[-1]:g}"),
            )
        return self

    def init(self, noise: Noise, chosen: Numbers = None) -> State:
        self.for_noise(noise)
        return State(noise, chosen, more=self.pilot or _TEACHING_SAMPLES)

    def update(self, state: State, votes: Votes) -> State:
        if not isinstance(votes, Look):
            raise InvalidInput(
                "needs-pictures",
                "what a rotation or zoom costs depends on the pictures, not on votes alone, so "
                "nothing can forecast it: give no `budget` and no `minutes`, and limit the cost by "
                "`samples`",
            )
        return self.update_each([state], [votes])[0]

    def update_each(self, states: Sequence[State], looks: Sequence[Look]) -> list[State]:
        placed = map(self._placed, states, looks)
        after = list(map(counted, changed(placed, is_new, with_bets), looks))
        after = changed(after, is_undecided, self._continued)
        return changed(after, lambda state: state.sides and not state.more, self._next)

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
        counted = max(state.spent - (self.pilot or _TEACHING_SAMPLES), 0)
        return Proof(state.chosen, self._radius_within(front), count=state.own, counted=counted)

    def _radius_within(self, front: float) -> float | None:
        """The largest radius up to a front; None if there is none."""
        level = bisect_right(self.radii, front)
        return self.radii[level - 1] if level else None

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
        prices = prices_of(states, self._needed_wealth(1) - self._needed_wealth(0), self.give_up)
        return list(map(self._continued_or_failed, with_bets(states), *prices))

    def _continued_or_failed(self, state: State, price: float, lucky_price: float) -> State:
        """An undecided test gets more samples. It fails if a new one of a narrower cell should be
        cheaper, and its side is given up if even lucky votes could not pay for the next stretch.

        Args:
            state: Where an input stands.
            price: The samples that a new test needs for a margin of 1.
            lucky_price: The same if votes are better than they look.
        """
        test = test_of(state)
        side = state.tested_side
        left = self.most_samples - state.spent
        stretch = min(_HORIZON * self.radii[-1], self._goal(state) - side.front)
        if not left or (self.give_up and lucky_price * side.slope * stretch > left):
            return state.without_test(side._replace(given_up=True))
        if test.need > price * test.margin:
            width = test.end - side.front
            failed = side._replace(
                failed=(*side.failed, test.end),
                widest=_NARROWER * width,
                slope=test.margin / width,
            )
            return state.without_test(failed)
        more = ceil(_SPARE * min(test.need, 2 * test.drawn))
        return state._replace(more=min(max(more, _FEWEST), left))

    def _next(self, states: Sequence[State]) -> list[State]:
        """The next tests of inputs without an undecided one; none for those at their end."""
        begun = changed(map(moved, states), self._goes_on, self._begun)
        return changed(begun, is_new, self._with_first_looks)

    def _goes_on(self, state: State) -> bool:
        """Whether an input has more to prove, and samples left."""
        front = state.sides[state.behind].front
        return front < self._goal(state) and state.spent < self.most_samples

    def _with_first_looks(self, states: Sequence[State]) -> list[State]:
        """New tests with the samples of their first look."""
        after = []
        for state in with_bets(states):
            more = max(ceil(min(_SPARE * test_of(state).need, _MOST_FIRST)), _FEWEST)
            after.append(state._replace(more=min(more, self.most_samples - state.spent)))
        return after

    def _begun(self, states: Sequence[State]) -> list[State]:
        """Inputs with their next tests, on the side that is behind."""
        numbers = [state.behind for state in states]
        sides = [state.sides[number] for state, number in zip(states, numbers, strict=True)]
        chosen = [state.chosen for state in states]
        rivals = list(map(Side.rivals_of, sides, chosen))
        shares = map(Side.shares, sides, chosen, rivals)
        own, rival = np.array([(own, against.max()) for own, against in shares]).T
        margins = best_margins(states[0].noise, own, rival).tolist()
        return list(map(self._with_test, states, numbers, rivals, margins))

    def _with_test(self, state: State, number: int, rivals: tuple[int, ...], aim: float) -> State:
        """An input with a test of about this margin, if there is a cell for it."""
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
        return state.with_side(number, remembered)._replace(test=test)

    def _goal(self, state: State) -> float:
        """The largest radius that can still be proved; 0 if there is none."""
        ends = [side.front for side in state.sides if side.given_up]
        return self._radius_within(min(ends, default=inf)) or 0.0

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
        are checked on the curve, not on tangents; 1 if these tests do not reach the radius.
        """
        worst = 0.0
        fronts = [0.0, 0.0]
        wealth = np.zeros(0)
        states = self._counted_looks(looks, noise, label)
        for (_, state), look in zip(states, looks, strict=True):
            test = state.test
            if test is None:
                continue
            if test.drawn == look.samples:
                wealth = np.zeros(len(test.wealth))
            payoffs = fair_payoffs(test.payoffs[:, :, None], noise, [test.margin])[:, :, 0]
            wealth = wealth + log_gain(payoffs, test.rivals, state.chosen, look)
            if test.is_proved:
                fronts[test.side] = test.end
                worst = max(worst, exp(test.needed - wealth.min()))
        return self.alpha * worst if min(fronts) >= radius else 1.0

    def _counted_looks(
        self, looks: Sequence[Look], noise: Noise, label: int | None
    ) -> Iterator[tuple[Cell, State]]:
        """After each look, its cell and where its test stood when its votes were counted."""
        case = Case(self, noise, label)
        for look in looks:
            cell = case.cell
            [placed] = changed([self._placed(case.state, look)], is_new, with_bets)
            yield cell, counted(placed, look)
            case.add(look)

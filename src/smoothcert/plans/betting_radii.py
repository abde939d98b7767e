"""Deciding chosen radii with the runner-up: bets on the votes of the class and of its rivals (an
e-process).

H(r, B) is the hypothesis that the rival B is as strong as the class A somewhere within r. The plan
bets against it (`statistics.betting`), and B is beaten at r when the wealth of these bets reaches
1 / alpha. If H(r, B) is true, this ever happens with a probability of at most alpha (Ville's
inequality), whatever the looks and the reason to stop.

A radius is proved when every rival is beaten at it and at every smaller radius. If a proved radius
is false, take the smallest false one, r, and a rival B for which H(r, B) is true: B was beaten at
r. So each hypothesis is tested with the full alpha, for a class that is known or chosen by samples
that do not count.

For the top k, a radius is proved when at most k - 1 rivals are unbeaten at it and at every smaller
radius, with wealth k / alpha. If a proved radius is false, H(r, B) is true for k rivals at the
smallest false radius r, and one of these k was beaten there.

A run can be continued with a higher ceiling, or with radii above its largest: it gets another
stage. Votes and proofs follow from the plan alone, whenever an input was opened, by these rules:

1. Bets change only at looks that do not depend on the ceiling. Their proofs hold wherever sampling
   stops.
2. Every input goes through all stages in order.
3. An input enters the next stage when it has decided the radii of the last one, has given up or has
   reached its ceiling.
4. A radius that enters later starts with a wealth of 1. Earlier votes only teach its bets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from math import exp, log
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert._registry import LATER
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers
from smoothcert.plans.base import Plan, Proof, settle
from smoothcert.plans.coverage import Coverage
from smoothcert.plans.decided import DecidingPlan
from smoothcert.plans.follow import Case
from smoothcert.plans.votes import Look, Tally, Votes
from smoothcert.statistics.betting import LOOKS, best_bet, fair_payoffs, tangents
from smoothcert.statistics.bounds import Counts
from smoothcert.statistics.e_process import Histories, begin_histories, outcome, update_histories

_VERSION = 1
"""Of the rule: looks, bets and giving up. Recorded with a run, because the rule has to be followed
again."""


class Stage(NamedTuple):
    """What was asked for at a time."""

    ceiling: int
    """The most samples that a decision rests on."""
    n_radii: int
    """How many of the radii were asked for."""


class Progress(NamedTuple):
    """Where the bets on one input stand after a look."""

    histories: Histories
    total: int = 0
    """Samples so far, with the pilot."""
    stage: int = 0
    proved: int = 0
    """How many radii are proved, counted from the smallest one."""
    more: int = 0
    """Samples up to the next look; 0 if all is decided."""


class State(NamedTuple):
    """Where inputs stand."""

    tally: Tally
    progress: Any = None
    """A `Progress`, or an array of them for many inputs; None before the first look and without a
    class."""


@dataclass(frozen=True, slots=True)
class BettingRadii(DecidingPlan):
    """Decide for each input which radii are proved, also by the votes of the other classes.

    It proves more than `AtRadii`: also radii of a class that leads without a majority. A run can be
    continued with more samples, or with larger radii.

    Args:
        earlier: For a run that was continued: the ceiling and the number of radii of each earlier
            stage.
        version: The version of the rule, for the record.

    The other arguments are those of `DecidingPlan`. The default pilot has 105 samples: near ties
    are certified, so the class has to be chosen with more care than by `AtRadii`.
    """

    earlier: tuple[Stage, ...] = field(default=(), metadata=LATER)
    version: int = _VERSION
    default_pilot: ClassVar[int] = 105
    bound: ClassVar[str] = "runner-up"  # type: ignore[misc]

    def __post_init__(self) -> None:
        DecidingPlan.__post_init__(self)
        settle(self, earlier=tuple(Stage(*map(int, stage)) for stage in self.earlier))
        for before, after in pairwise(self.stages):
            if not (0 < before.n_radii <= after.n_radii and before.ceiling <= after.ceiling):
                raise InvalidInput(
                    "stages-shrink",
                    "earlier must hold smaller ceilings and fewer radii, got {earlier}",
                    earlier=self.earlier,
                )
        _check.one_of("version", self.version, (_VERSION,))

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What was asked for, in order. Only a run that was continued has several stages."""
        return (*self.earlier, Stage(self.samples, len(self.radii)))

    @property
    def earlier_plans(self) -> tuple[Plan, ...]:
        plans = []
        for i, stage in enumerate(self.earlier):
            radii = self.radii[: stage.n_radii]
            plans.append(
                replace(self, radii=radii, samples=stage.ceiling, earlier=self.earlier[:i])
            )
        return tuple(plans)

    def continuing(self, recorded: Plan) -> Plan:
        """With a higher ceiling, or with radii above its largest, a recorded run of this plan goes
        on.
        """
        if not isinstance(recorded, BettingRadii) or not self._extends(recorded):
            return self
        if replace(self, earlier=recorded.earlier) == recorded:
            return recorded
        longer = replace(self, earlier=recorded.stages)
        return longer if longer.earlier_plans[-1] == recorded else self

    def _extends(self, recorded: BettingRadii) -> bool:
        """Whether this asks for no fewer samples, and for the same radii or larger ones besides."""
        same_radii = self.radii[: len(recorded.radii)] == recorded.radii
        return not self.earlier and self.samples >= recorded.samples and same_radii

    def for_noise(self, noise: Noise) -> Self:
        DecidingPlan.for_noise(self, noise)
        noise.trade_off(self.radii[-1], 0.25)  # a noise without a curve refuses
        return self

    def init(self, noise: Noise, chosen: Numbers = None) -> State:
        return State(Tally.begin(self, noise, chosen))

    def update(self, state: State, votes: Votes) -> State:
        if isinstance(votes, Look):
            return self.update_each([state], [votes])[0]
        by_class = votes.votes
        tally = state.tally.add(votes)
        drawing = np.flatnonzero(votes.samples)
        before = state.progress
        progress = np.full(votes.samples.shape, None) if before is None else before.copy()
        counts = by_class.reshape(-1, by_class.shape[-1])[drawing].tolist()
        after = self._advance(
            tally.noise,
            progress.ravel()[drawing].tolist(),
            tally.chosen.ravel()[drawing].tolist(),
            [{c: n for c, n in enumerate(row) if n} for row in counts],
            votes.samples.ravel()[drawing],
        )
        for place, one in zip(drawing.tolist(), after, strict=True):
            progress.flat[place] = one
        return State(tally, progress)

    def update_each(self, states: Sequence[State], looks: Sequence[Look]) -> list[State]:
        tallies = [state.tally.add(look) for state, look in zip(states, looks, strict=True)]
        after = [State(tally) for tally in tallies]
        # Without a class, because no sample had a vote, there is nothing to bet on.
        places = [i for i, tally in enumerate(tallies) if tally.chosen is not None]
        if not places:
            return after
        progresses = self._advance(
            tallies[0].noise,
            [states[i].progress for i in places],
            [tallies[i].chosen for i in places],
            [looks[i].votes for i in places],
            [looks[i].samples for i in places],
        )
        for i, progress in zip(places, progresses, strict=True):
            after[i] = State(tallies[i], progress)
        return after

    def request(self, state: State) -> Numbers:
        if state.tally.look == 0:
            return self.pilot or min(int(LOOKS[0]), self.stages[0].ceiling)
        if state.progress is None:
            return 0
        return _each(state.progress, "more")

    def prove(self, state: State) -> Proof:
        level = 0 if state.progress is None else _each(state.progress, "proved")
        radius = np.concatenate([[np.nan], self.radii])[level]
        tally = state.tally
        return Proof(tally.chosen, radius, count=tally.count, counted=tally.drawn)

    def _advance(
        self,
        noise: Noise,
        before: Sequence[Progress | None],
        chosen: Sequence[int],
        votes: Sequence[Mapping[int, int]],
        samples: ArrayLike,
    ) -> list[Progress]:
        """Where several inputs stand after one more look of each.

        The first look only teaches the first bet.
        """
        start = _start(noise, self.radii)
        progress = [one or start for one in before]
        stage = np.array([one.stage for one in progress])
        total = np.array([one.total for one in progress]) + np.asarray(samples)
        histories = update_histories(
            tangents(noise, self.radii),
            [one.histories for one in progress],
            votes,
            samples,
            chosen=chosen,
            alpha=self.alpha / self.top,
            bets_change=self._bets_change(total),
            n_radii=self._n_radii[stage],
        )
        stage, proved, ended = self._enter_stages(histories, stage, total)
        following_look = LOOKS[np.searchsorted(LOOKS, total, side="right")]
        due = np.minimum(following_look, self._ceilings[stage])
        more = np.where(ended, 0, due - total)
        numbers = (part.tolist() for part in (total, stage, proved, more))
        return [Progress(*one) for one in zip(histories, *numbers, strict=True)]

    def _enter_stages(
        self, histories: Sequence[Histories], stage: Counts, total: Counts
    ) -> tuple[Counts, Counts, NDArray[np.bool_]]:
        """The stage of each input, how many radii are proved, and whether all is decided.

        An input may pass several stages without a new sample.
        """
        ceilings = self._ceilings[stage]
        result = outcome(
            histories,
            ceilings,
            alpha=self.alpha / self.top,
            give_up=self.give_up,
            top=self.top,
        )
        ended = (result.proved >= self._n_radii[stage]) | result.hopeless | (total >= ceilings)
        passed = ended & (stage < len(self.stages) - 1)
        if passed.any():
            return self._enter_stages(histories, stage + passed, total)
        return stage, result.proved, ended

    def _bets_change(self, total: ArrayLike) -> NDArray[np.bool_]:
        """Whether bets change after so many samples."""
        return np.isin(total, np.append(LOOKS, self.pilot))

    @property
    def _ceilings(self) -> Counts:
        """The ceiling of each stage, with the pilot."""
        return np.array([stage.ceiling for stage in self.stages]) + self.pilot

    @property
    def _n_radii(self) -> Counts:
        """How many radii each stage decides."""
        return np.array([stage.n_radii for stage in self.stages])

    def coverage(self, noise: Noise) -> Coverage:
        return Coverage.by_theorem("Ville's inequality", self.alpha)

    def p_value(
        self, looks: Sequence[Look], radius: float, noise: Noise, label: int | None = None
    ) -> float:
        """1 / wealth, where every rival has its own wealth and payoffs are checked on the curve,
        not on tangents.
        """
        best = self._best_wealth(looks, noise, label)
        # For the top k, the k-th smallest wealth counts, at the level alpha / k. The last row
        # stands for all classes without a vote.
        best = np.sort(np.concatenate([best, *[best[-1:]] * (self.top - 1)]), axis=0)
        best = best[[self.top - 1]] - log(self.top)
        level = int(np.searchsorted(self.radii, radius, "right"))
        return exp(-float(best[:, :level].min(initial=np.inf if level else 0.0)))

    def _best_wealth(
        self, looks: Sequence[Look], noise: Noise, label: int | None
    ) -> NDArray[np.float64]:
        """The largest log wealth that bets reached at some look, by rival and radius."""
        case = Case(self, noise, label)
        chosen = label if self.known_labels else looks[0].top
        rivals = [*{c for look in looks for c in look.votes if c != chosen}, None]  # None: no votes
        wealth = np.zeros((len(rivals), len(self.radii)))
        best = wealth
        payoffs = np.zeros((3, *wealth.shape))
        seen = np.zeros((len(rivals), 3))
        for look in looks:
            leader = look.of(chosen)
            votes = np.array([look.of(c) for c in rivals])
            new = np.stack(
                [np.full(len(rivals), leader), votes, look.samples - leader - votes], axis=-1
            )
            progress = case.state.progress
            stage = 0 if progress is None else progress.stage
            entered = np.arange(len(self.radii)) < self.stages[stage].n_radii
            gain = sum(n[:, None] * payoff for n, payoff in zip(new.T, payoffs, strict=True))
            wealth = np.where(entered, wealth + gain, 0.0)
            best = np.maximum(best, wealth)
            seen = seen + new
            case.add(look)
            total = int(seen[0].sum())
            if self._bets_change(total):
                bet = best_bet(tangents(noise, self.radii), seen[0, 0], seen[:, 1], total)
                payoffs = fair_payoffs(np.stack(bet[:3]), noise, self.radii)
        return best


def _each(progress: Any, name: str) -> Any:
    """A number of one `Progress`, or of many."""
    if not isinstance(progress, np.ndarray):
        return getattr(progress, name)
    return np.array([getattr(one, name) for one in progress.ravel()]).reshape(progress.shape)


@lru_cache(maxsize=64)
def _start(noise: Noise, radii: tuple[float, ...]) -> Progress:
    return Progress(begin_histories(tangents(noise, radii)))

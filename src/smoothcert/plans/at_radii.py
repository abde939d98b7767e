"""Deciding chosen radii by sequential tests: look after look, until every radius is proved or given up.

Most tables report certified accuracy at a few radii. To decide whether the radius is above 0.5, an input with p = .95
needs a few hundred samples, not 100,000. The probability of a wrong certificate is at most alpha, whatever the number
of radii.

There are two rules. Exact boundaries count the votes of the class alone (`Tables`). They are nested, so proving any
false radius implies proving the smallest false one. With the runner-up, the plan bets on the votes of the class and of
its rivals, against every rival at every radius (`Standing`).

Bets change only at looks that do not depend on the ceiling, and their proofs hold wherever sampling stops. So a run can
be continued with a higher ceiling, or with radii above its largest: it gets another stage. Every input goes through all
stages in order. It enters the next one when it has decided the radii of the last one, has given up or has reached its
ceiling. So votes and proofs follow from the plan alone, whenever an input was opened. A radius that enters later starts
with a wealth of 1, and earlier votes only teach its bets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert._registry import LATER
from smoothcert.errors import InvalidInput, setting
from smoothcert.noises import Noise
from smoothcert.plans.base import Look, ManyVotes, Plan, Proof, State, Votes
from smoothcert.plans.machine import proof, unanimous
from smoothcert.plans.pilot import Bound
from smoothcert.statistics.bets import (
    LOOKS,
    Histories,
    begin_histories,
    outcome,
    tangents,
    update_histories,
)
from smoothcert.statistics.boundaries import (
    GIVE_UP,
    boundary,
    crossing_probability,
    default_looks,
    give_up_counts,
)
from smoothcert.statistics.sample_map import check_ceiling

_PILOTS = {"binary": 50, "runner-up": 105}
"""With the runner-up, near ties are certified, so the class has to be chosen with more care."""

_VERSION = 1
"""Of the rule of bets: looks, bets and giving up. Recorded with a run, because the rule has to be followed again."""


class Stage(NamedTuple):
    """What was asked for at a time."""

    ceiling: int
    """The most samples that a decision rests on."""
    radii: int
    """How many of the radii were asked for."""


@dataclass(frozen=True)
class AtRadii(Plan):
    """Decide for each input which of the given radii are proved, with as few samples as possible.

    A certificate states the largest radius that was proved. It says that the true radius is above it. A proved radius
    of 0 means that the class has the majority, or with the runner-up that it leads. Under noises whose radii are whole
    numbers, above r means at least r + 1, as in every table of certified accuracy.

    Args:
        radii: The radii to decide.
        samples: The ceiling: the most samples that a decision rests on.
        alpha: The largest probability that a certificate is wrong.
        pilot: Samples that choose the class and do not count. 0 stands for the default: none with known labels, else
            50, or 105 with the runner-up.
        known_labels: Whether the class is the input's label instead of the pilot's choice.
        bound: "binary" counts the votes of the class alone, as papers do. "runner-up" also counts those of the other
            classes: it proves more, and a run can be continued with more samples or larger radii.
        give_up: A radius is given up when the chance to still prove it falls below this; 0 for never.
        earlier: For a run that was continued: the ceiling and the number of radii of each earlier stage.
        version: The version of the rule of bets, for the record.

    >>> from smoothcert import Certificate, Gaussian, Look
    >>> looks = [Look(50, {3: 49}), Look(60, {3: 60})]
    >>> Certificate.from_votes(looks, plan=AtRadii([0, 0.5], samples=10_000), noise=Gaussian(0.5)).radius
    0.5
    """

    radii: tuple[float, ...]
    samples: int = 100_000
    alpha: float = 0.001
    pilot: int = 0
    known_labels: bool = False
    bound: Bound = field(default="binary", metadata=LATER)
    give_up: float = field(default=GIVE_UP, metadata=LATER)
    earlier: tuple[Stage, ...] = field(default=(), metadata=LATER)
    version: int = field(default=0, metadata=LATER)
    name: ClassVar[str] = "radii"

    def __post_init__(self) -> None:
        try:
            given = (
                [] if self.radii is None else np.atleast_1d(np.asarray(self.radii, float)).tolist()
            )
        except (TypeError, ValueError):
            raise InvalidInput(
                f"radii must be numbers, as in [0, 0.25, 0.5], got {self.radii!r}"
            ) from None
        if not given:
            raise InvalidInput("radii must hold at least one radius, got none")
        pilot = _check.whole("pilot", self.pilot)
        if self.known_labels and pilot:
            raise InvalidInput(
                f"with known labels, deciding radii needs no pilot, got {setting('pilot', pilot)}"
            )
        _check.one_of("bound", self.bound, tuple(_PILOTS))
        vars(self).update(
            radii=tuple(sorted(set(_check.radii(given)))),
            samples=check_ceiling(self.samples, self.alpha),
            alpha=float(self.alpha),
            pilot=0 if self.known_labels else pilot or _PILOTS[self.bound],
            give_up=_check.at_least("give_up", self.give_up, 0),
            earlier=tuple(Stage(*map(int, stage)) for stage in self.earlier),
        )
        if self.give_up >= 1:
            raise InvalidInput(f"give_up must be below 1, got {self.give_up:g}")
        grows = all(
            0 < a.radii <= b.radii and a.ceiling <= b.ceiling for a, b in pairwise(self.stages)
        )
        if self.earlier and not (grows and self.remembers):
            raise InvalidInput(
                f"earlier must hold smaller ceilings and fewer radii of bets, got {self.earlier}"
            )
        if self.version not in (0, _VERSION):
            raise InvalidInput(
                f"bets follow rule {_VERSION} in this version of smoothcert, got {self.version}"
            )
        object.__setattr__(self, "version", _VERSION if self.remembers else 0)

    def __str__(self) -> str:
        radii = ", ".join(f"{radius:g}" for radius in self.radii)
        words = [f"radii {radii}", f"ceiling {self.samples:,}"]
        words += ["runner-up bound"] * (self.bound == "runner-up")
        words += ["known labels"] * self.known_labels
        words += [f"giving up at {self.give_up:g}"] * (self.give_up != GIVE_UP)
        return ", ".join(words)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What was asked for, in order. Only a run that was continued has several stages."""
        return (*self.earlier, Stage(self.samples, len(self.radii)))

    @property
    def earlier_plans(self) -> tuple[Plan, ...]:
        return tuple(
            replace(
                self,
                radii=self.radii[: stage.radii],
                samples=stage.ceiling,
                earlier=self.earlier[:i],
            )
            for i, stage in enumerate(self.earlier)
        )

    @property
    def remembers(self) -> bool:
        return self.bound == "runner-up"

    @property
    def smallest_request(self) -> int:
        return int(np.diff(default_looks(self.samples), prepend=0).min())

    def tables(self, noise: Noise) -> Tables:
        """Thresholds, looks and boundaries under this noise; computed once per process.

        Args:
            noise: The smoothing noise.
        """
        return _tables(self, noise)

    def for_noise(self, noise: Noise) -> Self:
        super().for_noise(noise)
        if self.remembers:
            noise.trade_off(
                max(self.radii) or 1.0, 0.25
            )  # a noise without a curve refuses, also at radius 0
        most = self.certified_radius(
            unanimous(self, noise).state.lower, None, noise
        )  # NaN if nothing is proved
        if beyond := [radius for radius in self.radii if not radius <= most]:
            radius = beyond[0]
            if noise.needed_probability(radius) >= 1:
                largest = min(float(noise.certified_radius(1.0)), radius)
                raise InvalidInput(
                    f"{noise} proves no radius above {largest:g}, whatever the number of samples, got {radius:g}: use "
                    "smaller radii"
                )
            raise InvalidInput(
                f"a radius above {radius:g} can never be proved with {self.samples:,} samples at alpha {self.alpha:g} "
                f"under {noise}: use more samples or smaller radii"
            )
        return self

    def remember(self, state: State, votes: Votes, noise: Noise) -> Any:
        """With bets: where one input stands after a look, or an array of them for many inputs."""
        if not self.remembers:
            return None
        if isinstance(votes, Look):
            return self.remember_each([state], [votes], noise)[0]
        assert isinstance(votes, ManyVotes)
        memory = np.full(state.count.shape, None) if state.memory is None else state.memory.copy()
        drawing = np.flatnonzero(votes.samples)
        counts = votes.votes.reshape(-1, votes.votes.shape[-1])[drawing].tolist()
        by_class = [{c: n for c, n in enumerate(row) if n} for row in counts]
        before, chosen = memory.ravel()[drawing].tolist(), state.chosen.ravel()[drawing].tolist()
        found = _advance(self, noise, before, chosen, by_class, votes.samples.ravel()[drawing])
        for place, standing in zip(drawing.tolist(), found, strict=True):
            memory.flat[place] = standing
        return memory

    def remember_each(
        self, states: Sequence[State], looks: Sequence[Look], noise: Noise
    ) -> list[Any]:
        memories: list[Any] = [None] * len(states)
        # Without a class, because no sample had a vote, there is nothing to bet on.
        places = [
            i for i, state in enumerate(states) if self.remembers and state.chosen is not None
        ]
        if places:
            before, chosen = [states[i].memory for i in places], [states[i].chosen for i in places]
            votes, samples = [looks[i].votes for i in places], [looks[i].samples for i in places]
            for i, standing in zip(
                places, _advance(self, noise, before, chosen, votes, samples), strict=True
            ):
                memories[i] = standing
        return memories

    def request(self, state: State, noise: Noise) -> Any:
        if self.remembers:
            first = min(int(LOOKS[0]), self.stages[0].ceiling)
            return first if state.memory is None else _each(state.memory, "more")
        tables = self.tables(noise)
        look = np.asarray(state.look) - (1 if self.pilot else 0)
        last = len(tables.looks)
        step = tables.steps[np.minimum(look, last - 1)]
        level = np.searchsorted(tables.thresholds, state.lower, side="right")
        undecided = np.minimum(level, len(self.radii) - 1)
        hopeless = np.asarray(state.count) <= tables.given_up[undecided, np.maximum(look - 1, 0)]
        stop = (look >= last) | ((look >= 1) & ((level >= len(self.radii)) | hopeless))
        return np.where(stop, 0, step)[()]

    def lower_bound(self, state: State, noise: Noise) -> Any:
        """As for every plan. Bets prove no such bound: theirs is the share of the radii that are proved."""
        if self.remembers:
            return _each(state.memory, "proved") / len(self.radii)
        tables = self.tables(noise)
        look = np.asarray(state.look) - (2 if self.pilot else 1)
        # A boundary belongs to one number of samples: votes of any other number prove nothing.
        due = np.asarray(state.drawn) == np.asarray(tables.looks)[look]
        reached = due[..., None] & (np.asarray(state.count)[..., None] >= tables.needed.T[look])
        return np.concatenate([[0.0], tables.thresholds])[reached.sum(axis=-1)][()]

    def certified_radius(self, lower: ArrayLike, upper: ArrayLike | None, noise: Noise) -> Any:
        if self.remembers:
            level = np.rint(np.asarray(lower) * len(self.radii)).astype(int)
        else:
            level = np.searchsorted(self.tables(noise).thresholds, lower, side="right")
        return np.concatenate([[np.nan], self.radii])[level][()]


def continuing(plan: Plan, recorded: Plan) -> Plan:
    """The plan of a run that goes on with this plan; this plan itself where it cannot go on.

    With the runner-up, a run goes on with a higher ceiling, or with radii above its largest.
    """
    if (
        not (isinstance(plan, AtRadii) and plan.remembers and isinstance(recorded, AtRadii))
        or plan.earlier
    ):
        return plan
    if plan.samples < recorded.samples or plan.radii[: len(recorded.radii)] != recorded.radii:
        return plan
    if replace(plan, earlier=recorded.earlier) == recorded:
        return recorded
    longer = replace(plan, earlier=recorded.stages)
    return longer if longer.earlier_plans[-1] == recorded else plan


@proof.register
def _(plan: AtRadii, noise: Noise, state: State) -> Proof:
    found = proof.dispatch(Plan)(plan, noise, state)
    if not plan.remembers:
        return found
    radius = float(plan.certified_radius(found.lower, None, noise))
    return replace(found, lower=0.0, radius=None if np.isnan(radius) else radius)


class Tables(NamedTuple):
    """What a plan that decides radii needs to know about each look."""

    looks: tuple[int, ...]
    """Samples at each look."""
    steps: NDArray[np.int64]
    """Samples drawn for each look."""
    thresholds: NDArray[np.float64]
    """The probability that proves more than each radius."""
    needed: NDArray[np.int64]
    """Votes needed, by radius and look."""
    given_up: NDArray[np.int64]
    """The largest count with which a radius is given up, by radius and look."""
    spent: NDArray[np.float64]
    """The probability to prove each radius if its probability is just at the threshold."""


@lru_cache(maxsize=64)
def _tables(plan: AtRadii, noise: Noise) -> Tables:
    looks = default_looks(plan.samples)
    # Rounded on its own, the threshold of one radius may lie just above that of the next one.
    thresholds = np.maximum.accumulate([noise.needed_probability(radius) for radius in plan.radii])
    needed = np.empty((len(thresholds), len(looks)), np.int64)
    spent = np.empty(len(thresholds))
    for j, threshold in enumerate(thresholds.tolist()):
        if threshold >= 1:
            needed[j], spent[j] = np.asarray(looks) + 1, 0.0
            continue
        needed[j], spent[j] = boundary(threshold, looks, alpha=plan.alpha)
        if j and np.any(
            needed[j] < needed[j - 1]
        ):  # nested boundaries need no correction for several radii
            needed[j] = np.maximum(needed[j], needed[j - 1])
            spent[j] = crossing_probability(needed[j], looks, threshold)
    given_up = np.stack([give_up_counts(int(row[-1]), looks, plan.give_up) for row in needed])
    return Tables(looks, np.diff(looks, prepend=0), thresholds, needed, given_up, spent)


class Standing(NamedTuple):
    """Where one input that bets stands after a look."""

    histories: Histories
    total: int
    """Samples so far, with the pilot."""
    stage: int
    proved: int
    """How many radii are proved, counted from the smallest one."""
    more: int
    """Samples up to the next look; 0 if all is decided."""


def _each(memory: Any, name: str) -> Any:
    """A number of one `Standing`, or of many."""
    if not isinstance(memory, np.ndarray):
        return getattr(memory, name)
    return np.array([getattr(one, name) for one in memory.ravel()]).reshape(memory.shape)


@lru_cache(maxsize=64)
def _start(noise: Noise, radii: tuple[float, ...]) -> Standing:
    return Standing(begin_histories(tangents(noise, radii)), 0, 0, 0, 0)


def _advance(
    plan: AtRadii,
    noise: Noise,
    before: Sequence[Standing | None],
    chosen: Sequence[int],
    votes: Sequence[Mapping[int, int]],
    samples: ArrayLike,
) -> list[Standing]:
    """Where several inputs stand after one more look of each. The first look only teaches the first bet."""
    table = tangents(noise, plan.radii)
    ceilings = np.array([stage.ceiling for stage in plan.stages]) + plan.pilot
    radii = np.array([stage.radii for stage in plan.stages])
    start = _start(noise, plan.radii)
    standing = [one or start for one in before]
    stage = np.array([one.stage for one in standing])
    total = np.array([one.total for one in standing]) + np.asarray(samples)
    following = np.searchsorted(LOOKS, total, side="right")
    histories = update_histories(
        table,
        [one.histories for one in standing],
        votes,
        samples,
        chosen=chosen,
        alpha=plan.alpha,
        look=(LOOKS[following - 1] == total) | (total == plan.pilot),
        radii=radii[stage],
    )
    while True:
        found = outcome(histories, ceilings[stage], alpha=plan.alpha, give_up=plan.give_up)
        ended = (found.proved >= radii[stage]) | found.hopeless | (total >= ceilings[stage])
        passed = ended & (stage < len(radii) - 1)
        if not passed.any():
            break
        stage = stage + passed
    due = np.minimum(LOOKS[following], ceilings[stage])
    more = np.where(ended, 0, due - total)
    numbers = (part.tolist() for part in (total, stage, found.proved, more))
    return [Standing(*one) for one in zip(histories, *numbers, strict=True)]

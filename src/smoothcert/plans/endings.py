"""Where a plan ends for inputs whose classes have known probabilities: exactly by a forward pass, or simulated.

In the forward pass, states after a look are groups of neighbouring counts with the same number of samples, so that one
more draw is a convolution with a binomial distribution. What earlier looks proved is told apart only where the rule
reads it. Both ask the rule of the plan through `machine`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from smoothcert._user_errors import naming_user_errors
from smoothcert.noises import Noise
from smoothcert.plans import machine
from smoothcert.plans.base import ClassVotes, ManyVotes, Plan, State, Votes
from smoothcert.statistics.bounds import Array, Counts, likely

_Key = tuple[int, float]  # samples, and what was proved before
_Group = tuple[int, Array]  # the first count, and the probability of each count from there on

# Counts with a smaller probability are cut off and count as failed. The far tails of a draw are left out.
_RARE = 1e-20
_BLOCK = 256  # counts that a plan is asked about at once
_MOST_BLOCKS = 2**16  # whose answers are remembered
_MOST_GROUPS = (
    400  # at one look; each takes about as long as a plan that does not read what it proved before
)


class TooManyStates(Exception):
    """The states of a plan are too many to be enumerated."""


class Ending(NamedTuple):
    """Where a plan ends for a class of known probability."""

    failed: float
    """The probability to claim at some look what is true only for probabilities above the limit."""
    samples: float
    """Expected samples, every forward pass counted."""
    proved: dict[float, float]
    """The probability of each bound at the end, for plans whose rule reads what was proved before."""


class Forward:
    """Follows a plan through all of its looks.

    A search over p meets the same states again and again, and a bound takes a microsecond for each of them. So the
    answers of the plan are remembered.

    Args:
        plan: The plan; its class is fixed in advance.
        noise: The smoothing noise.
        most_groups: How many groups of states may be told apart at one look, by samples and by what was proved before.
    """

    def __init__(self, plan: Plan, noise: Noise, most_groups: float = _MOST_GROUPS) -> None:
        if plan.remembers:
            raise TooManyStates(f"{plan} remembers more than counts")
        self.plan = plan
        self.noise = noise
        self._most_groups = most_groups
        self._reads_lower = False
        self._block = lru_cache(maxsize=_MOST_BLOCKS)(self._answers)

    def ending(self, p: float, *, limit: float, seen: list[Array] | None = None) -> Ending:
        """Where the plan ends; `seen` collects the probabilities that its claims need.

        Raises:
            TooManyStates: The enumeration would take too long.
        """
        read_before = self._reads_lower
        found = self._ending(p, limit, seen)
        return found if self._reads_lower == read_before else self._ending(p, limit, seen)

    def _ending(self, p: float, limit: float, seen: list[Array] | None) -> Ending:
        plan = self.plan
        start = machine.begin(plan, self.noise, chosen=0).more
        counts, probability = likely(start, p)
        groups: dict[_Key, _Group] = {(start, 0.0): (int(counts[0]), probability)}
        failed, samples = 0.0, float(start)
        proved: dict[float, float] = defaultdict(float)
        look = 0
        while groups:
            look += 1
            if machine.counts(plan, look):
                groups, newly = self._prove(look, groups, limit, seen)
                failed += newly
            parts: dict[_Key, list[_Group]] = defaultdict(list)
            for (drawn, lower), (first, probability) in groups.items():
                wanted = self._ask("wanted", look, drawn, lower, first, len(probability))
                proved[lower] += float(probability[wanted == 0].sum())
                for n in np.unique(wanted[wanted > 0]).tolist():
                    chosen = np.where(wanted == n, probability, 0.0)
                    samples += n * float(chosen.sum())
                    keeps = machine.counts(plan, look)
                    origin, mass = (first, chosen) if keeps else (0, chosen.sum(keepdims=True))
                    more, step = likely(n, p)
                    parts[drawn + n if keeps else n, lower].append(
                        (origin + int(more[0]), np.convolve(mass, step))
                    )
            groups, lost = _merged(parts)
            failed += lost
        return Ending(failed, samples, dict(proved))

    def _prove(
        self, look: int, groups: dict[_Key, _Group], limit: float, seen: list[Array] | None
    ) -> tuple[dict[_Key, _Group], float]:
        """Take out the states that claim too much. In the others, note what they proved if the rule reads it."""
        kept: dict[_Key, list[_Group]] = defaultdict(list)
        failed = 0.0
        for (drawn, lower), (first, probability) in groups.items():
            proved, needed = self._ask("bound", look, drawn, lower, first, len(probability))
            if seen is not None:
                seen.append(needed)
            wrong = needed > limit
            failed += float(probability[wrong].sum())
            level = np.maximum(lower, proved) if self._reads_lower else np.zeros(len(probability))
            for value in np.unique(level[~wrong]).tolist():
                kept[drawn, value].append(
                    (first, np.where(~wrong & (level == value), probability, 0.0))
                )
        if self._reads_lower and len(kept) > self._most_groups:
            raise TooManyStates(f"{self.plan} reads what it proved, and that can be very different")
        merged, lost = _merged(kept)
        return merged, failed + lost

    def _ask(
        self, question: str, look: int, drawn: int, lower: float, first: int, length: int
    ) -> Array:
        """What the rule of the plan answers for neighbouring counts."""
        key, before = (question, look, drawn, lower), first % _BLOCK
        starts = range(first - before, first + length, _BLOCK)
        try:
            answers = [self._block(*key, start, min(start + _BLOCK, drawn + 1)) for start in starts]
        except Exception:  # a rule of the user may refuse counts that no run reaches
            return self._answers(*key, first, first + length)
        return np.concatenate(answers, axis=-1)[..., before : before + length]

    def _answers(
        self, question: str, look: int, drawn: int, lower: float, first: int, end: int
    ) -> Array:
        """How many more samples are wanted; or the bound, and the probability that its claim needs."""
        counts = np.arange(first, end)
        state = _WatchedState(
            look, counts, np.full_like(counts, drawn), np.full(len(counts), lower), chosen=0, more=1
        )
        answer = (machine.wanted if question == "wanted" else machine.bound)(
            self.plan, self.noise, state
        )
        self._reads_lower |= state.was_read
        return (
            answer
            if question == "wanted"
            else np.stack([answer, needed_for_claim(self.plan, self.noise, answer)])
        )


class _WatchedState(State):
    """A state that notes whether somebody reads what was proved before, or copies it."""

    was_read = False

    @property
    def lower(self) -> Any:
        self.was_read = True
        return super().lower

    def __iter__(self) -> Iterator[Any]:  # `_replace` copies a state through here
        self.was_read = True
        return super().__iter__()

    def __getitem__(self, index: Any) -> Any:
        self.was_read = True
        return super().__getitem__(index)


def _merged(parts: dict[_Key, list[_Group]]) -> tuple[dict[_Key, _Group], float]:
    """The sums of distributions without rare counts at their ends, and the probability that was cut off."""
    groups, lost = {}, 0.0
    for key, pieces in parts.items():
        first = min(start for start, _ in pieces)
        total = np.zeros(max(start + len(part) for start, part in pieces) - first)
        for start, part in pieces:
            total[start - first : start - first + len(part)] += part
        common = np.flatnonzero(total > _RARE)
        low, high = (int(common[0]), int(common[-1]) + 1) if len(common) else (0, 0)
        if high:
            groups[key] = first + low, total[low:high]
        lost += float(total[:low].sum() + total[high:].sum())
    return groups, lost


def simulated(
    plan: Plan,
    noise: Noise,
    p: Array,
    shape: tuple[int, ...],
    rng: np.random.Generator,
    chosen: Any = None,
) -> State:
    """Where inputs end whose classes have the probabilities p (..., classes); a rest is that of no vote at all."""
    classes, rest = p.shape[-1], 1 - p.sum(axis=-1, keepdims=True)
    shares = np.concatenate([p, np.maximum(rest, 0)], axis=-1) if np.any(rest > 1e-9) else p

    def draw(state: State) -> Votes:
        if chosen is not None and machine.reads_only_counts(plan):
            return ClassVotes(state.more, rng.binomial(state.more, of_class(p, state.chosen)))
        return ManyVotes(state.more, rng.multinomial(state.more, shares)[..., :classes])

    return machine.follow(plan, noise, draw, shape, chosen)


def of_class(p: Array, chosen: Counts) -> Array:
    """The probability of the chosen class of each input."""
    return np.take_along_axis(
        np.broadcast_to(p, (*chosen.shape, p.shape[-1])), chosen[..., None], axis=-1
    )[..., 0]


class SimulatedEndings(NamedTuple):
    """Where simulated inputs ended, arrays of shape (probabilities, repetitions)."""

    needed: Array
    """The probability of the class that the claim needs; 0 where nothing is certified."""
    samples: Counts
    """Samples, every forward pass counted."""
    p: Array
    """The probability that the class really has."""


@naming_user_errors()
def simulated_endings(
    plan: Plan,
    noise: Noise,
    p: ArrayLike,
    *,
    repetitions: int,
    rng: np.random.Generator,
    by_pilot: bool = False,
) -> SimulatedEndings:
    """Follow a plan whose class is fixed in advance, or chosen by its pilot, `repetitions` times for each p.

    p are the probabilities of the class, where all other votes are for one other class, or (..., classes) those of all
    classes with this one first.
    """
    each = np.atleast_1d(np.asarray(p, float))
    each = each if each.ndim > 1 else np.stack([each, 1 - each], axis=-1)
    shape = (len(each), repetitions)
    fixed = None if by_pilot else np.zeros(shape, np.int64)
    state = simulated(plan, noise, each[:, None], shape, rng, chosen=fixed)
    needed = needed_for_claim(plan, noise, state.lower)
    return SimulatedEndings(
        needed, machine.spent(plan, state), of_class(each[:, None], state.chosen)
    )


def needed_for_claim(plan: Plan, noise: Noise, lower: Array) -> Array:
    """The smallest probability of the class for which the radius that is certified with these bounds is true.

    0 where nothing is certified. Any certificate needs more than 1/2.
    """
    if (
        type(plan).certified_radius is Plan.certified_radius
    ):  # the radius of the noise is true if the bound is
        return lower
    values, where = np.unique(plan.certified_radius(lower, None, noise), return_inverse=True)
    radii = values[~np.isnan(values)]
    if plan.radii is None:
        needed = np.minimum(np.asarray(noise.probability(radii), float) + noise.drawing_error, 1.0)
    else:  # a plan that decides radii states more: that the true radius is above them
        needed = np.array([noise.needed_probability(radius) for radius in radii.tolist()])
    nothing = np.zeros(len(values) - len(radii))
    return np.concatenate([np.maximum(needed, np.nextafter(0.5, 1)), nothing])[where].reshape(
        np.shape(lower)
    )

"""A forward pass over all states of a plan: exactly where it ends for a class of known probability p.

States after a look are groups of neighbouring counts with the same number of samples, so that one more draw is a
convolution with a binomial distribution. The rule of the plan is asked through `machine`. What earlier looks proved
is told apart only where the rule reads it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothcert.noises import Noise
from smoothcert.plans import machine
from smoothcert.plans.base import Plan
from smoothcert.plans.records import State
from smoothcert.plans.simulation import claims_its_bound, needed_for_claim
from smoothcert.statistics.binomial import pmf

Array = NDArray[np.float64]
_Group = tuple[int, Array]  # the first count, and the probability of each count from there on

# Counts with a smaller probability are cut off and count as failed. The tails of a draw beyond 10 standard deviations,
# which are rarer still, are left out.
_RARE = 1e-20
_MOST_KEPT = 2**24  # answers of a plan that are remembered
_MOST_GROUPS = 400  # at one look; each takes about as long as a plan that does not read what it proved before


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
        self._answers: dict[tuple[str, int, int, float], _Group] = {}
        self._kept = 0

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
        groups: dict[tuple[int, float], _Group] = {(start, 0.0): _draw(start, p)}
        failed, samples = 0.0, float(start)
        proved: dict[float, float] = defaultdict(float)
        look = 0
        while groups:
            look += 1
            if machine.counts(plan, look):
                groups, newly = self._prove(look, groups, limit, seen)
                failed += newly
            parts: dict[tuple[int, float], list[_Group]] = defaultdict(list)
            for (drawn, lower), (first, probability) in groups.items():
                wanted = self._ask("wanted", look, drawn, lower, first, len(probability))
                proved[lower] += float(probability[wanted == 0].sum())
                for n in np.unique(wanted[wanted > 0]).tolist():
                    chosen = np.where(wanted == n, probability, 0.0)
                    samples += n * float(chosen.sum())
                    keeps = machine.keeps(plan, look)
                    origin, mass = (first, chosen) if keeps else (0, chosen.sum(keepdims=True))
                    low, step = _draw(n, p)
                    parts[drawn + n if keeps else n, lower].append((origin + low, np.convolve(mass, step)))
            groups = {}
            for key, pieces in parts.items():
                groups[key], lost = _merged(pieces)
                failed += lost
        return Ending(failed, samples, dict(proved))

    def _prove(
        self, look: int, groups: dict[tuple[int, float], _Group], limit: float, seen: list[Array] | None
    ) -> tuple[dict[tuple[int, float], _Group], float]:
        """Take out the states that claim too much. In the others, note what they proved if the rule reads it."""
        kept: dict[tuple[int, float], list[_Group]] = defaultdict(list)
        failed = 0.0
        for (drawn, lower), (first, probability) in groups.items():
            proved = self._ask("bound", look, drawn, lower, first, len(probability))
            needed = proved
            if not claims_its_bound(self.plan):
                needed = self._ask("needed", look, drawn, lower, first, len(probability))
            if seen is not None:
                seen.append(needed)
            wrong = needed > limit
            failed += float(probability[wrong].sum())
            level = np.maximum(lower, proved) if self._reads_lower else np.zeros(len(probability))
            for value in np.unique(level[~wrong]).tolist():
                kept[drawn, value].append((first, np.where(~wrong & (level == value), probability, 0.0)))
        merged = {key: _merged(pieces) for key, pieces in kept.items()}
        if self._reads_lower and len(merged) > self._most_groups:
            raise TooManyStates(f"{self.plan} reads what it proved, and that can be very different")
        return {key: group for key, (group, _) in merged.items()}, failed + sum(lost for _, lost in merged.values())

    def _ask(self, question: str, look: int, drawn: int, lower: float, first: int, length: int) -> Array:
        """What the rule of the plan answers for neighbouring counts."""

        def compute(first: int, end: int) -> Array:
            counts = np.arange(first, end)
            lowers = np.full(len(counts), lower)
            state = _WatchedState(look, counts, np.full(len(counts), drawn), lowers, chosen=0, more=1)
            if question == "wanted":
                answer = machine.wanted(self.plan, self.noise, state)
            else:
                answer = machine.bound(self.plan, self.noise, state)
            self._reads_lower |= state.was_read
            return answer if question != "needed" else needed_for_claim(self.plan, self.noise, answer)

        key, end = (question, look, drawn, lower), first + length
        known = self._answers.get(key)
        start, stop = (first, first) if known is None else (known[0], known[0] + len(known[1]))
        added = max(start - first, 0) + max(end - stop, 0)
        if added > 2 * length or self._kept + added > _MOST_KEPT:  # far from what is known, or too much for memory
            return compute(first, end)
        if known is None or added:
            pieces = [compute(first, start)] if first < start else []
            pieces += [] if known is None else [known[1]]
            pieces += [compute(stop, end)] if stop < end else []
            known = self._answers[key] = min(first, start), np.concatenate(pieces)
            self._kept += added
        return known[1][first - known[0] : end - known[0]]


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


def _draw(n: int, p: float) -> _Group:
    """Binomial(n, p) without its far tails."""
    spread = 10 * np.sqrt(n * p * (1 - p)) + 50
    low, high = max(int(n * p - spread), 0), min(int(n * p + spread) + 1, n)
    return low, pmf(np.arange(low, high + 1), n, p)


def _merged(pieces: list[_Group]) -> tuple[_Group, float]:
    """The sum of several distributions without rare counts at its ends, and the probability that was cut off."""
    first = min(start for start, _ in pieces)
    total = np.zeros(max(start + len(part) for start, part in pieces) - first)
    for start, part in pieces:
        total[start - first : start - first + len(part)] += part
    likely = np.flatnonzero(total > _RARE)
    if not len(likely):
        return (first, total[:1]), float(total[1:].sum())
    low, high = int(likely[0]), int(likely[-1]) + 1
    return (first + low, total[low:high]), float(total[:low].sum() + total[high:].sum())

"""A forward pass over all states of a plan: exactly where it ends for a class of known probability p.

States after a look are groups of neighbouring counts with the same number of samples, so that one more draw is a
convolution with a binomial distribution. It works for every plan through `request` and `lower_bound`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.plans.base import Plan
from smoothcert.plans.records import State
from smoothcert.statistics.binomial import pmf

Array = NDArray[np.float64]
_Group = tuple[int, Array]  # the first count, and the probability of each count from there on

# Counts with a smaller probability are cut off and count as failed. The tails of a draw beyond 10 standard deviations,
# which are rarer still, are left out.
_RARE = 1e-20
_MOST_LOOKS = 10_000
_MOST_KEPT = 2**24  # answers of a plan that are remembered


class Ending(NamedTuple):
    """Where a plan ends for a class of known probability."""

    failed: float
    """The probability to prove a bound above the limit at some look."""
    samples: float
    """Expected samples, every forward pass counted."""
    proved: dict[float, float]
    """The probability of each bound at the end, for plans that remember what they proved."""


class Forward:
    """Follows a plan through all of its looks.

    A search over p meets the same states again and again, and a bound takes a microsecond for each of them. So the
    answers of the plan are remembered.

    Args:
        plan: The plan; its class is fixed in advance.
        noise: The smoothing noise.
    """

    def __init__(self, plan: Plan, noise: Noise) -> None:
        self.plan = plan
        self.noise = noise
        self._answers: dict[tuple[str, int, int, float], _Group] = {}
        self._kept = 0

    def ending(self, p: float, *, limit: float, seen: list[Array] | None = None) -> Ending:
        """Where the plan ends."""
        plan = self.plan
        start = plan.pilot or int(plan.request(State(0, 0, 0), self.noise))
        first, probability = _draw(start, p)
        groups: dict[tuple[int, float], _Group] = {(start, 0.0): (first, probability)}
        failed, samples = 0.0, float(start)
        proved: dict[float, float] = defaultdict(float)
        for look in range(1, _MOST_LOOKS):
            if look > 1 or not plan.pilot or plan.pilot_counts:
                groups, newly = self._prove(look, groups, limit, seen)
                failed += newly
            drop = look == 1 and plan.pilot > 0 and not plan.pilot_counts
            parts: dict[tuple[int, float], list[_Group]] = defaultdict(list)
            for (drawn, lower), (first, probability) in groups.items():
                wanted = self._ask("request", look, drawn, lower, first, len(probability))
                proved[lower] += float(probability[wanted == 0].sum())
                for n in np.unique(wanted[wanted > 0]).tolist():
                    chosen = np.where(wanted == n, probability, 0.0)
                    samples += n * float(chosen.sum())
                    origin, mass = (0, chosen.sum(keepdims=True)) if drop else (first, chosen)
                    low, step = _draw(n, p)
                    parts[n if drop else drawn + n, lower].append((origin + low, np.convolve(mass, step)))
            if not parts:
                return Ending(failed, samples, dict(proved))
            groups = {}
            for key, pieces in parts.items():
                groups[key], lost = _merged(pieces)
                failed += lost
        raise InvalidInput(f"{plan} takes more than {_MOST_LOOKS:,} looks")

    def _prove(
        self, look: int, groups: dict[tuple[int, float], _Group], limit: float, seen: list[Array] | None
    ) -> tuple[dict[tuple[int, float], _Group], float]:
        """Take out the states that prove too much, and note in the others what they proved if the plan remembers it."""
        kept: dict[tuple[int, float], list[_Group]] = defaultdict(list)
        failed = 0.0
        for (drawn, lower), (first, probability) in groups.items():
            proved = self._ask("lower_bound", look, drawn, lower, first, len(probability))
            if seen is not None:
                seen.append(proved)
            wrong = proved > limit
            failed += float(probability[wrong].sum())
            level = np.maximum(proved, lower) if self.plan.remembers else np.zeros(len(probability))
            for value in np.unique(level[~wrong]).tolist():
                kept[drawn, value].append((first, np.where(~wrong & (level == value), probability, 0.0)))
        merged = {key: _merged(pieces) for key, pieces in kept.items()}
        return {key: group for key, (group, _) in merged.items()}, failed + sum(lost for _, lost in merged.values())

    def _ask(self, method: str, look: int, drawn: int, lower: float, first: int, length: int) -> Array:
        """What a method of the plan answers for neighbouring counts."""

        def compute(first: int, end: int) -> Array:
            counts = np.arange(first, end)
            state = State(look, counts, np.full(len(counts), drawn), np.full(len(counts), lower))
            return np.broadcast_to(getattr(self.plan, method)(state, self.noise), len(counts))

        key, end = (method, look, drawn, lower), first + length
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

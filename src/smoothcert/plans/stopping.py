"""The stopping distribution of a plan that counts, for a class of known probability: exactly, by a
forward pass.

States after a look are groups of neighbouring counts with the same number of samples, so that one
more draw is a convolution with a binomial distribution. The rule itself is asked in every state.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from smoothcert.noises import Noise
from smoothcert.plans.base import Plan, Rule
from smoothcert.plans.follow import check_within_limits, proved, whole_samples
from smoothcert.plans.simulation import needed_probability
from smoothcert.plans.votes import Tally
from smoothcert.statistics.bounds import Array, likely
from smoothcert.statistics.group_sequential import Group, merged

_BLOCK = 256
"""Counts that a plan is asked about at once."""
_MOST_BLOCKS = 2**16
"""Blocks whose answers are kept, because a search over p meets the same states again and again."""


def is_countable(plan: Plan, noise: Noise) -> bool:
    """Whether counts of the class tell all that a plan knows, and the votes that choose the class
    do not count.
    """
    state = type(plan).init(plan, noise, 0)
    counts = type(state) is Tally and state.every is None and type(plan).update is Rule.update
    return counts and bool(state.pilot or plan.known_labels)


class Stop(NamedTuple):
    """Where a plan stops for a class of known probability."""

    failed: float
    """The probability to claim what is true only for probabilities above the limit."""
    samples: float
    """Expected samples (ASN), every forward pass counted."""


class StoppingDistribution:
    """Follows a plan whose class is fixed in advance through all of its looks.

    Args:
        plan: A plan that `is_countable`.
        noise: The smoothing noise.
    """

    def __init__(self, plan: Plan, noise: Noise) -> None:
        self.plan = plan
        self.noise = noise
        self._start: Tally = type(plan).init(plan, noise, 0)
        self._block = lru_cache(maxsize=_MOST_BLOCKS)(self._answers)

    def at(self, p: float, *, limit: float, seen: list[Array] | None = None) -> Stop:
        """Where the plan stops; `seen` collects the probabilities that its claims need."""
        first = whole_samples(self.plan, type(self.plan).request(self.plan, self._start))
        counts, probability = likely(first, p)
        groups: dict[int, Group] = {first: (int(counts[0]), probability)}
        failed = 0.0
        samples = float(first)
        look = 0
        while groups:
            look += 1
            parts: dict[int, list[Group]] = defaultdict(list)
            for drawn, (origin, probability) in groups.items():
                wanted, needed = self._wanted_and_needed(look, drawn, origin, len(probability))
                stops = wanted == 0
                failed += float(probability[stops & (needed > limit)].sum())
                if seen is not None:
                    seen.append(needed[stops])
                for n in np.unique(wanted[~stops]).tolist():
                    going = np.where(wanted == n, probability, 0.0)
                    samples += n * float(going.sum())
                    counted, begin, mass = drawn, origin, going
                    if look == 1 and self._start.pilot:  # its votes are gone with the next look
                        counted, begin, mass = 0, 0, going.sum(keepdims=True)
                    more, step = likely(int(n), p)
                    parts[counted + int(n)].append((begin + int(more[0]), np.convolve(mass, step)))
            groups, lost = merged(parts)
            failed += lost
        return Stop(failed, samples)

    def _wanted_and_needed(self, look: int, drawn: int, first: int, length: int) -> Array:
        """How many more samples are wanted with neighbouring counts, and the probability that a
        claim would need.
        """
        before = first % _BLOCK
        starts = range(first - before, first + length, _BLOCK)
        try:
            answers = [
                self._block(look, drawn, start, min(start + _BLOCK, drawn + 1)) for start in starts
            ]
        except Exception:  # a rule of the user may refuse counts that no run reaches
            return self._answers(look, drawn, first, first + length)
        return np.concatenate(answers, axis=-1)[..., before : before + length]

    def _answers(self, look: int, drawn: int, first: int, end: int) -> Array:
        counts = np.arange(first, end)
        nothing = np.zeros_like(counts)
        state: Any = self._start._replace(look=look, count=counts, drawn=nothing + drawn)
        if look == 1 and self._start.pilot:
            state = state._replace(pilot_count=counts, count=nothing, drawn=nothing)
        plan = self.plan
        wanted = whole_samples(plan, type(plan).request(plan, state), taking_part=counts >= 0)
        check_within_limits(plan, wanted, state.drawn + self._start.pilot, look)
        needed = np.zeros(len(counts))
        if not np.all(wanted):
            proof = proved(plan, state)
            needed = np.broadcast_to(needed_probability(plan, self.noise, proof), counts.shape)
        return np.stack([wanted, np.where(wanted == 0, needed, 0.0)])

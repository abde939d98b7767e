"""A plan, simulated on inputs whose class has a known probability, where its states are too many to be enumerated."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert._registry import naming_users_code
from smoothcert.noises import Noise
from smoothcert.plans.base import Plan
from smoothcert.plans.claim import needed_for_claim
from smoothcert.plans.machine import follow, reads_only_counts, spent
from smoothcert.plans.records import ClassVotes, ManyVotes, State, Votes


class SimulatedEndings(NamedTuple):
    """Where simulated inputs ended, arrays of shape (probabilities, repetitions)."""

    needed: NDArray[np.float64]
    """The probability of the class that the claim needs; 0 where nothing is certified."""
    samples: NDArray[np.int64]
    """Samples, every forward pass counted."""


@naming_users_code()
def simulated_endings(
    plan: Plan, noise: Noise, p: ArrayLike, *, repetitions: int, rng: np.random.Generator
) -> SimulatedEndings:
    """Follow a plan whose class is fixed in advance and has probability p, so many times for each p.

    All votes that are not for the class are for one other class.
    """
    each = np.atleast_1d(np.asarray(p, float))[:, None]
    shape, only_counts = (len(each), repetitions), reads_only_counts(plan)

    def draw(state: State) -> Votes:
        count = rng.binomial(state.more, each)
        if only_counts:
            return ClassVotes(state.more, count)
        return ManyVotes(state.more, np.stack([count, state.more - count], axis=-1))

    state = follow(plan, noise, draw, shape, chosen=np.zeros(shape, np.int64))
    return SimulatedEndings(needed_for_claim(plan, noise, state.lower), spent(plan, state))

"""A plan, simulated on inputs whose class has a known probability, where its states are too many to be enumerated."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert._registry import naming_users_code
from smoothcert.noises import Noise
from smoothcert.plans.base import Plan
from smoothcert.plans.claim import needed_for_claim
from smoothcert.plans.machine import accumulate, begin, conclude, spent
from smoothcert.plans.records import ClassVotes, ManyVotes, State, Votes


class SimulatedEndings(NamedTuple):
    """Where simulated inputs ended, arrays of shape (probabilities, repetitions)."""

    needed: NDArray[np.float64]
    """The probability of the class that the claim needs; 0 where nothing is certified."""
    samples: NDArray[np.int64]
    """Samples, every forward pass counted."""


def simulated_endings(
    plan: Plan, noise: Noise, p: ArrayLike, *, repetitions: int, rng: np.random.Generator
) -> SimulatedEndings:
    """Follow a plan on simulated votes. All votes that are not for the class are for one other class.

    Args:
        plan: The plan; its class is fixed in advance.
        noise: The smoothing noise.
        p: Probabilities of the class.
        repetitions: Inputs for each of them.
        rng: Where the votes come from.
    """
    each = np.atleast_1d(np.asarray(p, float))[:, None]
    shape = (len(each), repetitions)
    only_counts = type(plan).remember is Plan.remember and not plan.uses_rivals

    def drawn(state: State) -> Votes:
        count = rng.binomial(state.more, each)
        if only_counts:
            return ClassVotes(state.more, count)
        return ManyVotes(state.more, np.stack([count, state.more - count], axis=-1))

    with naming_users_code():
        state = begin(plan, noise, shape, chosen=np.zeros(shape, np.int64))
        while np.any(state.more):
            state = accumulate(plan, noise, state, drawn(state))
            state = _conclude_once(plan, noise, state) if only_counts else conclude(plan, noise, state)
        return SimulatedEndings(needed_for_claim(plan, noise, state.lower), spent(plan, state))


def _conclude_once(plan: Plan, noise: Noise, state: State) -> State:
    """Ask the rule once for all inputs that are in the same state."""
    going = state.more > 0
    count, drawn = state.count[going], state.drawn[going]
    lowers, level = np.unique(state.lower[going], return_inverse=True)
    key = (level * (drawn.max() + 1) + drawn) * (count.max() + 1) + count
    _, first, where = np.unique(key, return_index=True, return_inverse=True)
    few = State(state.look, count[first], drawn[first], lowers[level[first]], chosen=0, more=np.ones_like(first))
    few = conclude(plan, noise, few)
    lower, more = _put(state.lower, going, few.lower[where]), _put(state.more, going, few.more[where])
    return state._replace(lower=lower, more=more)


def _put(values: NDArray[Any], where: NDArray[np.bool_], new: NDArray[Any]) -> NDArray[Any]:
    changed = values.copy()
    changed[where] = new
    return changed

"""A plan, simulated on inputs whose classes have known probabilities, and what its claims need to be true."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert._users_code import naming_users_code
from smoothcert.noises import Noise
from smoothcert.plans.base import Plan
from smoothcert.plans.machine import follow, reads_only_counts, spent
from smoothcert.plans.records import ClassVotes, ManyVotes, State, Votes

Array = NDArray[np.float64]


def simulated(
    plan: Plan, noise: Noise, p: Array, shape: tuple[int, ...], rng: np.random.Generator, chosen: Any = None
) -> State:
    """Where inputs end whose classes have the probabilities p (..., classes); a rest is that of no vote at all."""
    classes, rest = p.shape[-1], 1 - p.sum(axis=-1, keepdims=True)
    shares = np.concatenate([p, np.maximum(rest, 0)], axis=-1) if np.any(rest > 1e-9) else p

    def draw(state: State) -> Votes:
        if chosen is not None and reads_only_counts(plan):
            return ClassVotes(state.more, rng.binomial(state.more, of_class(p, state.chosen)))
        return ManyVotes(state.more, rng.multinomial(state.more, shares)[..., :classes])

    return follow(plan, noise, draw, shape, chosen)


def of_class(p: Array, chosen: NDArray[np.int64]) -> Array:
    """The probability of the chosen class of each input."""
    return np.take_along_axis(np.broadcast_to(p, (*chosen.shape, p.shape[-1])), chosen[..., None], axis=-1)[..., 0]


class SimulatedEndings(NamedTuple):
    """Where simulated inputs ended, arrays of shape (probabilities, repetitions)."""

    needed: Array
    """The probability of the class that the claim needs; 0 where nothing is certified."""
    samples: NDArray[np.int64]
    """Samples, every forward pass counted."""


@naming_users_code()
def simulated_endings(
    plan: Plan, noise: Noise, p: ArrayLike, *, repetitions: int, rng: np.random.Generator
) -> SimulatedEndings:
    """Follow a plan whose class is fixed in advance, so many times for each p.

    p are the probabilities of the class, where all other votes are for one other class, or (..., classes) those of all
    classes with this one first.
    """
    each = np.atleast_1d(np.asarray(p, float))
    each = each if each.ndim > 1 else np.stack([each, 1 - each], axis=-1)
    shape = (len(each), repetitions)
    state = simulated(plan, noise, each[:, None], shape, rng, chosen=np.zeros(shape, np.int64))
    return SimulatedEndings(needed_for_claim(plan, noise, state.lower), spent(plan, state))


def claims_its_bound(plan: Plan) -> bool:
    """Whether the radius is the one that the noise gives for the lower bound, so that it is true if the bound is."""
    return type(plan).certified_radius is Plan.certified_radius


def needed_for_claim(plan: Plan, noise: Noise, lower: NDArray[np.float64]) -> NDArray[np.float64]:
    """The smallest probability of the class for which the radius that is certified with these bounds is true.

    0 where nothing is certified. Any certificate needs more than 1/2.
    """
    if claims_its_bound(plan):
        return lower
    values, where = np.unique(plan.certified_radius(lower, None, noise), return_inverse=True)
    radii = values[~np.isnan(values)]
    if plan.radii is None:
        needed = np.minimum(np.asarray(noise.probability(radii), float) + noise.drawing_error, 1.0)
    else:  # a plan that decides radii states more: that the true radius is above them
        needed = np.array([noise.needed_probability(radius) for radius in radii.tolist()])
    nothing = np.zeros(len(values) - len(radii))
    return np.concatenate([np.maximum(needed, np.nextafter(0.5, 1)), nothing])[where].reshape(np.shape(lower))

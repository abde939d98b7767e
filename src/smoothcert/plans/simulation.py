"""Simulated votes: where a plan ends for inputs whose classes have known probabilities."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from smoothcert._user_errors import naming_user_errors
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers, Shape
from smoothcert.plans.base import Plan, Proof, Rule
from smoothcert.plans.follow import Followed, follow, proved
from smoothcert.plans.votes import ManyVotes
from smoothcert.statistics.bounds import Array, Counts

_SMALLEST_REST = 1e-9
"""Probabilities of all classes that miss 1 by less are rounded; otherwise the rest is that of no
vote at all."""


class SimulatedVotes(ManyVotes):
    """Votes that are drawn when somebody asks for them: of all classes, or of a class that was
    fixed in advance alone.

    Args:
        rng: The source of randomness.
        samples: Samples of each input.
        p: The probabilities of the classes (..., classes).
        chosen: The class of each input that is fixed in advance; None if there is none.
    """

    def __init__(
        self, rng: np.random.Generator, samples: Counts, p: Array, chosen: Numbers
    ) -> None:
        self.samples = samples
        self._rng = rng
        self._p = p
        self._chosen = chosen
        self._count: Numbers = None

    @cached_property
    def votes(self) -> Counts:
        classes = self._p.shape[-1]
        rest = np.maximum(1 - self._p.sum(axis=-1, keepdims=True), 0)
        shares = self._p
        if np.any(rest > _SMALLEST_REST):
            shares = np.concatenate([shares, rest], axis=-1)
        if self._count is None:
            return self._rng.multinomial(self.samples, shares)[..., :classes]
        # The votes for one class were drawn before: the others share what is left.
        shares = np.broadcast_to(shares, (*self.samples.shape, shares.shape[-1])).copy()
        np.put_along_axis(shares, self._chosen[..., None], 0, axis=-1)
        shares /= np.maximum(shares.sum(axis=-1, keepdims=True), 1e-300)
        others = self._rng.multinomial(self.samples - self._count, shares)[..., :classes]
        np.put_along_axis(others, self._chosen[..., None], self._count[..., None], axis=-1)
        return others

    def of(self, chosen: Numbers) -> Numbers:
        if self._chosen is None or "votes" in vars(self) or chosen is not self._chosen:
            return super().of(chosen)
        if self._count is None:
            self._count = self._rng.binomial(self.samples, of_class(self._p, chosen))
        return self._count


def simulate(
    plan: Rule,
    noise: Noise,
    p: Array,
    shape: Shape,
    rng: np.random.Generator,
    chosen: Numbers = None,
) -> Followed:
    """Where inputs end whose classes have the probabilities p (..., classes); a rest is that of no
    vote at all.
    """

    def draw(more: Counts) -> ManyVotes:
        return SimulatedVotes(rng, more, p, chosen)

    return follow(plan, noise, draw, shape, chosen)


def of_class(p: Array, chosen: Counts) -> Array:
    """The probability of the chosen class of each input."""
    each = np.broadcast_to(p, (*chosen.shape, p.shape[-1]))
    return np.take_along_axis(each, chosen[..., None], axis=-1)[..., 0]


class Simulation(NamedTuple):
    """Where simulated inputs ended, arrays of shape (probabilities, repetitions)."""

    proof: Proof
    """What their votes prove."""
    samples: Counts
    """Samples, every forward pass counted."""
    p: Array
    """The probability that the class really has."""


@naming_user_errors()
def simulated_stops(
    plan: Plan,
    noise: Noise,
    p: ArrayLike,
    *,
    repetitions: int,
    rng: np.random.Generator,
    by_pilot: bool = False,
) -> Simulation:
    """Follow a plan whose class is fixed in advance, or chosen by its pilot, `repetitions` times
    for each p.

    p are the probabilities of the class, where all other votes are for one other class, or (...,
    classes) those of all classes with this one first.
    """
    each = np.atleast_1d(np.asarray(p, float))
    if each.ndim == 1:
        each = np.stack([each, 1 - each], axis=-1)
    shape = (len(each), repetitions)
    fixed = None if by_pilot else np.zeros(shape, np.int64)
    end = simulate(plan, noise, each[:, None], shape, rng, fixed)
    proof = proved(plan, end.state)
    chosen = np.broadcast_to(proof.prediction, shape)
    return Simulation(proof, end.samples, of_class(each[:, None], chosen))


def unknown_failure(plan: Plan) -> InvalidInput:
    """The error for a plan without a theorem whose certificates rest on other classes, too."""
    return InvalidInput(
        "unknown-failure",
        "{plan} also bounds other classes, and their votes are not enumerated, so nothing is known "
        "about its failure: say what a theorem says in its method coverage",
        plan=plan,
    )


def needed_probability(plan: Plan, noise: Noise, proof: Proof) -> Array:
    """The smallest probability of the class for which what is proved is true; 0 where nothing is
    certified.

    Any certificate needs more than 1/2.
    """
    if proof.upper is not None:
        raise unknown_failure(plan)
    radius, lower = np.broadcast_arrays(
        np.asarray(proof.radius, float), np.asarray(proof.lower, float)
    )
    certified = ~np.isnan(radius)
    needed = np.where(certified, lower, 0.0)
    usual = np.asarray(noise.certified_radius(lower))
    # The radius of the noise is true if the bound is. What else a plan claims is looked up.
    other = certified & (radius != usual)
    values, where = np.unique(radius[other], return_inverse=True)
    if plan.radii is None:
        limits = np.minimum(np.asarray(noise.probability(values), float) + noise.drawing_error, 1.0)
    else:  # a plan that decides radii states more: that the true radius is above them
        limits = np.array([noise.needed_probability(value) for value in values.tolist()])
    needed[other] = np.maximum(limits, np.nextafter(0.5, 1))[where]
    return needed

"""Walks over cells of amounts, in a world where every probability is known."""

from dataclasses import dataclass
from math import log

import numpy as np
import pytest
from scipy.special import ndtr
from tests.refusals import refused

from smoothcert import Gaussian, Look, Rotation, Walk
from smoothcert.errors import phrase
from smoothcert.plans import Case
from smoothcert.plans.follow import add_each

NOISE = Rotation(Gaussian(1.0))
STEEPNESS = 4.0
"""How far a picture moves in l2 when it is turned by one degree."""


def walked(plan, distance, repetitions, seed=0):
    """The radii that walks prove if the classifier is a half-space, and the pictures of a cell are
    this far from its boundary at its centre. The distance must not change faster than the steepness.
    """
    rng = np.random.default_rng(seed)
    cases = [Case(plan, NOISE, 0) for _ in range(repetitions)]
    cells = [None] * repetitions
    going = list(range(repetitions))
    while going:
        looks = []
        for i in going:
            cell, more = cases[i].cell, cases[i].more
            votes = int(rng.binomial(more, ndtr(distance(cell))))
            half_width = max(cell.far - cell.centre, cell.centre - cell.near, key=abs)
            margin = None if cell == cells[i] else STEEPNESS * abs(half_width)
            looks.append(Look(more, {0: votes, 1: more - votes}, margin))
            cells[i] = cell
        list(add_each([cases[i] for i in going], looks))
        going = [i for i in going if cases[i].more]
    return [case.proof().radius or 0.0 for case in cases], cases


def to_the_boundary(end):
    """Straight towards the boundary, which is reached at this amount; on the other side far away."""
    return lambda cell: STEEPNESS * (end - cell.centre)


def touching(place, below=0.0):
    """At one amount on the boundary, or a little beyond it, and away from it on both sides."""
    return lambda cell: STEEPNESS * abs(cell.centre - place) - below


def adversary(place):
    """Certain everywhere, but every cell that contains this amount is as close to the boundary as a
    false claim allows: an adversary that knows the cells.
    """

    def distance(cell):
        half_width = abs(cell.far - cell.near) / 2
        return STEEPNESS * half_width if cell.near <= place <= cell.far else 4.0

    return distance


WORLDS = {1.0: to_the_boundary(1.0), 0.7: touching(0.7), 0.69: touching(-0.7, below=0.04)}
"""Worlds by the false amount that is nearest to 0."""


@pytest.mark.parametrize("false", WORLDS)
def test_false_intervals_are_at_most_as_frequent_as_alpha(false):
    plan = Walk([0.5, false + 1e-6, 2], 20_000, alpha=0.1, known_labels=True)
    radii, _ = walked(plan, WORLDS[false], 300)
    assert np.mean([radius > 0.5 for radius in radii]) < 0.1
    assert np.mean([radius == 0.5 for radius in radii]) > 0.8  # and true ones are proved


@dataclass(frozen=True, slots=True)
class Impatient(Walk):
    """Every test fails that is not proved by its first look, so there are very many of them."""

    def _continued_or_failed(self, state, *prices):
        test = state.test
        side = state.sides[test.side]
        end = test.end - side.front
        if state.spent >= self.samples:
            return state.without_test(side._replace(given_up=True))
        failed = (*side.failed, test.end)
        return state.without_test(side._replace(failed=failed, widest=0.97 * end))


@dataclass(frozen=True, slots=True)
class Forgetful(Impatient):
    """And every test has the full alpha."""

    def _needed_wealth(self, level):
        return -log(self.alpha)


def test_a_walk_that_forgets_its_failures_makes_false_claims_too_often():
    def share_of_false_claims(kind):
        plan = kind([0.5], 3_000, alpha=0.1, known_labels=True, give_up=0.0)
        return np.mean([radius > 0 for radius in walked(plan, adversary(0.2), 400)[0]])

    assert share_of_false_claims(Forgetful) > 0.15
    assert share_of_false_claims(Impatient) < 0.1


def test_easy_walks_are_short_and_hopeless_ones_are_given_up():
    plan = Walk([1, 2], 100_000, known_labels=True)
    radii, cases = walked(plan, lambda cell: 3.0, 20)
    assert set(radii) == {2}
    assert np.mean([case.spent for case in cases]) < 1500
    radii, cases = walked(plan, lambda cell: -0.5, 20)
    assert set(radii) == {0}
    assert np.mean([case.spent for case in cases]) < 1500


def test_a_radius_is_proved_although_a_larger_one_is_given_up():
    radii, _ = walked(Walk([0.5, 0.9, 1.5], 50_000, known_labels=True), to_the_boundary(1.0), 20)
    assert set(radii) <= {0.5, 0.9}
    assert 0.9 in radii


def test_the_pilot_chooses_the_class_and_does_not_count():
    case = Case(Walk([1.0]), NOISE)
    assert case.more == 105
    assert case.cell.centre == 0
    case.add(Look(105, {7: 60, 2: 45}, 0.01))
    assert case.proof().prediction == 7
    assert case.proof().counted == 0


def test_levels_share_alpha():
    plan = Walk([1.0], known_labels=True)
    shares = [np.exp(-plan._needed_wealth(level)) for level in range(30)]
    assert 0.999 * plan.alpha < sum(shares) <= plan.alpha


def test_p_values_confirm_proofs_and_refute_the_same_votes_with_larger_margins():
    plan = Walk([1.0], known_labels=True)
    looks = []
    case = Case(plan, NOISE, 0)
    last = None
    while case.more:
        margin = None if case.cell == last else 0.5
        last = case.cell
        looks.append(Look(case.more, {0: case.more - 1, 1: 1}, margin))
        case.add(looks[-1])
    assert case.proof().radius == 1.0
    assert plan.p_value(looks, 1.0, NOISE, 0) <= plan.alpha * (1 + 1e-9)
    assert plan.p_value(looks, 1.5, NOISE, 0) == 1.0  # nothing beyond the fronts is proved
    assert plan.p_value([], 1.0, NOISE, 0) == 1.0
    assert next(margin for _, margin in plan.cells(looks, NOISE, 0)) == 0.5


def test_what_a_walk_does_not_take():
    with refused("no-interval"):
        Walk([0.0, 5.0])
    with refused("too-few-samples", samples=32):
        Walk([5.0], 32, known_labels=True)
    with refused("walk-of-top", top=3):
        Walk([5.0], top=3)
    with refused("not-transformed"):
        Walk([5.0]).for_noise(Gaussian(0.5))
    with refused("beyond-largest", radius=45.0) as error:
        Walk([45.0]).for_noise(NOISE)
    assert "--transform rotation:45" in phrase(error.value.message, command=True)
    with refused("no-margin"):
        Case(Walk([5.0], known_labels=True), NOISE, 0).add(Look(32, {0: 32}))

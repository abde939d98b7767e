from fractions import Fraction

import numpy as np
import pytest
from tests.refusals import refused

from smoothcert import (
    Certificate,
    Exact,
    Fixed,
    Gaussian,
    Look,
    Splitting,
    exact_coverage,
)
from smoothcert.plans import Case
from smoothcert.plans.expected import expected
from smoothcert.tasks.audit import fault

NOISE = Splitting(0.5, 255)


def test_all_outcomes_are_counted_once_and_prove_their_exact_share():
    plan = Exact().for_noise(NOISE)
    assert Case(plan, NOISE).more == plan.most_samples == 255
    looks = [Look(255, {3: 200, 1: 30, 2: 25})]
    assert Case(plan, NOISE, looks=looks).more == 0
    found = Certificate.from_votes(looks, plan=plan, noise=NOISE)
    assert (found.prediction, found.proof.lower, found.proof.upper) == (3, 200 / 255, 30 / 255)
    assert found.radius == pytest.approx(0.5 * 170 / 255)
    assert found.radius <= 0.5 * 170 / 255
    assert fault(found) is None


def test_a_class_that_leads_without_a_majority_is_certified():
    found = Certificate.from_votes(
        [Look(255, {3: 100, 1: 80, 2: 75})], plan=Exact(255), noise=NOISE
    )
    assert found.radius == pytest.approx(0.5 * 20 / 255)
    tied = Certificate.from_votes(
        [Look(255, {3: 100, 1: 100, 2: 55})], plan=Exact(255), noise=NOISE
    )
    assert tied.abstained


@pytest.mark.parametrize("outcomes", range(2, 260, 3))
def test_no_radius_exceeds_the_exact_fraction(outcomes):
    """A radius of 2 / 510 that is rounded up would also certify changes by one whole level, 1 / 255."""
    noise = Splitting(outcomes / 510, levels=255)
    count, rival = (votes.ravel() for votes in np.mgrid[: outcomes + 1, : outcomes + 1])
    keep = (count > rival) & (count + rival <= outcomes)
    share = count[keep] / outcomes, rival[keep] / outcomes
    for radius, lead, votes in zip(
        noise.certified_radius(*share).tolist(),
        (count - rival)[keep].tolist(),
        count[keep].tolist(),
        strict=True,
    ):
        assert Fraction(radius) <= Fraction(max(lead, 2 * votes - outcomes), 510)


def test_it_fails_never():
    found = exact_coverage(Exact(), NOISE)
    assert (found.alpha, found.worst_failure, found.tie_failure, found.valid) == (0, 0, 0, True)


def test_counting_and_sampling_are_not_confused():
    with refused("too-many-outcomes"):
        Exact().for_noise(Gaussian(0.5))
    with refused("not-random", outcomes=255):
        Fixed(1000).for_noise(NOISE)
    with refused("other-outcomes", outcomes=255):
        Exact(100).for_noise(NOISE)


def test_nothing_is_random():
    found = expected(Exact().for_noise(NOISE), NOISE, [0.5, 0.501, 1])
    assert (found.samples.tolist(), found.average) == ([255, 255, 255], False)
    assert found.proved["radius"].tolist() == pytest.approx([0, 0.001 * 0.5 * 2, 0.5], abs=1e-12)

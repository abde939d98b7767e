import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothcert import (
    Additive,
    AtRadii,
    Certificate,
    Fixed,
    Gaussian,
    InputSpecific,
    Look,
    Noise,
    Proof,
)
from smoothcert.plans import Case
from smoothcert.runs.results import Results
from smoothcert.statistics.bounds import lower_bound
from smoothcert.tasks.audit import fault

NOISE = Gaussian(0.5)


def test_votes_become_a_radius():
    looks = [Look(100, {3: 90, 1: 10}), Look(1_000, {3: 990, 1: 10})]
    found = Certificate.from_votes(
        looks, plan=Fixed(1_000), noise=NOISE, id=7, label=3, seconds=1.5
    )
    assert (found.id, found.label, found.prediction, found.seconds) == (7, 3, 3, 1.5)
    assert found.radius == NOISE.certified_radius(lower_bound(990, 1_000, alpha=0.001))
    assert (found.count, found.counted, found.samples) == (990, 1_000, 1_100)
    assert found.correct
    assert not found.abstained


def test_an_abstention_still_costs_its_samples():
    found = Certificate.from_votes(
        [Look(100, {0: 51, 1: 49}), Look(1_000, {0: 500, 1: 500})],
        plan=Fixed(1_000),
        noise=NOISE,
        label=0,
    )
    assert found.abstained
    assert found.radius == 0
    assert found.samples == 1_100
    assert not found.correct


def test_a_plan_that_wants_nothing_more_abstains_and_costs_its_pilot():
    plan = InputSpecific(100_000, pilot=1_000)
    pilot = Look(1_000, {0: 400, 1: 350, 2: 250})
    assert Case(plan, NOISE, looks=[pilot]).more == 0
    found = Certificate.from_votes([pilot], plan=plan, noise=NOISE)
    assert (found.prediction, found.radius, found.counted, found.samples) == (None, 0, 0, 1_000)


def test_outputs_that_are_not_finite_count_for_no_class_but_stay_in_the_denominator():
    found = Certificate.from_votes(
        [Look(100, {0: 90}), Look(1_000, {0: 900})], plan=Fixed(1_000), noise=NOISE
    )
    assert found.missing == 110
    assert found.radius == NOISE.certified_radius(lower_bound(900, 1_000, alpha=0.001))
    assert Certificate.from_votes(
        [Look(100, {}), Look(1_000, {})], plan=Fixed(1_000), noise=NOISE
    ).abstained


def test_a_reused_pilot_larger_than_the_plan_keeps_its_denominator():
    plan = InputSpecific(100_000, pilot=5_000, decline=0.3, pilot_use="reuse")
    found = Certificate.from_votes([Look(5_000, {0: 4_000, 1: 1_000})], plan=plan, noise=NOISE)
    assert found.counted == 5_000
    assert found.radius == NOISE.certified_radius(lower_bound(4_000, 5_000, alpha=0.001))


def test_an_unknown_label_is_never_correct():
    nothing = Certificate.from_votes([Look(100, {})], plan=Fixed(1_000), noise=NOISE)
    sure = Certificate.from_votes(
        [Look(100, {0: 100}), Look(1_000, {0: 1_000})], plan=Fixed(1_000), noise=NOISE
    )
    assert not nothing.correct
    assert not sure.correct


@dataclass(frozen=True)
class UniformCube(Noise):
    """Uniform noise on a cube of half width b: R = 2 b (p - 1/2) in l1."""

    b: float
    norm = "l1"

    @property
    def draw(self):
        return Additive("uniform", self.b)

    @property
    def deviation(self):
        return self.b / math.sqrt(3)

    def radius(self, p):
        return 2 * self.b * (np.asarray(p, float) - 0.5)

    def probability(self, radius):
        return np.asarray(radius, float) / (2 * self.b) + 0.5


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 200),
    st.sampled_from(["fresh", "reuse"]),
    st.sampled_from(["absolute", "relative"]),
)
def test_any_increasing_radius_will_do(count, pilot_use, kind):
    noise, plan = (
        UniformCube(1.0),
        InputSpecific(5_000, pilot=200, decline=0.05, kind=kind, pilot_use=pilot_use),
    )
    looks = [Look(200, {0: count, 1: 200 - count})]
    if more := Case(plan, noise, looks=looks).more:
        looks.append(Look(more, {looks[0].top: more}))
    found = Certificate.from_votes(looks, plan=plan, noise=noise)
    assert 0 <= found.radius < 1
    assert not math.isnan(found.radius)
    assert found.samples <= plan.samples + plan.pilot


@pytest.mark.parametrize("radius", [math.nan, 0.0, -math.inf])
def test_a_radius_that_is_no_positive_number_certifies_nothing(radius):
    class Broken(UniformCube):
        def radius(self, p):
            return radius

    found = Certificate.from_votes(
        [Look(100, {0: 100}), Look(1_000, {0: 1_000})], plan=Fixed(1_000), noise=Broken(1.0)
    )
    assert found.abstained
    assert found.radius == 0


class Majority(Fixed):
    """Certifies a majority as a radius of 0, and nothing beyond."""

    def prove(self, state):
        proof = super().prove(state)
        return replace(proof, radius=np.where(np.asarray(proof.lower) > 0.5, 0.0, np.nan)[()])


def test_only_a_missing_prediction_is_an_abstention_and_a_radius_of_0_can_be_proved():
    plan = Majority(1_000)
    proved = Certificate.from_votes(
        [Look(100, {0: 90}), Look(1_000, {0: 900})], plan=plan, noise=NOISE, label=0
    )
    assert (proved.prediction, proved.radius) == (0, 0)
    assert not proved.abstained
    assert proved.correct
    assert fault(proved) is None
    unproved = Certificate.from_votes(
        [Look(100, {0: 90}), Look(1_000, {0: 500})], plan=plan, noise=NOISE, label=0
    )
    assert (unproved.prediction, unproved.radius) == (None, 0)
    assert unproved.abstained
    assert not unproved.correct
    assert unproved.proof.prediction == 0  # what was chosen is recorded all the same
    assert "abstains though its votes prove" in fault(replace(proved, prediction=None))
    assert "do not prove the radius 0" in fault(replace(unproved, prediction=0))
    columns = Results.from_certificates("two", [proved, replace(unproved, id=1)])
    assert columns.abstained.tolist() == [False, True]
    assert columns.correct.tolist() == [True, False]


def test_a_certificate_holds_what_was_proved_also_where_that_is_too_little():
    looks = [Look(100, {0: 90, 2: 10}), Look(1_000, {0: 400, 2: 600})]
    found = Certificate.from_votes(looks, plan=Fixed(1_000), noise=NOISE)
    assert found.abstained
    lower = lower_bound(400, 1_000, alpha=0.001)
    assert found.proof == Proof(0, None, lower, count=400, counted=1_000)


@pytest.mark.annexes
def test_the_public_names_are_all_there():
    import smoothcert

    assert set(smoothcert.__all__) <= set(dir(smoothcert))
    for name in smoothcert.__all__:
        assert getattr(smoothcert, name) is not None
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = smoothcert.nothing_like_it


@pytest.mark.parametrize(
    ("plan", "looks"),
    [
        (
            Fixed(1_000),
            [Look(100, {3: 60}), Look(1_000, {3: 500}), Look(9_000, {3: 8_000})],
        ),  # one look too many
        (
            AtRadii([0, 0.5], 10_000),
            [Look(50, {3: 40}), Look(10_000, {3: 6_000})],
        ),  # the first boundary is for 60
    ],
)
def test_votes_that_a_plan_did_not_ask_for_prove_nothing(plan, looks):
    assert Certificate.from_votes(looks, plan=plan, noise=NOISE).abstained


@pytest.mark.parametrize(
    "plan",
    [Fixed(1_000), Fixed(1_000, bound="runner-up"), AtRadii([0, 0.5], 10_000)],
    ids=["usual", "runner-up", "radii"],
)
def test_votes_after_the_last_look_prove_no_more(plan):
    looks = []
    while more := Case(plan, NOISE, looks=looks).more:
        looks.append(Look(more, {3: more * 2 // 3, 5: more // 4}))
    more = looks + 60 * [Look(9_000, {3: 9_000})]
    assert Case(plan, NOISE, looks=more).proof() == Case(plan, NOISE, looks=looks).proof()

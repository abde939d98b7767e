import math

import pytest

from smoothcert import Fixed, Gaussian, InputSpecific, Look
from smoothcert.errors import InvalidInput
from smoothcert.plans.base import describe

NOISE = Gaussian(0.5)
PLANS = [
    Fixed(1_000),
    Fixed(1_000, pilot_use="reuse"),
    InputSpecific(1_000, decline=0.1),
    InputSpecific(1_000, decline=0.1, pilot_use="reuse"),
]


def test_the_top_class_is_the_smallest_of_those_that_tie():
    assert Look(10, {7: 5, 3: 5}).top == 3
    assert Look(10, {1: 0}).top is None


def test_a_sample_without_a_finite_output_is_a_vote_for_no_class():
    look = Look(100, {0: 60, 1: 30})
    assert look.missing == 10
    assert look.top == 0


@pytest.mark.parametrize(
    ("samples", "votes"),
    [(10, {0: 11}), (10, {0: 6, 1: 5}), (10, {0: -1}), (10, {0: math.nan}), (10, {0: 0.5}), (-1, {}), (math.nan, {})],
)
def test_votes_are_counts_of_the_samples(samples, votes):
    with pytest.raises(InvalidInput, match=r"votes|samples"):
        Look(samples, votes)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_a_plan_asks_for_its_pilot_first_and_stops_after_the_second_look(plan):
    noise = Gaussian(0.5)
    assert plan.more([], noise) == plan.pilot
    pilot = Look(plan.pilot, {4: plan.pilot})
    more = plan.more([pilot], noise)
    assert 0 < more <= plan.samples
    assert plan.more([pilot, Look(more, {4: more})], noise) == 0


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_a_pilot_without_any_vote_ends_the_input_without_a_class(plan):
    nothing = Look(plan.pilot, {})
    assert plan.more([nothing], Gaussian(0.5)) == 0
    tally = plan.tally([nothing], NOISE)
    assert (tally.prediction, tally.count) == (None, 0)


def test_a_fresh_plan_counts_the_second_look_alone():
    tally = Fixed(1_000).tally([Look(100, {1: 90, 2: 10}), Look(1_000, {1: 400, 2: 600})], NOISE)
    assert (tally.prediction, tally.count, tally.samples) == (1, 400, 1_000)


def test_a_reusing_plan_counts_every_look_for_the_class_of_the_pilot():
    tally = Fixed(1_000, pilot_use="reuse").tally([Look(100, {1: 90, 2: 10}), Look(900, {1: 300, 2: 600})], NOISE)
    assert (tally.prediction, tally.count, tally.samples) == (1, 390, 1_000)


@pytest.mark.parametrize(("samples", "pilot"), [(100_000, 1_000), (10_000, 100), (1_000, 100), (50, 50)])
def test_the_pilot_is_one_percent_of_the_ceiling_and_at_least_100(samples, pilot):
    assert InputSpecific(samples).pilot == Fixed(samples).pilot == pilot


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"samples": 9}, "samples 9 can never certify"),
        ({"samples": 100, "pilot": 101}, r"pilot must not exceed samples \(100\), got 101"),
        ({"pilot": -5}, "pilot must be at least 0, got -5"),
        ({"pilot": math.nan}, "pilot must be a whole number of at least 0, got nan"),
        ({"pilot": "many"}, "got 'many'"),
        ({"pilot_use": "twice"}, "pilot_use must be one of fresh, reuse, got 'twice'"),
        ({"alpha": 2}, "alpha must be .* got 2"),
    ],
)
@pytest.mark.parametrize("plan", [Fixed, InputSpecific])
def test_bad_settings_are_named(plan, settings, named):
    with pytest.raises(InvalidInput, match=named):
        plan(**settings)


def test_plans_are_values():
    assert InputSpecific(1_000.0, alpha="0.001") == InputSpecific(1_000)
    assert len({Fixed(1_000), Fixed(1_000), Fixed(2_000)}) == 2


def test_a_plan_describes_itself_in_words_and_as_a_dictionary():
    plan = InputSpecific(100_000, decline=0.05, pilot_use="reuse")
    assert str(plan) == (
        "input-specific, ceiling 100,000, pilot 1,000 (reuse), alpha 0.001, absolute decline 0.05 on the paper's grid"
    )
    assert str(Fixed(10_000)) == "fixed, ceiling 10,000, pilot 100 (fresh), alpha 0.001"
    settings = describe(plan)
    assert InputSpecific(**{k: v for k, v in settings.items() if k != "name"}) == plan
    assert settings["name"] == "InputSpecific"

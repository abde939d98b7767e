"""Plans of two looks: a pilot, then one more draw."""

import math

import pytest
from tests.refusals import refused

from smoothcert import Fixed, Gaussian, InputSpecific, Look
from smoothcert._registry import describe
from smoothcert.plans import Case
from smoothcert.statistics.bounds import lower_bound

NOISE = Gaussian(0.5)
PLANS = [
    Fixed(1_000),
    Fixed(1_000, pilot_use="reuse"),
    Fixed(1_000, bound="runner-up"),
    InputSpecific(1_000, decline=0.1),
    InputSpecific(1_000, decline=0.1, pilot_use="reuse"),
    InputSpecific(1_000, decline=0.1, bound="runner-up"),
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_a_plan_asks_for_its_pilot_first_and_stops_after_the_second_look(plan):
    noise = Gaussian(0.5)
    assert Case(plan, noise).more == plan.pilot
    pilot = Look(plan.pilot, {4: plan.pilot})
    more = Case(plan, noise, looks=[pilot]).more
    assert 0 < more <= plan.samples
    assert Case(plan, noise, looks=[pilot, Look(more, {4: more})]).more == 0


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_a_pilot_without_any_vote_ends_the_input_without_a_class(plan):
    nothing = Look(plan.pilot, {})
    assert Case(plan, Gaussian(0.5), looks=[nothing]).more == 0
    proof = Case(plan, NOISE, looks=[nothing]).proof()
    assert (proof.prediction, proof.count, proof.lower) == (None, 0, 0)


def test_a_fresh_plan_counts_the_second_look_alone():
    proof = Case(
        Fixed(1_000), NOISE, looks=[Look(100, {1: 90, 2: 10}), Look(1_000, {1: 400, 2: 600})]
    ).proof()
    assert (proof.prediction, proof.count, proof.counted) == (1, 400, 1_000)
    assert (proof.lower, proof.upper) == (lower_bound(400, 1_000, alpha=0.001), None)


def test_a_reusing_plan_counts_every_look_for_the_class_of_the_pilot():
    proof = Case(
        Fixed(1_000, pilot_use="reuse"),
        NOISE,
        looks=[Look(100, {1: 90, 2: 10}), Look(900, {1: 300, 2: 600})],
    ).proof()
    assert (proof.prediction, proof.count, proof.counted) == (1, 390, 1_000)
    assert (proof.lower, proof.upper) == (lower_bound(390, 1_000, alpha=0.001), None)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_half_of_the_looks_prove_nothing_yet(plan):
    proof = Case(plan, NOISE, looks=[Look(plan.pilot, {4: plan.pilot})]).proof()
    assert (proof.prediction, proof.lower) == (4, 0)


@pytest.mark.parametrize(
    ("samples", "pilot"), [(100_000, 1_000), (10_000, 100), (1_000, 100), (50, 50)]
)
def test_the_pilot_is_one_percent_of_the_ceiling_and_at_least_100(samples, pilot):
    assert InputSpecific(samples).pilot == Fixed(samples).pilot == pilot
    assert InputSpecific(samples, known_labels=True).pilot == pilot  # to plan with


@pytest.mark.parametrize(
    ("settings", "code", "fields"),
    [
        ({"samples": 9}, "never-certifies", {"samples": 9}),
        ({"samples": 100, "pilot": 101}, "pilot-above-samples", {"samples": 100, "pilot": 101}),
        ({"pilot": -5}, "too-small", {"name": "pilot", "value": -5}),
        ({"pilot": math.nan}, "not-whole", {"name": "pilot"}),
        ({"pilot": "many"}, "not-whole", {"value": "many"}),
        ({"pilot_use": "twice"}, "not-one-of", {"name": "pilot_use", "value": "twice"}),
        ({"alpha": 2}, "not-an-alpha", {"name": "alpha", "value": 2}),
        ({"bound": "third"}, "not-one-of", {"name": "bound", "value": "third"}),
        ({"bound": "runner-up", "pilot_use": "reuse"}, "runner-up-needs-fresh", {}),
    ],
)
@pytest.mark.parametrize("plan", [Fixed, InputSpecific])
def test_bad_settings_are_named(plan, settings, code, fields):
    with refused(code, **fields):
        plan(**settings)


def test_a_pilot_that_would_choose_nothing_is_refused():
    assert Fixed(1_000, known_labels=True).pilot == 0
    assert Fixed(1_000, known_labels=True).most_samples == 1_000
    with refused("needless-pilot", plan="fixed"):
        Fixed(1_000, pilot=100, known_labels=True)
    # It has something to choose where rivals are bounded one by one, and something to plan with a sample map.
    assert Fixed(1_000, pilot=50, known_labels=True, bound="runner-up").pilot == 50
    assert InputSpecific(1_000, pilot=50, known_labels=True).pilot == 50


def test_plans_are_values():
    assert InputSpecific(1_000.0, alpha="0.001") == InputSpecific(1_000)
    assert len({Fixed(1_000), Fixed(1_000), Fixed(2_000)}) == 2


def test_a_plan_describes_itself_in_words_and_as_a_dictionary():
    plan = InputSpecific(100_000, decline=0.05, pilot_use="reuse")
    assert str(plan) == "input-specific 100,000, decline 0.05, pilot reused"
    assert str(Fixed(10_000)) == "fixed 10,000"
    assert (
        str(Fixed(10_000, bound="runner-up", known_labels=True))
        == "fixed 10,000, runner-up bound, known labels"
    )
    relative = InputSpecific(1_000, decline=0.05, kind="relative", reference="ideal")
    assert str(relative) == "input-specific 1,000, decline 5% of the ideal radius"
    settings = describe(plan)
    assert InputSpecific(**{k: v for k, v in settings.items() if k != "name"}) == plan
    assert settings["name"] == "InputSpecific"


@pytest.mark.parametrize("count", [510, 700, 999, 1_000])
def test_the_p_value_at_the_proved_bound_is_alpha_by_another_route(count):
    plan = Fixed(1_000, alpha=0.01)
    looks = [Look(100, {1: 100}), Look(1_000, {1: count})]
    radius = float(NOISE.radius(Case(plan, NOISE, looks=looks).proof().lower))
    assert plan.p_value(looks, radius, NOISE) == pytest.approx(0.01, rel=1e-6)
    assert plan.p_value(looks, radius - 1e-6, NOISE) < 0.01
    assert plan.p_value(looks[:1], 0.9, NOISE) == 1  # nothing was counted


def test_a_second_route_that_does_not_know_the_rivals_is_not_offered():
    looks = [Look(100, {1: 100}), Look(1_000, {1: 400, 2: 300})]
    assert Fixed(1_000, bound="runner-up").p_value(looks, 0.4, NOISE) is None

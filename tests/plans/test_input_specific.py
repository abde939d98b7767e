import numpy as np
import pytest
from tests.refusals import refused

from smoothcert import Ablation, Gaussian, InputSpecific, Look
from smoothcert.plans import Case
from smoothcert.plans.expected import expected
from smoothcert.statistics.bounds import interval

NOISE = Gaussian(0.5)


@pytest.mark.parametrize("kind", ["absolute", "relative"])
def test_an_input_gets_the_larger_value_of_the_map_at_the_ends_of_its_interval(kind):
    plan = InputSpecific(10_000, kind=kind, decline=0.05)
    counts = np.arange(plan.pilot + 1)
    low, high = interval(counts, plan.pilot, alpha=plan.alpha)
    psi = plan.sample_map(NOISE)
    assert plan.after_pilot(counts, NOISE).tolist() == np.maximum(psi(low), psi(high)).tolist()


def test_a_reusing_plan_draws_what_the_pilot_has_not_drawn():
    fresh, reuse = (
        InputSpecific(100_000, pilot_use=use, grid="exact") for use in ("fresh", "reuse")
    )
    counts = np.arange(1_001)
    planned = fresh.after_pilot(counts, NOISE)
    assert reuse.after_pilot(counts, NOISE).tolist() == np.maximum(planned - 1_000, 0).tolist()


def test_a_plan_below_the_pilot_does_not_shrink_what_was_drawn():
    """Published code divides the pilot's votes by the smaller planned size: bounds above 1, or NaN."""
    plan = InputSpecific(100_000, pilot=5_000, decline=0.3, pilot_use="reuse")
    pilot = Look(5_000, {0: 4_000, 1: 1_000})
    assert plan.sample_map(NOISE)(0.8) < 5_000
    assert Case(plan, NOISE, looks=[pilot]).more == 0
    assert Case(plan, NOISE, looks=[pilot]).proof().counted == 5_000


@pytest.mark.parametrize("kind", ["absolute", "relative"])
@pytest.mark.parametrize("bound", ["binary", "runner-up"])
def test_unanimous_votes_could_have_any_ideal_radius_and_get_the_ceiling(kind, bound):
    plan = InputSpecific(10_000, reference="ideal", kind=kind, bound=bound)
    assert Case(plan, NOISE, looks=[Look(plan.pilot, {0: plan.pilot})]).more == 10_000


@pytest.mark.parametrize("kind", ["absolute", "relative"])
def test_a_decline_from_the_ideal_radius_takes_more_samples_than_one_from_the_ceiling(kind):
    ideal, ceiling = (
        InputSpecific(100_000, reference=r, kind=kind, decline=0.1) for r in ("ideal", "ceiling")
    )
    counts = np.arange(ideal.pilot + 1)
    assert np.all(ideal.after_pilot(counts, NOISE) >= ceiling.after_pilot(counts, NOISE))
    assert np.any(ideal.after_pilot(counts, NOISE) > ceiling.after_pilot(counts, NOISE))
    p = 0.8
    needed = int(expected(ideal, NOISE, p).samples[0])
    assert needed < 100_000
    kept = ideal.sample_map(NOISE).radius(needed, p)
    assert kept >= NOISE.radius(p) - (0.1 if kind == "absolute" else 0.1 * NOISE.radius(p)) - 1e-9


def test_the_paper_grid_never_plans_less_than_the_map():
    counts = np.arange(1_001)
    paper, exact = (
        InputSpecific(100_000, grid=grid).after_pilot(counts, NOISE) for grid in ("paper", "exact")
    )
    assert np.all(paper >= exact)
    assert np.any(paper > exact)


def test_the_grid_goes_with_the_use_of_the_pilot():
    assert InputSpecific(1_000).grid == "exact"
    assert InputSpecific(1_000, pilot_use="reuse").grid == "paper"


@pytest.mark.parametrize(
    ("settings", "code", "name"),
    [
        ({"decline": 0}, "not-between", "decline"),
        ({"decline": 1.0, "kind": "relative"}, "not-between", "relative decline"),
        ({"kind": "both"}, "not-one-of", "kind"),
        ({"grid": "fine"}, "not-one-of", "grid"),
    ],
)
def test_bad_settings_are_named(settings, code, name):
    with refused(code, name=name):
        InputSpecific(1_000, **settings)


def test_a_decline_that_gives_up_everything_is_an_error_before_the_run():
    with refused("decline-too-large", decline=2, samples=1_000):
        InputSpecific(1_000, decline=2.0).for_noise(NOISE)


def test_where_no_radius_can_be_proved_a_smaller_decline_is_no_advice():
    nothing_is_hidden = Ablation(5).for_shape((5,))
    for noise, advice in ((nothing_is_hidden, "more samples"), (NOISE, "smaller decline")):
        with refused("decline-too-large") as raised:
            InputSpecific(100, decline=2.0).for_noise(noise)
        assert advice in raised.value.fields["advice"]

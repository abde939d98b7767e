"""Several plans on the same draws."""

import pytest

from smoothcert import Fixed, Gaussian, InputSpecific, InvalidInput, Together, certify
from smoothcert.plans.base import describe
from smoothcert.runs.formats import restore

PLANS = (
    Fixed(2_000, pilot=100),
    InputSpecific(2_000, pilot=100, decline=0.1),
    InputSpecific(2_000, pilot=100, decline=0.05, kind="relative"),
    InputSpecific(2_000, pilot=100, decline=0.1, pilot_use="reuse"),
    Fixed(700, pilot=100),
    Fixed(500, pilot=250),
)
NOISE = Gaussian(0.5)
pytestmark = pytest.mark.filterwarnings("ignore:the first input")  # these are no images


def three_bands(x):
    return (x[:, 0] > 0).long() + (x[:, 0] > 1).long()


@pytest.fixture
def inputs():
    return [([0.1 * i - 0.5, 0.0], 0) for i in range(20)]


@pytest.mark.filterwarnings("ignore:the pilot is counted again")
def test_every_plan_has_the_votes_it_would_have_had_alone(tmp_path, inputs):
    settings = {"noise": NOISE, "classes": 3, "device": "cpu", "batch": 300}
    shared = certify(three_bands, inputs, plan=Together(PLANS), out=tmp_path / "together", **settings)
    for index, (plan, split) in enumerate(zip(PLANS, shared.split(), strict=True)):
        alone = certify(three_bands, inputs, plan=plan, out=tmp_path / str(index), **settings)
        for column in ("id", "label", "prediction", "radius", "samples", "count", "counted", "missing"):
            assert getattr(split, column).tolist() == getattr(alone, column).tolist(), (plan, column)
        assert split.plan == plan


def test_the_draws_cost_what_the_most_expensive_plan_costs(tmp_path, inputs):
    run = certify(
        three_bands, inputs, noise=NOISE, classes=3, plan=Together(PLANS), out=tmp_path, device="cpu", batch=300
    )
    assert set(run.samples) == {2_100}


def test_its_own_certificates_are_those_of_the_first_plan(tmp_path, inputs):
    run = certify(
        three_bands, inputs, noise=NOISE, classes=3, plan=Together(PLANS), out=tmp_path, device="cpu", batch=300
    )
    assert run.radius.tolist() == run.split()[0].radius.tolist()


def test_it_is_recorded_with_its_plans():
    together = Together(PLANS)
    assert restore(describe(together)) == together


def test_no_plans_are_refused():
    with pytest.raises(InvalidInput, match="at least one plan"):
        Together(())

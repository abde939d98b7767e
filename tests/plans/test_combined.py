"""Several plans on the same draws."""

import pytest
from tests.refusals import refused

from smoothcert import Combined, Fixed, Gaussian, InputSpecific, Look, certify
from smoothcert._registry import describe, restore
from smoothcert.plans import Case
from smoothcert.plans.combined import looks_seen_by

PLANS = (
    Fixed(2_000, pilot=100),
    InputSpecific(2_000, pilot=100, decline=0.1),
    InputSpecific(2_000, pilot=100, decline=0.05, kind="relative"),
    InputSpecific(2_000, pilot=100, decline=0.1, pilot_use="reuse"),
    Fixed(700, pilot=100),
    Fixed(500, pilot=250),
)
NOISE = Gaussian(0.5)
pytestmark = pytest.mark.filterwarnings("ignore:input 0 of list")  # these are no images


def three_bands(x):
    return (x[:, 0] > 0).long() + (x[:, 0] > 1).long()


@pytest.fixture
def inputs():
    return [([0.1 * i - 0.5, 0.0], 0) for i in range(20)]


@pytest.mark.filterwarnings("ignore:the pilot is counted again")
def test_every_plan_has_the_votes_it_would_have_had_alone(tmp_path, inputs):
    settings = {"noise": NOISE, "classes": 3, "device": "cpu", "batch": 300}
    shared = certify(
        three_bands, inputs, plan=Combined(PLANS), out=tmp_path / "combined", **settings
    )
    for index, (plan, split) in enumerate(zip(PLANS, shared.split(), strict=True)):
        alone = certify(three_bands, inputs, plan=plan, out=tmp_path / str(index), **settings)
        for column in (
            "id",
            "label",
            "prediction",
            "radius",
            "samples",
            "count",
            "counted",
            "missing",
        ):
            assert getattr(split, column).tolist() == getattr(alone, column).tolist(), (
                plan,
                column,
            )
        assert split.plan == plan


def test_the_draws_cost_what_the_most_expensive_plan_costs(tmp_path, inputs):
    run = certify(
        three_bands,
        inputs,
        noise=NOISE,
        classes=3,
        plan=Combined(PLANS),
        out=tmp_path,
        device="cpu",
        batch=300,
    )
    assert set(run.samples) == {2_100}


def test_its_own_certificates_are_those_of_the_first_plan(tmp_path, inputs):
    run = certify(
        three_bands,
        inputs,
        noise=NOISE,
        classes=3,
        plan=Combined(PLANS),
        out=tmp_path,
        device="cpu",
        batch=300,
    )
    assert run.radius.tolist() == run.split()[0].radius.tolist()


def test_it_is_recorded_with_its_plans():
    combined = Combined(PLANS)
    assert restore(describe(combined)) == combined


def test_each_plan_sees_the_looks_it_would_have_had():
    pilot, rest = Look(100, {3: 90, 5: 10}), [Look(400, {3: 380, 5: 20}), Look(300, {3: 300})]
    combined = Combined((Fixed(700, pilot=100), Fixed(400, pilot=100)))
    assert [
        Case(combined, NOISE, looks=looks).more for looks in ([], [pilot], [pilot, rest[0]])
    ] == [100, 400, 300]
    assert Case(combined, NOISE, looks=[pilot, *rest]).more == 0
    assert looks_seen_by(combined.plans[0], [pilot, *rest], NOISE, None) == [
        pilot,
        Look(700, {3: 680, 5: 20}),
    ]
    assert looks_seen_by(combined.plans[1], [pilot, *rest], NOISE, None) == [pilot, rest[0]]
    assert combined.primary == combined.plans[0]
    assert combined.most_samples == 800
    assert (
        Case(combined, NOISE, looks=[pilot, *rest]).proof()
        == Case(combined.plans[0], NOISE, looks=[pilot, Look(700, {3: 680})]).proof()
    )


def test_plans_that_know_the_label_share_draws_with_plans_that_do_not():
    combined = Combined((Fixed(400, known_labels=True), Fixed(300, pilot=100)))
    assert combined.known_labels
    looks = [Look(100, {3: 60, 5: 40}), Look(300, {3: 200, 5: 100})]
    assert [Case(combined, NOISE, 5, looks[:number]).more for number in range(3)] == [100, 300, 0]
    proof = Case(combined, NOISE, 5, looks).proof()
    assert (proof.prediction, proof.count, proof.counted) == (5, 140, 400)


def test_no_plans_are_refused():
    with refused("no-plans"):
        Combined(())

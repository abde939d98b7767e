from dataclasses import replace

import numpy as np
import pytest
from tests.refusals import refused

from smoothcert.noises import Gaussian, Uniform
from smoothcert.runs.recommendation import recommend
from smoothcert.runs.table import table


@pytest.fixture
def sweep(fixed_run, altered):
    """Two runs of 60 inputs: the first certifies 10 more at small radii, the second alone has large radii."""
    correct = np.arange(60) < 50
    small = altered(fixed_run, name="small", prediction=np.where(correct, fixed_run.label, -1))
    small = altered(small, radius=np.where(correct, 0.4, 0.0), noise=Gaussian(0.12))
    correct = (np.arange(60) >= 5) & (np.arange(60) < 35)
    large = altered(
        small, name="large", prediction=np.where(correct, fixed_run.label, -1), noise=Gaussian(0.5)
    )
    return small, altered(large, radius=np.where(correct, 1.5, 0.0))


def test_the_run_that_is_best_at_the_radii_that_count_is_recommended_with_reasons(sweep):
    assert recommend(sweep, radii=[0, 0.25]).run == "small"
    found = recommend(sweep, radii=[0.25, 0.5, 1.0])
    assert found.run == "large"
    assert [(at.radius, at.best, at.as_good) for at in found.radii] == [
        (0.25, "small", {}), (0.5, "large", {}), (1.0, "large", {})
    ]  # fmt: skip
    assert found.reasons[:2] == [
        "Take large: at 2 of 3 radii (0.5, 1), no other run certifies more inputs beyond chance.",
        "At radius 0.25, take small, which certifies 83.3%.",
    ]
    assert "hold together with probability 0.998" in found.reasons[-1]


def test_a_difference_that_chance_explains_does_not_decide(sweep, altered):
    small, _ = sweep
    fewer = altered(
        small,
        name="fewer",
        prediction=np.where(np.arange(60) < 47, small.label, -1),
        radius=small.radius + 1,
    )
    found = recommend([small, fewer], radii=[0])  # 50 against 47 of 60, so the larger ACR decides
    assert found.radii[0].best == "small"
    assert found.radii[0].as_good == {"fewer": 47 / 60}
    assert found.run == "fewer"
    assert found.reasons[1] == (
        "Chance may explain the difference to small at 0: these 60 inputs do not tell them apart, "
        "although small certifies more of them at 0."
    )


def test_runs_that_compare_would_refuse_get_no_verdict(sweep, altered):
    small, large = sweep
    changes = {
        "other-data": {"manifest": replace(large.manifest, data_hash="other")},
        "other-norm": {"noise": Uniform(0.5)},
        "other-plan": {"plan": replace(large.plan, alpha=0.01)},
    }
    for code, change in changes.items():
        with refused(code):
            recommend([small, altered(large, **change)], radii=[0])


def test_the_radii_are_those_of_the_table_unless_they_are_given(sweep):
    assert [at.radius for at in recommend(sweep).radii] == [
        r for r in table(sweep).radii if r < 1.5
    ]


def test_without_a_certified_label_nothing_is_recommended_and_other_inputs_are_refused(
    sweep, altered
):
    small, large = sweep
    assert recommend([altered(small, label=np.full(60, -1))], radii=[0]) is None
    with refused("other-inputs"):
        recommend([small, altered(large, id=large.id + 1)], radii=[0])

import numpy as np
import pytest
from scipy.stats import binom

from smoothcert import Coverage, Fixed, Gaussian, InputSpecific, exact_coverage
from smoothcert.statistics.bounds import lower_bound

NOISE = Gaussian(0.5)


def test_relative_reuse_fails_more_often_than_it_says():
    found = exact_coverage(InputSpecific(100_000, pilot=1_000, kind="relative", pilot_use="reuse"), NOISE)
    assert found.worst_failure / found.alpha == pytest.approx(1.044, abs=0.002)
    assert found.worst_p == pytest.approx(0.60, abs=0.01)
    assert found.tie_failure / found.alpha == pytest.approx(1.44, abs=0.01)
    assert not found.valid


def test_absolute_reuse_holds_for_a_fixed_class_but_not_for_a_chosen_one():
    found = exact_coverage(InputSpecific(100_000, pilot=1_000, pilot_use="reuse"), NOISE)
    assert 0.95 < found.worst_failure / found.alpha <= 1.0001
    assert found.tie_failure / found.alpha == pytest.approx(1.80, abs=0.01)
    assert not found.valid


@pytest.mark.parametrize("kind", ["absolute", "relative"])
def test_a_fresh_plan_keeps_its_alpha(kind):
    found = exact_coverage(InputSpecific(100_000, kind=kind), NOISE)
    assert found.worst_failure <= found.alpha
    assert found.tie_failure <= found.alpha
    assert found.valid


@pytest.mark.parametrize("alpha", [1e-9, 1e-6, 0.001, 0.3])
def test_a_fresh_fixed_plan_comes_up_to_its_alpha_and_not_beyond(alpha):
    found = exact_coverage(Fixed(10_000, pilot=1_000, alpha=alpha), NOISE)
    assert found.worst_failure == pytest.approx(alpha, rel=1e-6)
    assert found.valid


def test_valid_turns_on_either_case():
    assert Coverage(0.01, 0.01, 0.6, 0.009).valid
    assert not Coverage(0.01, 0.0101, 0.6, 0.009).valid
    assert not Coverage(0.01, 0.009, 0.6, 0.0101).valid


def test_a_reused_pilot_is_never_called_valid_for_nearly_tied_classes_can_be_worse_than_tied_ones():
    plan = InputSpecific(62, pilot=61, alpha=0.01, decline=0.3, pilot_use="reuse")
    found = exact_coverage(plan, NOISE)
    assert max(found.worst_failure, found.tie_failure) <= found.alpha
    p, a = 0.51639, np.arange(62)  # this plan never draws beyond its pilot, so all outcomes can be listed
    bound, leads = lower_bound(a, 61, alpha=0.01), 2 * a > 61
    nearly_tied = binom.pmf(a, 61, p)[leads & (bound > p)].sum() + binom.pmf(a, 61, 1 - p)[leads & (bound > 0.5)].sum()
    assert nearly_tied / found.alpha == pytest.approx(1.228, abs=0.001)
    assert not found.valid

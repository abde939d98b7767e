from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from scipy.stats import binom
from smoothcert.plans.endings import Forward

from smoothcert import AtRadii, Coverage, Fixed, Gaussian, InputSpecific, Plan, exact_coverage
from smoothcert.errors import InvalidInput
from smoothcert.plans import Case
from smoothcert.statistics.bounds import lower_bound

NOISE = Gaussian(0.5)


def test_relative_reuse_fails_more_often_than_it_says():
    found = exact_coverage(
        InputSpecific(100_000, pilot=1_000, kind="relative", pilot_use="reuse"), NOISE
    )
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
    p, a = (
        0.51639,
        np.arange(62),
    )  # this plan never draws beyond its pilot, so all outcomes can be listed
    bound, leads = lower_bound(a, 61, alpha=0.01), 2 * a > 61
    nearly_tied = (
        binom.pmf(a, 61, p)[leads & (bound > p)].sum()
        + binom.pmf(a, 61, 1 - p)[leads & (bound > 0.5)].sum()
    )
    assert nearly_tied / found.alpha == pytest.approx(1.228, abs=0.001)
    assert not found.valid


@dataclass(frozen=True)
class _OwnPlan(Plan):
    """100 samples after a pilot; `lower_bound` is up to the subclass."""

    samples: int = 100
    alpha: float = 0.001
    pilot: int = 10
    name: ClassVar[str] = "own"

    def __str__(self):
        return "own plan"

    def request(self, state, noise):
        return np.where(np.asarray(state.look) < 2, self.samples, 0)[()]

    def lower_bound(self, state, noise):
        return lower_bound(state.count, np.maximum(state.drawn, 1), alpha=self.alpha)


class _CertifiesTheRare(_OwnPlan):
    def lower_bound(self, state, noise):
        return np.where(np.asarray(state.count) < 20, 0.99, 0.0)


class _WithRivals(_OwnPlan):
    uses_rivals = True

    def upper_bound(self, state, noise):
        return np.zeros(np.shape(state.count))


class _Bold(Fixed):
    def lower_bound(self, state, noise):
        return np.asarray(state.count / np.maximum(state.drawn, 1))


def test_a_plan_without_a_closed_form_is_searched_and_this_is_said():
    found = exact_coverage(_OwnPlan(), Gaussian(0.5))
    assert (found.valid, found.searched) == (True, True)
    assert not exact_coverage(Fixed(1000), Gaussian(0.5)).searched


def test_a_class_is_never_chosen_by_the_votes_that_count_for_it():
    """Two tied classes would fail with up to twice alpha, and no figure for a class fixed in advance shows that."""
    plan = _OwnPlan(pilot=0)
    with pytest.raises(
        InvalidInput,
        match='"own plan" has no pilot, so the votes that choose the class would count',
    ):
        exact_coverage(plan, Gaussian(0.5))
    with pytest.raises(InvalidInput, match="give it a pilot, or known_labels=True"):
        Case(plan, Gaussian(0.5))


def test_the_search_finds_plans_that_fail_below_one_half():
    assert not exact_coverage(_CertifiesTheRare(), Gaussian(0.5)).valid


def test_nothing_is_said_of_own_bounds_on_other_classes():
    with pytest.raises(InvalidInput, match="nothing is known about its failure"):
        exact_coverage(_WithRivals(), Gaussian(0.5))
    found = exact_coverage(Fixed(1000, bound="runner-up"), Gaussian(0.5))
    assert (found.worst_failure, found.tie_failure, found.exact, found.valid) == (
        0.001,
        0.001,
        False,
        True,
    )


class _Greedy(Fixed):
    @property
    def level(self):
        return 20 * self.alpha


class _Longer(Fixed):
    """Claims a tenth more than its bound proves."""

    def certified_radius(self, lower, upper, noise):
        return 1.1 * super().certified_radius(lower, upper, noise)


class _AtEveryLook(AtRadii):
    """Clopper-Pearson at full alpha at every look."""

    def lower_bound(self, state, noise):
        return lower_bound(state.count, np.maximum(state.drawn, 1), alpha=self.alpha)


@dataclass(frozen=True)
class _Growing(_OwnPlan):
    """Goes on while something is proved, and takes the best of all looks."""

    samples: int = 10_000

    def request(self, state, noise):
        following = [0, 100, 200, 700, 2_000, 7_000, 0][state.look]
        return np.where((state.look == 1) | (np.asarray(state.lower) > 0.5), following, 0)[()]


@pytest.mark.parametrize("kind", [_Bold, _Greedy, _Longer])
def test_the_formulas_for_two_looks_are_not_used_for_a_subclass_that_claims_something_else(kind):
    found = exact_coverage(kind(100), NOISE)
    assert (found.searched, found.exact, found.simulated) == (True, True, None)
    assert found.worst_failure > 2 * found.alpha
    assert not found.valid


def test_a_subclass_that_changes_no_method_keeps_the_closed_form():
    class Renamed(Fixed):
        name = "renamed"

        def __str__(self):
            return "another name"

    assert exact_coverage(Renamed(1_000), NOISE) == exact_coverage(Fixed(1_000), NOISE)


@pytest.mark.parametrize(
    ("plan", "times"),
    [(_Growing(), 4.3), (_AtEveryLook([0, 0.5], samples=10_000, known_labels=True), 9.8)],
    ids=["growing", "radii"],
)
def test_plans_that_test_again_at_full_alpha_are_simulated_and_not_valid(plan, times):
    found = exact_coverage(plan, NOISE)
    assert found.exceeds
    assert not found.valid
    assert not found.exact
    assert found.simulated.at_least <= found.worst_failure <= found.simulated.at_most
    assert found.worst_failure / plan.alpha == pytest.approx(times, rel=0.25)


def test_a_simulation_agrees_with_the_enumeration(monkeypatch):
    class Reading(_OwnPlan):
        """Reads what was proved before, and ignores it."""

        def request(self, state, noise):
            return super().request(state, noise) + 0 * np.asarray(state.lower, int)

    plan = Reading(alpha=0.05)
    exact = exact_coverage(plan, NOISE)
    monkeypatch.setattr(Forward.__init__, "__defaults__", (0,))
    found = exact_coverage(plan, NOISE)
    assert exact.exact
    assert found.simulated.at_least <= exact.worst_failure <= found.simulated.at_most * 1.02
    assert found.valid == (found.simulated.at_most <= 0.05)

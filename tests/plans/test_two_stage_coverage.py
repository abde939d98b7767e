from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

from smoothcert import Certificate, Discrete, Fixed, Gaussian, InputSpecific, Look
from smoothcert.plans import Case, two_stage
from smoothcert.plans.two_stage import failure_probability, tie_failure, worst_case
from smoothcert.statistics.bounds import lower_bound

NOISE = Gaussian(0.5)
SMALL = [
    InputSpecific(200, pilot=30, decline=0.2, kind="relative", pilot_use="reuse", alpha=0.01),
    InputSpecific(200, pilot=30, decline=0.1, kind="absolute", pilot_use="reuse", alpha=0.01),
    InputSpecific(200, pilot=30, decline=0.2, kind="relative", alpha=0.01),
    InputSpecific(300, pilot=120, decline=0.3, pilot_use="reuse", alpha=0.05),
    Fixed(100, pilot=20, alpha=0.01),
    Fixed(100, pilot=20, alpha=0.01, pilot_use="reuse"),
]


def by_tables(plan, p, *, tied=False):
    """Failure by going through every pair (votes in the pilot, votes after it) with SciPy's binomial tables."""
    failure = 0.0
    before = plan.reused
    for a0 in range(plan.pilot + 1):
        top = max(a0, plan.pilot - a0) if tied else a0
        drawn = int(plan.after_pilot(top, NOISE))
        if drawn + before == 0:
            continue
        after = np.arange(drawn + 1)
        bound = lower_bound(after + (top if before else 0), drawn + before, alpha=plan.alpha)
        wrong = binom.pmf(after, drawn, p)[bound > max(p, 0.5)].sum()
        failure += binom.pmf(a0, plan.pilot, p) * wrong
    return failure


@pytest.mark.parametrize("plan", SMALL, ids=str)
def test_failure_is_the_sum_over_all_outcomes(plan):
    p = [0.0, 0.3, 0.5, 0.5321, 0.6543, 0.8123, 0.95, 0.999]
    assert failure_probability(plan, NOISE, p) == pytest.approx(
        [by_tables(plan, q) for q in p], rel=1e-8, abs=1e-12
    )
    assert tie_failure(plan, NOISE) == pytest.approx(by_tables(plan, 0.5, tied=True), rel=1e-8)


@pytest.mark.parametrize("plan", SMALL, ids=str)
def test_no_p_is_worse_than_the_worst_case(plan):
    worst, where = worst_case(plan, NOISE)
    p = np.concatenate([np.linspace(0, 1, 1_500), where + np.linspace(-1e-3, 1e-3, 101)])
    assert failure_probability(plan, NOISE, p[p <= 1]).max() <= worst
    assert failure_probability(plan, NOISE, where) == worst


def test_the_search_comes_close_where_not_every_break_point_is_tried(monkeypatch):
    plan = InputSpecific(
        1_000, pilot=100, decline=0.2, kind="relative", pilot_use="reuse", alpha=0.01
    )
    exact, _ = worst_case(plan, NOISE)
    monkeypatch.setattr(two_stage, "_SMALL", 0)
    searched, _ = worst_case(plan, NOISE)
    assert 0.97 * exact < searched <= exact * (1 + 1e-9)


@pytest.mark.parametrize("plan", SMALL, ids=str)
def test_below_one_half_is_never_worse_than_one_half(plan):
    failure = failure_probability(plan, NOISE, np.linspace(0.2, 0.5, 61))
    assert failure.argmax() == 60


@pytest.mark.parametrize(
    ("plan", "p"), [(SMALL[0], 0.6), (SMALL[1], 0.8), (SMALL[2], 0.7), (SMALL[5], 0.5)], ids=str
)
def test_simulated_certificates_fail_as_often_as_computed(plan, p):
    plan = replace(plan, alpha=0.2)  # so that failures are frequent enough to be counted
    rng, runs = np.random.default_rng(1), 8_000

    @cache  # votes decide, and many simulated inputs have the same ones
    def certified(*votes, chosen):
        case, looks = Case(plan, NOISE), []
        for count in votes:
            # A class fixed in advance may lose the pilot: its votes alone are told to the plan.
            looks.append(
                Look(case.more, {0: count, 1: case.more - count} if chosen or looks else {0: count})
            )
            case.add(looks[-1])
        return case.more, Certificate.from_case(case, looks).radius

    def failures_among(q, chosen):
        truth, failures = max(float(NOISE.radius(q)), 0), 0
        for count in rng.binomial(plan.pilot, q, runs).tolist():
            more, radius = certified(count, chosen=chosen)
            if more:
                _, radius = certified(count, int(rng.binomial(more, q)), chosen=chosen)
            failures += radius > truth
        return failures

    fixed_class, tied = failures_among(p, False), failures_among(0.5, True)
    for failures, expected in (
        (fixed_class, failure_probability(plan, NOISE, p)[0]),
        (tied, tie_failure(plan, NOISE)),
    ):
        assert abs(failures / runs - expected) < 4 * np.sqrt(expected * (1 - expected) / runs)


def test_a_larger_reused_pilot_makes_the_tie_worse():
    plan = InputSpecific(100_000, pilot=10_000, kind="relative", pilot_use="reuse")
    assert tie_failure(plan, NOISE) / plan.alpha == pytest.approx(1.87, abs=0.01)


def test_a_plan_that_never_draws_never_fails():
    noise = Discrete(0.6, 256).for_size(784)
    plan = InputSpecific(2_000, decline=0.2, kind="relative")
    assert not plan.after_pilot(np.arange(plan.pilot + 1), noise).any()
    assert worst_case(plan, noise) == (0.0, 0.5)

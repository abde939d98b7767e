"""The forward pass over states beside closed forms and plain enumeration."""

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import pytest
from scipy.stats import binom
from smoothcert.plans.endings import Forward
from smoothcert.plans.outlook import outlook

from smoothcert import Fixed, Gaussian, InputSpecific, Plan, State, exact_coverage
from smoothcert.plans.coverage import failure_probability
from smoothcert.statistics.bounds import lower_bound

NOISE = Gaussian(0.5)
P = [0.0, 0.31, 0.5, 0.5321, 0.6543, 0.8123, 0.95, 0.9991, 1.0]
SMALL = [
    Fixed(100, pilot=20, alpha=0.01),
    Fixed(100, pilot=20, alpha=0.01, pilot_use="reuse"),
    Fixed(60, alpha=0.05, known_labels=True),
    InputSpecific(200, pilot=30, decline=0.2, kind="relative", alpha=0.01),
    InputSpecific(200, pilot=30, decline=0.1, alpha=0.01),
    InputSpecific(200, pilot=30, decline=0.2, kind="relative", pilot_use="reuse", alpha=0.01),
    InputSpecific(300, pilot=120, decline=0.3, pilot_use="reuse", alpha=0.05),
]


def failure(plan, p):
    """The probability of a wrong certificate. Below 1/2, any certificate is wrong."""
    return Forward(plan, NOISE).ending(p, limit=max(p, 0.5)).failed


@dataclass(frozen=True)
class Steps(Plan):
    """Up to four looks of `step` samples. It stops early where its bound exceeds 1/2 or hope is gone."""

    samples: int = 60
    pilot: int = 8
    alpha: float = 0.2
    step: int = 15
    counts_pilot: bool = False
    known_labels: bool = False
    name: ClassVar[str] = "steps"

    @property
    def pilot_counts(self):
        return self.counts_pilot

    def request(self, state, noise):
        count, drawn, lower = (np.asarray(part) for part in (state.count, state.drawn, state.lower))
        if state.look == (1 if self.pilot and not self.pilot_counts else 0):
            # The pilot decides the first size, unless there is none.
            return (
                np.where(count > self.pilot / 2, self.step, 2 * self.step)[()]
                if state.look
                else self.step
            )
        hopeless = count < 0.3 * drawn
        return np.where(
            (lower > 0.55) | hopeless | (drawn >= self.samples),
            0,
            np.minimum(self.step, self.samples - drawn),
        )[()]

    def lower_bound(self, state, noise):
        return lower_bound(state.count, np.maximum(state.drawn, 1), alpha=self.alpha / 4)

    def __str__(self):
        return f"steps of {self.step}"


MANY = [
    Steps(),
    Steps(counts_pilot=True),
    Steps(pilot=0, known_labels=True),
    Steps(step=7, alpha=0.5),
]


@cache
def proved_in(plan, *state):
    return float(plan.lower_bound(State(*state), NOISE))


@cache
def asked_in(plan, *state):
    return int(plan.request(State(*state), NOISE))


@cache
def shares(samples, p):
    return binom.pmf(np.arange(samples + 1), samples, p).tolist()


def enumerated(plan, p, limit):
    """Every path of counts on its own: the probability to fail, and the expected samples."""
    failed = samples = 0.0
    start = plan.pilot or asked_in(plan, 0, 0, 0)
    # look, count, drawn, lower -> probability
    paths = {(1, count, start, 0.0): share for count, share in enumerate(shares(start, p))}
    samples += start
    while paths:
        following = defaultdict(float)
        for (look, count, drawn, lower), probability in paths.items():
            only_pilot = look == 1 and plan.pilot > 0 and not plan.pilot_counts
            if not only_pilot:
                proved = proved_in(plan, look, count, drawn, lower)
                if proved > limit:
                    failed += probability
                    continue
                lower = max(lower, proved)
            more = asked_in(plan, look, count, drawn, lower)
            if not more:
                continue
            samples += probability * more
            before = (0, 0) if only_pilot else (count, drawn)
            for votes, share in enumerate(shares(more, p)):
                if probability * share:
                    following[look + 1, before[0] + votes, before[1] + more, lower] += (
                        probability * share
                    )
        paths = following
    return failed, samples


@pytest.mark.parametrize("plan", SMALL, ids=str)
@pytest.mark.parametrize("p", P)
def test_the_forward_pass_fails_as_often_as_the_closed_form(plan, p):
    closed = float(failure_probability(plan, NOISE, p)[0])
    assert failure(plan, p) == pytest.approx(closed, abs=1e-9)
    assert closed == pytest.approx(enumerated(plan, p, max(p, 0.5))[0], abs=1e-9)


@pytest.mark.parametrize("plan", SMALL, ids=str)
@pytest.mark.parametrize("p", P)
def test_the_expected_samples_are_those_of_all_outcomes(plan, p):
    found = Forward(plan, NOISE).ending(p, limit=np.inf)
    if plan.pilot:
        counts = np.arange(plan.pilot + 1)
        expected = plan.pilot + binom.pmf(counts, plan.pilot, p) @ plan.after_pilot(counts, NOISE)
    else:
        expected = plan.samples
    assert found.samples == pytest.approx(expected, rel=1e-9)
    assert found.failed == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("plan", MANY, ids=str)
@pytest.mark.parametrize("p", [0.2, 0.5, 0.62, 0.9])
@pytest.mark.parametrize("above", [0, 0.05])
def test_a_plan_of_many_looks_is_followed_through_every_state(plan, p, above):
    limit = max(p, 0.5) + above
    found = Forward(plan, NOISE).ending(p, limit=limit)
    failed, samples = enumerated(plan, p, limit)
    assert found.failed == pytest.approx(failed, abs=1e-9)
    assert found.samples == pytest.approx(samples, rel=1e-9)
    assert failed > 0 or limit > 0.6


def test_states_that_proved_different_bounds_are_told_apart_where_the_rule_reads_them():
    """At the same count, a path that has proved 0.55 stops, and one that has not goes on."""
    plan = Steps(alpha=0.9)
    assert Forward(plan, NOISE).ending(0.6, limit=np.inf).samples == pytest.approx(
        enumerated(plan, 0.6, np.inf)[1], rel=1e-9
    )

    class ThroughACopy(Steps):
        def request(self, state, noise):
            return super().request(state._replace(rivals=None), noise)

    assert Forward(ThroughACopy(alpha=0.9), NOISE).ending(0.6, limit=np.inf) == Forward(
        plan, NOISE
    ).ending(0.6, limit=np.inf)


def test_tails_that_are_cut_off_do_not_show():
    plan = InputSpecific(100_000, pilot=1_000, kind="relative", decline=0.01)
    for p in (0.5, 0.9, 0.9999):
        closed = float(failure_probability(plan, NOISE, p)[0])
        assert failure(plan, p) == pytest.approx(closed, rel=1e-8)


def test_a_plan_without_a_closed_form_has_its_coverage_and_its_outlook_from_the_states():
    plan = Steps()
    found = exact_coverage(plan, NOISE)
    assert found.worst_failure == pytest.approx(
        max(enumerated(plan, p, p)[0] for p in (0.5, found.worst_p)), abs=1e-9
    )
    assert found.tie_failure == pytest.approx(enumerated(plan, 0.5, 0.5)[0], abs=1e-9)
    assert found.exact
    assert found.valid == (found.worst_failure <= plan.alpha)
    p = [0.3, 0.5, 0.7]
    seen = outlook(plan, NOISE, p)
    assert seen.expected
    assert seen.samples == pytest.approx([enumerated(plan, q, np.inf)[1] for q in p], rel=1e-9)
    assert seen.proved["certified"] == pytest.approx(
        [enumerated(plan, q, 0.5)[0] for q in p], abs=1e-9
    )


def test_a_rule_is_not_asked_about_counts_that_no_run_reaches():
    class Strict(Steps):
        def request(self, state, noise):
            if state.look > 1 and np.any(np.asarray(state.count) < 3):
                raise IndexError("no such row")
            return super().request(state, noise)

    found = Forward(Strict(), NOISE).ending(1.0, limit=np.inf)
    assert found == Forward(Steps(), NOISE).ending(1.0, limit=np.inf)
    with pytest.raises(IndexError, match="no such row"):
        Forward(Strict(), NOISE).ending(0.5, limit=np.inf)


def test_answers_of_a_plan_are_remembered(monkeypatch):
    asked = []

    class Counting(Steps):
        def lower_bound(self, state, noise):
            asked.extend(
                (state.look, *numbers)
                for numbers in zip(state.drawn, state.count, state.lower, strict=True)
            )
            return super().lower_bound(state, noise)

    forward = Forward(Counting(alpha=0.9), NOISE)
    found = [forward.ending(p, limit=0.7) for p in (0.6, 0.65, 0.55, 0.6)]
    assert len(asked) == len(set(asked))
    monkeypatch.setattr("smoothcert.plans.endings._MOST_BLOCKS", 0)
    assert found == [
        Forward(Steps(alpha=0.9), NOISE).ending(p, limit=0.7) for p in (0.6, 0.65, 0.55, 0.6)
    ]

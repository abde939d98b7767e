"""The stopping distribution beside closed forms and plain enumeration."""

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import pytest
from scipy.stats import binom

from smoothcert import Fixed, Gaussian, InputSpecific, Plan, Proof, exact_coverage
from smoothcert.plans import stopping as stopping_module
from smoothcert.plans.expected import expected
from smoothcert.plans.stopping import StoppingDistribution, is_countable
from smoothcert.plans.two_stage import failure_probability
from smoothcert.statistics.bounds import lower_bound

NOISE = Gaussian(0.5)
P = [0.0, 0.31, 0.5, 0.5321, 0.6543, 0.8123, 0.95, 0.9991, 1.0]
SMALL = [
    Fixed(100, pilot=20, alpha=0.01),
    Fixed(60, alpha=0.05, known_labels=True),
    InputSpecific(200, pilot=30, decline=0.2, kind="relative", alpha=0.01),
    InputSpecific(200, pilot=30, decline=0.1, alpha=0.01),
    InputSpecific(
        200,
        pilot=30,
        decline=0.2,
        kind="relative",
        pilot_use="reuse",
        alpha=0.01,
        known_labels=True,
    ),
    InputSpecific(300, pilot=120, decline=0.3, pilot_use="reuse", alpha=0.05, known_labels=True),
]


def failure(plan, p):
    """The probability of a wrong certificate. Below 1/2, any certificate is wrong."""
    return StoppingDistribution(plan, NOISE).at(p, limit=max(p, 0.5)).failed


@dataclass(frozen=True)
class Steps(Plan):
    """Up to four looks of `step` samples. It stops early where its bound exceeds 0.55 or hope is gone."""

    samples: int = 60
    pilot: int = 8
    alpha: float = 0.2
    step: int = 15
    known_labels: bool = False
    name: ClassVar[str] = "steps"

    def request(self, state):
        if state.look == 0:
            return self.pilot or self.step
        if state.look == 1 and self.pilot:  # the pilot decides the first size
            return np.where(state.pilot_count > self.pilot / 2, self.step, 2 * self.step)[()]
        count, drawn = np.asarray(state.count), np.asarray(state.drawn)
        stop = (self.lower(state) > 0.55) | (count < 0.3 * drawn) | (drawn >= self.samples)
        return np.where(stop, 0, np.minimum(self.step, self.samples - drawn))[()]

    def lower(self, state):
        return lower_bound(state.count, np.maximum(state.drawn, 1), alpha=self.alpha / 4)

    def prove(self, state):
        return Proof.from_bounds(state, self.lower(state))

    def __str__(self):
        return f"steps of {self.step}"


MANY = [Steps(), Steps(pilot=0, known_labels=True), Steps(step=7, alpha=0.5)]


@cache
def stands(plan, look, count, drawn):
    """What is asked for with these votes, and what they prove."""
    state = plan.init(NOISE, 0)._replace(look=look, count=count, drawn=drawn)
    if look == 1 and state.pilot:
        state = state._replace(pilot_count=count, count=0, drawn=0)
    return int(plan.request(state)), float(plan.prove(state).lower)


@cache
def shares(samples, p):
    return binom.pmf(np.arange(samples + 1), samples, p).tolist()


def enumerated(plan, p, limit):
    """Every path of counts on its own: the probability to fail, and the expected samples."""
    failed = 0.0
    start = plan.init(NOISE, 0)
    first = int(plan.request(start))
    samples = float(first)
    # look, count, drawn -> probability
    paths = {(1, count, first): share for count, share in enumerate(shares(first, p))}
    while paths:
        following = defaultdict(float)
        for (look, count, drawn), probability in paths.items():
            more, lower = stands(plan, look, count, drawn)
            if not more:
                failed += probability if lower > limit else 0
                continue
            samples += probability * more
            before = (0, 0) if look == 1 and start.pilot else (count, drawn)
            for votes, share in enumerate(shares(more, p)):
                if probability * share:
                    key = (look + 1, before[0] + votes, before[1] + more)
                    following[key] += probability * share
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
    found = StoppingDistribution(plan, NOISE).at(p, limit=np.inf)
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
    found = StoppingDistribution(plan, NOISE).at(p, limit=limit)
    failed, samples = enumerated(plan, p, limit)
    assert found.failed == pytest.approx(failed, abs=1e-9)
    assert found.samples == pytest.approx(samples, rel=1e-9)
    assert failed > 0 or limit > 0.6


def test_only_plans_whose_counts_tell_everything_are_enumerated():
    assert is_countable(Steps(), NOISE)
    assert is_countable(Fixed(100, pilot=20), NOISE)
    assert not is_countable(Fixed(100, pilot=20, pilot_use="reuse"), NOISE)
    assert not is_countable(Fixed(100, pilot=20, bound="runner-up"), NOISE)

    class OwnUpdate(Steps):
        def update(self, state, votes):
            return super().update(state, votes)

    assert not is_countable(OwnUpdate(), NOISE)


def test_tails_that_are_cut_off_do_not_show():
    plan = InputSpecific(100_000, pilot=1_000, kind="relative", decline=0.01)
    for p in (0.5, 0.9, 0.9999):
        closed = float(failure_probability(plan, NOISE, p)[0])
        assert failure(plan, p) == pytest.approx(closed, rel=1e-8)


def test_a_plan_without_a_proof_has_its_coverage_and_its_cost_from_the_states():
    plan = Steps()
    found = exact_coverage(plan, NOISE)
    assert found.worst_failure == pytest.approx(
        max(enumerated(plan, p, p)[0] for p in (0.5, found.worst_p)), abs=1e-9
    )
    assert found.tie_failure == pytest.approx(enumerated(plan, 0.5, 0.5)[0], abs=1e-9)
    assert found.exact
    assert found.searched
    assert found.valid == (found.worst_failure <= plan.alpha)
    p = [0.3, 0.5, 0.7]
    seen = expected(plan, NOISE, p)
    assert seen.average
    assert seen.samples == pytest.approx([enumerated(plan, q, np.inf)[1] for q in p], rel=1e-9)
    assert seen.proved["certified"] == pytest.approx(
        [enumerated(plan, q, 0.5)[0] for q in p], abs=1e-9
    )


def test_a_rule_is_not_asked_about_counts_that_no_run_reaches():
    class Strict(Steps):
        def request(self, state):
            if state.look > 1 and np.any(np.asarray(state.count) < 3):
                raise IndexError("no such row")
            return super().request(state)

    found = StoppingDistribution(Strict(), NOISE).at(1.0, limit=np.inf)
    assert found == StoppingDistribution(Steps(), NOISE).at(1.0, limit=np.inf)
    with pytest.raises(IndexError, match="no such row"):
        StoppingDistribution(Strict(), NOISE).at(0.5, limit=np.inf)


def test_answers_of_a_plan_are_kept(monkeypatch):
    asked = []

    class Counting(Steps):
        def prove(self, state):
            asked.extend((state.look, *pair) for pair in zip(state.drawn, state.count, strict=True))
            return super().prove(state)

    stopping = StoppingDistribution(Counting(alpha=0.9), NOISE)
    found = [stopping.at(p, limit=0.7) for p in (0.6, 0.65, 0.55, 0.6)]
    assert len(asked) == len(set(asked))
    monkeypatch.setattr(stopping_module, "_MOST_BLOCKS", 0)
    forgetful = StoppingDistribution(Steps(alpha=0.9), NOISE)
    assert found == [forgetful.at(p, limit=0.7) for p in (0.6, 0.65, 0.55, 0.6)]

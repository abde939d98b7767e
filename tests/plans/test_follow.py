import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
import pytest
from tests.refusals import refused

from smoothcert import (
    Certificate,
    Fixed,
    Gaussian,
    InputSpecific,
    Look,
    Plan,
    Proof,
    Tally,
    certify,
    exact_coverage,
)
from smoothcert.plans import Case
from smoothcert.plans.simulation import SimulatedVotes
from smoothcert.statistics.bounds import lower_bound
from smoothcert.tasks.replay import from_shares, simulate

NOISE = Gaussian(0.5)


def test_the_top_class_is_the_smallest_of_those_that_tie():
    assert Look(10, {7: 5, 3: 5}).top == 3
    assert Look(10, {1: 0}).top is None


def test_a_sample_without_a_finite_output_is_a_vote_for_no_class():
    look = Look(100, {0: 60, 1: 30})
    assert look.missing == 10
    assert look.top == 0


@pytest.mark.parametrize(
    ("samples", "votes"),
    [
        (10, {0: 11}),
        (10, {0: 6, 1: 5}),
        (10, {0: -1}),
        (10, {0: math.nan}),
        (10, {0: 0.5}),
        (-1, {}),
        (math.nan, {}),
    ],
)
def test_votes_are_counts_of_the_samples(samples, votes):
    with refused("more-votes-than-samples"):
        Look(samples, votes)


class Best(NamedTuple):
    """A tally, and the largest bound that a look has proved."""

    tally: Tally
    lower: float = 0.0


@dataclass(frozen=True)
class Doubling(Plan):
    """Looks at 50, 100 and 200 samples, each at a third of alpha; stops once half of the votes are beaten."""

    samples: int = 200
    pilot: int = 20
    alpha: float = 0.03
    known_labels: bool = False
    name: ClassVar[str] = "doubling"

    def init(self, noise, chosen=None):
        return Best(Tally.begin(self, noise, chosen))

    def update(self, state, votes):
        tally = state.tally.add(votes)
        bound = lower_bound(tally.count, np.maximum(tally.drawn, 1), alpha=self.alpha / 3)
        return Best(tally, np.maximum(state.lower, bound)[()])

    def request(self, state):
        if state.tally.look == 0 and self.pilot:
            return self.pilot
        reached = np.asarray(state.tally.drawn)
        after = np.where(reached < 50, 50, 2 * reached)
        stop = (np.asarray(state.lower) > 0.5) | (reached >= 200)
        return np.where(stop, 0, np.minimum(after, 200) - reached)[()]

    def prove(self, state):
        return Proof.from_bounds(state.tally, state.lower)

    def __str__(self):
        return f"doubling {self.samples}"


def test_a_plan_of_many_looks_draws_until_it_wants_no_more():
    plan = Doubling()
    looks = []
    asked = []
    while more := Case(plan, NOISE, looks=looks).more:
        asked.append(more)
        looks.append(Look(more, {1: round(0.6 * more)}))
    assert asked == [20, 50, 50, 100]
    proof = Case(plan, NOISE, looks=looks).proof()
    assert (proof.count, proof.counted) == (120, 200)


def test_what_an_earlier_look_proved_is_not_lost():
    plan = Doubling(known_labels=True, pilot=0)
    good, bad = Look(50, {4: 33}), Look(50, {4: 10})
    early = Case(plan, NOISE, 4, [good]).proof().lower
    assert 0 < early < 0.5
    assert Case(plan, NOISE, 4, [good, bad]).proof().lower == early
    assert Case(plan, NOISE, 4, [bad, good]).proof().lower < early


def test_a_case_that_is_told_look_after_look_knows_what_the_whole_list_says():
    plan = Doubling()
    looks = [
        Look(20, {1: 12, 0: 8}),
        Look(50, {1: 30, 0: 20}),
        Look(50, {1: 30}),
        Look(100, {1: 70}),
    ]
    case = Case(plan, NOISE)
    for number in range(len(looks)):
        assert case.more == Case(plan, NOISE, looks=looks[:number]).more == looks[number].samples
        case.add(looks[number])
        assert case.proof() == Case(plan, NOISE, looks=looks[: number + 1]).proof()
    assert case.more == Case(plan, NOISE, looks=looks).more == 0


def test_a_pilot_that_does_not_count_proves_nothing_however_unanimous():
    proof = Case(replace(Doubling(), pilot=100), NOISE, looks=[Look(100, {1: 100})]).proof()
    assert (proof.prediction, proof.lower, proof.count, proof.counted) == (1, 0, 0, 0)


# --- labels that are known


@pytest.mark.parametrize(
    "plan", [Fixed(1_000, known_labels=True), Doubling(known_labels=True, pilot=0)], ids=str
)
def test_with_known_labels_the_class_is_the_label_and_no_pilot_chooses(plan):
    first = Case(plan, NOISE, 7).more
    assert (plan.pilot, first) == (0, 1_000 if isinstance(plan, Fixed) else 50)
    looks = [Look(first, {7: 20, 1: first - 20})]  # another class has the majority
    proof = Case(plan, NOISE, 7, looks).proof()
    assert (proof.prediction, proof.count, proof.counted) == (7, 20, first)
    assert Certificate.from_votes(looks, plan=plan, noise=NOISE, label=7).abstained


def test_an_input_specific_plan_with_known_labels_plans_for_the_label():
    plan = InputSpecific(10_000, known_labels=True)
    pilot = Look(plan.pilot, {7: 90, 1: 10})
    assert Case(plan, NOISE, 7).more == plan.pilot == 100
    assert Case(plan, NOISE, 7, [pilot]).more == plan.after_pilot(90, NOISE)
    assert Case(plan, NOISE, 1, [pilot]).more == plan.after_pilot(10, NOISE) == 0
    assert Case(plan, NOISE, 1, [pilot]).proof().prediction == 1


def test_an_input_without_its_label_is_refused_where_labels_are_to_be_known():
    with refused("label-missing"):
        Case(Fixed(1_000, known_labels=True), NOISE)
    assert Case(Fixed(1_000), NOISE).more == 100  # elsewhere nobody asks


def test_a_known_label_without_any_vote_still_is_the_class():
    proof = Case(Fixed(1_000, known_labels=True), NOISE, 2, [Look(1_000, {})]).proof()
    assert (proof.prediction, proof.lower, proof.counted) == (2, 0, 1_000)


# --- plans that do not follow the rules


@dataclass(frozen=True)
class Endless(Plan):
    """Asks for one more sample for ever."""

    samples: int = 10**9
    alpha: float = 0.001
    pilot: int = 5
    known_labels: bool = False
    name: ClassVar[str] = "endless"
    most_looks: ClassVar[int] = 30

    def __str__(self):
        return "endless"

    def request(self, state):
        return self.pilot if state.look == 0 else 1

    def prove(self, state):
        return Proof.from_bounds(state, 0.0)


def follow_one(plan):
    case = Case(plan, NOISE)
    while case.more:
        case.add(Look(case.more, {0: case.more}))
    return case.proof()


def replay_some(plan):
    return simulate(from_shares([0.6, 0.9], [True, True]), plan, noise=NOISE, repetitions=2)


def certify_some(plan):
    return certify(
        lambda x: (x[:, 0] > 0).long(),
        np.array([[0.1], [0.9]]),
        noise=NOISE,
        plan=plan,
        classes=2,
        batch=20,
    )


FOLLOWED = [follow_one, replay_some, partial(exact_coverage, noise=NOISE), certify_some]


@pytest.mark.parametrize("use", FOLLOWED)
def test_a_plan_that_never_stops_is_refused_wherever_it_is_followed(use):
    with refused("too-many-looks", most=30):
        use(Endless())


@pytest.mark.parametrize("use", FOLLOWED)
def test_a_request_beyond_the_most_samples_is_refused_wherever_a_plan_is_followed(use):
    with refused("too-many-samples", plan="Endless", samples=16, most=15):
        use(Endless(samples=10))


class Mistaken(Endless):
    def request(self, state):
        return 5 if state.look == 0 else 1.5


class TooSure(Endless):
    def request(self, state):
        return 5 if state.look == 0 else 0

    def prove(self, state):
        nothing = np.full(np.shape(state.count), np.nan)[()]
        return Proof(state.chosen, nothing, lower=1.5 + 0 * state.count)


class Negative(TooSure):
    def prove(self, state):
        return Proof(state.chosen, np.full(np.shape(state.count), -1.0)[()])


class Forgetful(TooSure):
    def prove(self, state):
        Proof(state.chosen)


@pytest.mark.parametrize("use", FOLLOWED)
@pytest.mark.parametrize(
    ("plan", "code"),
    [
        (Mistaken(), "request-not-whole"),
        (TooSure(), "bound-not-a-probability"),
        (Negative(), "negative-radius"),
        (Forgetful(), "not-a-proof"),
    ],
)
def test_requests_and_proofs_are_checked_wherever_a_plan_is_followed(use, plan, code):
    with refused(code, plan=type(plan).__name__):
        use(plan)


# --- votes that a simulation draws


def test_votes_of_a_simulation_are_the_same_however_they_are_asked_for():
    p = np.array([0.5, 0.3, 0.1])
    samples = np.full(4_000, 30)
    first = np.zeros(4_000, int)
    votes = SimulatedVotes(np.random.default_rng(0), samples, p, first)
    count = votes.of(first)
    assert np.array_equal(votes.votes[:, 0], count)
    assert np.array_equal(votes.of(first), count)
    assert votes.votes.mean(axis=0) == pytest.approx(30 * p, abs=0.2)
    rest = 30 - votes.votes.sum(axis=1)
    assert rest.mean() == pytest.approx(3, abs=0.2)
    assert np.corrcoef(votes.votes[:, 1], rest)[0, 1] < 0

"""A plan with a state of its own: bets against a majority, whose stakes depend on the votes of every earlier look."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from scipy.special import ndtri

import smoothcert as sc
from smoothcert.plans import Case
from smoothcert.plans.expected import expected
from smoothcert.statistics.bounds import lower_bound
from smoothcert.tasks.audit import audit
from smoothcert.tasks.replay import from_shares, simulate

NOISE = sc.Gaussian(0.5)


class Wealth(NamedTuple):
    """The logarithm of the wealth, and the votes for the class and in all that the next stake rests on."""

    tally: sc.Tally
    log: Any = 0.0
    seen: Any = 0
    cast: Any = 0


@dataclass(frozen=True)
class Bets(sc.Plan):
    """Bets on the class in every look, with a stake that the looks before it teach. A rich player proves a majority."""

    samples: int = 1_000
    alpha: float = 0.01
    pilot: int = 20
    known_labels: bool = False
    limit: float = 1.0  # of the wealth at which the majority is proved, as a share of 1 / alpha
    name: ClassVar[str] = "bets"

    def __str__(self):
        return f"bets {self.samples:,}"

    def init(self, noise, chosen=None):
        return Wealth(sc.Tally.begin(self, noise, chosen))

    def update(self, state, votes):
        tally = state.tally.add(votes)
        mine = votes.of(tally.chosen)
        stake = np.clip(2 * (state.seen + 0.5) / (state.cast + 1) - 1, 0, 0.9)
        gain = mine * np.log1p(stake) + (votes.samples - mine) * np.log1p(-stake)
        return Wealth(tally, state.log + gain, state.seen + mine, state.cast + votes.samples)

    def rich(self, state):
        return np.asarray(state.log) >= np.log(self.limit / self.alpha)

    def request(self, state):
        look = state.tally.look
        if look == 0 and self.pilot:
            return self.pilot
        return np.where(self.rich(state) | (look > self.samples // 50), 0, 50)[()]

    def prove(self, state):
        tally = state.tally
        radius = np.where(self.rich(state), 0.0, np.nan)[()]
        return sc.Proof(tally.chosen, radius, count=tally.count, counted=tally.drawn)


def right_of_zero(x):
    return (x[:, 0] > 0).long()


def certify(out, plan, shares, **settings):
    data = [([0.5 * float(ndtri(p)), 0.0], 1) for p in shares]
    return sc.certify(
        right_of_zero, data, noise=NOISE, plan=plan, classes=2, out=out, device="cpu", **settings
    )


pytestmark = pytest.mark.filterwarnings("ignore:input 0 of list")
SHARES = np.linspace(0.35, 0.95, 25)


@pytest.mark.parametrize("plan", [Bets(), Bets(known_labels=True)], ids=["pilot", "labels"])
def test_it_is_certified_audited_and_resumed(plan, tmp_path):
    run = certify(tmp_path / "whole", plan, SHARES)
    assert 0 < run.abstained.sum() < len(SHARES)
    assert len(set(run.samples.tolist())) > 2
    assert audit(run.path, model=right_of_zero, data=None, redraw=0).findings == ()
    certify(tmp_path / "resumed", plan, SHARES, limit=10)
    resumed = certify(tmp_path / "resumed", plan, SHARES)
    assert [c.looks for c in resumed] == [c.looks for c in run]
    assert [c.proof for c in resumed] == [c.proof for c in run]


def test_the_same_looks_give_the_same_proof_and_their_order_matters():
    good, bad, pilot = sc.Look(50, {1: 32}), sc.Look(50, {1: 25}), sc.Look(20, {1: 14})
    orders = ([pilot, good, bad], [pilot, good, bad], [pilot, bad, good])
    one, again, turned = (Case(Bets(), NOISE, looks=looks) for looks in orders)
    assert one.state == again.state
    assert one.state.tally == turned.state.tally
    assert one.state.log != turned.state.log


def test_a_replay_simulates_it_as_its_certificates_are_made():
    p = np.full(300, 0.62)
    plan = Bets(known_labels=True)
    found = simulate(from_shares(p, np.ones(300, bool)), plan, noise=NOISE, repetitions=5).plan
    rng, made = np.random.default_rng(3), []
    for _ in range(1_000):
        case, looks = Case(plan, NOISE, 0), []
        while case.more:
            votes = int(rng.binomial(case.more, 0.62))
            looks.append(sc.Look(case.more, {0: votes, 1: case.more - votes}))
            case.add(looks[-1])
        made.append(sc.Certificate.from_votes(looks, plan=plan, noise=NOISE, label=0))
    assert found.samples == pytest.approx(np.mean([c.samples for c in made]), rel=0.05)
    assert expected(plan, NOISE, 0.62).samples == pytest.approx([found.samples], rel=0.05)


def test_its_failure_is_simulated_because_counts_do_not_tell_its_wealth():
    found = sc.exact_coverage(Bets(), NOISE)
    assert found.valid
    assert (found.searched, found.exact) == (True, False)
    assert (
        found.simulated.at_least
        < max(found.worst_failure, found.tie_failure)
        < found.simulated.at_most
        < 0.01
    )
    greedy = sc.exact_coverage(Bets(limit=0.05), NOISE)  # rich with a twentieth of what it takes
    assert not greedy.valid
    assert greedy.exceeds
    assert greedy.worst_failure > 0.02


@dataclass(frozen=True)
class Leader(Bets):
    """Claims a majority for a class with twice the votes of the strongest other one: wrong if there are several."""

    def update(self, state, votes):
        tally = state.tally.add(votes)
        by_class = votes.votes
        if isinstance(by_class, dict):
            by_class = np.array([by_class.get(c, 0) for c in range(4)])
        own, others = votes.of(tally.chosen), np.array(by_class)
        np.put_along_axis(others, np.asarray(tally.chosen)[..., None], 0, axis=-1)
        return Wealth(tally, np.where(own > 2 * others.max(axis=-1), 1e9, 0.0))


def test_a_plan_that_fails_only_against_several_rivals_is_found_out():
    found = sc.exact_coverage(Leader(), NOISE)
    assert found.exceeds
    assert found.simulated.rivals == 3


def test_an_input_that_has_enough_keeps_its_state_while_others_go_on():
    """With states that went on, the radius at the end would be another one."""

    class LastWord(Bets):
        def update(self, state, votes):
            state = super().update(state, votes)
            return state._replace(log=state.log - 1e9 * (np.asarray(votes.samples) == 0))

    p = np.linspace(0.5, 1, 40)
    kinds = (Bets(), LastWord())
    one, other = (
        simulate(from_shares(p, np.ones(40, bool)), plan, noise=NOISE, repetitions=2).plan
        for plan in kinds
    )
    assert one == other


class AllVotes(NamedTuple):
    tally: sc.Tally
    total: Any = 0


@dataclass(frozen=True)
class CountsThePilot(sc.Plan):
    """Its state counts the votes that chose the class, at a level that would be sound for a class fixed in advance."""

    samples: int = 20
    alpha: float = 0.05
    pilot: int = 400
    name: ClassVar[str] = "counts-the-pilot"

    def __str__(self):
        return "counts the pilot"

    def init(self, noise, chosen=None):
        return AllVotes(sc.Tally.begin(self, noise, chosen))

    def update(self, state, votes):
        tally = state.tally.add(votes)
        return AllVotes(tally, state.total + votes.of(tally.chosen))

    def request(self, state):
        return [self.pilot, self.samples, 0][state.tally.look]

    def prove(self, state):
        lower = lower_bound(state.total, 420, alpha=0.6 * self.alpha)
        return sc.Proof.from_bounds(state.tally, lower)


def test_coverage_notices_a_state_that_counts_the_votes_which_chose_the_class():
    found = sc.exact_coverage(CountsThePilot(), NOISE)
    assert found.exceeds
    assert found.tie_failure > 0.05

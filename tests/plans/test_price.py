"""A price for samples: the value of a draw is weighed against its cost, and the certificate stays exact."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import beta
from tests.refusals import refused

from smoothcert import Gaussian, InputSpecific, Look, Price, exact_coverage
from smoothcert.plans import Case
from smoothcert.plans.expected import expected, expected_samples
from smoothcert.plans.simulation import simulate as follow_simulated
from smoothcert.plans.simulation import simulated_stops
from smoothcert.statistics.empirical_bayes import P, distribution
from smoothcert.tasks.replay import from_shares, simulate

NOISE = Gaussian(0.5)


@pytest.mark.parametrize("price", [1e-4, 1e-5, 1e-6])
def test_it_goes_on_as_long_as_more_samples_are_worth_their_price(price):
    """Beside exact bounds and the whole posterior, the limits on misses are right within a tenth, or two misses."""
    plan = Price(20_000, price=price)

    def radius(votes, n):
        return np.maximum(0.5 * ndtri(beta.ppf(0.001, votes, n - votes + 1)), 0)

    def gain(n, misses, later):
        """What the best later look adds, less its cost."""
        votes = n - misses
        p = beta.ppf((np.arange(200) + 0.5) / 200, votes + 0.5, misses + 0.5)
        right = np.maximum(2 * p - 1, 0)
        worth = [np.mean(right * radius(votes + p * (k - n), k)) - price * (k - n) for k in later]
        return max(worth) - right.mean() * radius(votes, n)

    for look, limit in enumerate(plan.limits(NOISE)[:-1]):
        n, later = plan.looks[look], np.array(plan.looks[look + 1 :])
        around = max(2, round(0.1 * limit))
        if limit > around:
            assert gain(n, limit - around, later) > -0.1 * price * n
        assert gain(n, limit + around, later) < 0.1 * price * n


def test_a_lower_price_never_stops_earlier():
    limits = [Price(price=price).limits(NOISE) for price in (1e-3, 1e-4, 1e-5, 1e-6, 1e-9)]
    assert all(np.all(a <= b) for a, b in pairwise(limits))
    assert not Price(price=1e3).limits(NOISE).any()


def test_a_lower_price_never_costs_less_whatever_p_is():
    """All prices are tried on the same simulated votes, so a budget can search for one."""
    costs = [
        expected_samples(Price(20_000, price=price), P, NOISE)
        for price in (1e-3, 1e-4, 1e-5, 1e-6, 1e-9)
    ]
    assert all(np.all(a <= b) for a, b in pairwise(costs))


@dataclass(frozen=True, kw_only=True)
class WithLimits(Price):
    """The same plan with limits that anybody may choose."""

    own: tuple[int, ...]

    def limits(self, noise):
        return np.array([*self.own, 0])


@pytest.mark.parametrize("seed", range(12))
def test_whatever_the_limits_are_the_certificate_is_wrong_at_most_alpha_often(seed):
    """By exact enumeration: stopping on bad news alone costs nothing."""
    rng = np.random.default_rng(seed)
    looks = Price(150, price=0).looks
    own = tuple(int(rng.integers(0, 1 + rng.choice([0.2, 0.5, 1.0]) * n)) for n in looks[:-1])
    found = exact_coverage(WithLimits(150, price=0, pilot=20, alpha=0.05, own=own), NOISE)
    assert found.simulated is None
    assert found.worst_failure <= 0.05


@dataclass(frozen=True, kw_only=True)
class OnGoodNews(WithLimits):
    """The opposite: it goes on where there are many misses, and stops where there are few."""

    def request(self, state):
        if state.look < 2:
            return super().request(state)
        return super().request(state._replace(count=state.drawn - state.count))


def test_stopping_on_good_news_would_be_noticed():
    plan = OnGoodNews(150, price=0, pilot=20, alpha=0.05, own=(29, 43, 64, 94))
    assert exact_coverage(plan, NOISE).worst_failure > 0.06


def test_coverage_names_the_theorem():
    found = exact_coverage(Price(price=1e-6), NOISE)
    assert found.proved
    assert found.theorem == "stopping on bad news alone"


@pytest.mark.parametrize(
    "p", [(0.5, 0.5), (0.4, 0.4, 0.2), (0.34, 0.33, 0.33), (0.3, 0.25, 0.25, 0.1, 0.1), (0.7, 0.3)]
)
def test_with_the_runner_up_certificates_are_wrong_at_most_alpha_often(p):
    plan = Price(2_000, price=1e-4, alpha=0.05, bound="runner-up")
    shares, repetitions = np.array(p), 4_000
    end = follow_simulated(plan, NOISE, shares, (repetitions,), np.random.default_rng(0))
    proof = plan.prove(end.state)
    radius = np.nan_to_num(proof.radius, nan=-1)
    others = np.array([np.delete(shares, c).max() for c in range(len(p))])
    true = 0.25 * (ndtri(shares) - ndtri(others))  # negative for a class that does not win
    wrong = (radius >= 0) & (radius > true[proof.prediction])
    assert wrong.mean() <= 0.05
    if p[0] >= 0.7:
        assert np.median(radius) > 0.5 * true[0]


def test_with_known_labels_every_sample_counts():
    plan = Price(price=1e-5, known_labels=True)
    assert plan.pilot == 0
    case = Case(plan, NOISE, label=3)
    assert case.more == 30
    assert case.add(Look(30, {3: 30})) == 15
    assert Case(plan, NOISE, label=3, looks=[Look(30, {5: 30})]).proof().counted == 30
    with refused("needless-pilot", plan="price"):
        Price(price=1e-5, known_labels=True, pilot=50)


def test_the_map_tells_the_expected_samples_and_radii():
    plan, p = Price(10_000, price=1e-5), np.array([0.4, 0.6, 0.9, 0.999])
    found = expected(plan, NOISE, p)
    seen = simulated_stops(plan, NOISE, p, repetitions=4_000, rng=np.random.default_rng(0))
    assert found.average
    assert found.samples == pytest.approx(seen.samples.mean(axis=1), rel=0.05)
    assert found.samples == pytest.approx(expected_samples(plan, p, NOISE), rel=0.1)
    radius = np.maximum(NOISE.radius(np.maximum(seen.proof.lower, 0.5)), 0).mean(axis=1)
    assert found.proved["radius"] == pytest.approx(radius, abs=0.02)


def test_few_votes_tell_what_a_plan_costs_on_the_whole_population():
    rng = np.random.default_rng(0)
    p = np.concatenate([rng.uniform(0.3, 1, 2_000), np.ones(500), 1 - rng.exponential(0.01, 1_500)])
    weights = distribution(Counter((int(votes), 100) for votes in rng.binomial(100, p)))
    plan = InputSpecific(100_000, decline=0.05)
    assert weights @ expected_samples(plan, P, NOISE) == pytest.approx(
        expected_samples(plan, p, NOISE).mean(), rel=0.1
    )


def test_on_a_population_it_needs_fewer_samples_than_input_specific_sampling_for_the_same_acr():
    p = np.concatenate([np.linspace(0.3, 1, 300), np.ones(50), 1 - np.geomspace(1e-5, 0.1, 150)])
    population = from_shares(p, np.ones(len(p), bool))
    reference = simulate(population, InputSpecific(decline=0.1), noise=NOISE).plan
    priced = simulate(population, Price(price=4e-6), noise=NOISE).plan
    assert priced.acr >= reference.acr
    assert (
        priced.mad is not None
    )  # its samples count from the pilot on, as those of fixed sampling do
    assert priced.samples < 0.75 * reference.samples


def test_a_pilot_that_counts_is_refused():
    with refused("price-needs-fresh"):
        Price(price=1e-6, pilot_use="reuse")

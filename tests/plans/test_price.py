"""A price for samples: the value of a draw is weighed against its cost, and the certificate stays exact."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom

from smoothcert import Gaussian, InputSpecific, InvalidInput, Price, exact_coverage
from smoothcert.plans.endings import simulated_endings
from smoothcert.plans.outlook import expected_samples, outlook
from smoothcert.statistics.population import P, distribution
from smoothcert.tasks.replay import from_shares, simulate

NOISE = Gaussian(0.5)


@pytest.mark.parametrize("count", [60, 75, 95, 99, 100])
def test_no_other_sample_size_is_worth_more(count):
    price = 1e-5
    [n] = Price(20_000, price=price, pilot=100).after_pilot([count], NOISE)
    p = ndtr(np.linspace(-2, 5, 701))  # a finer grid than that of the plan
    given = binom.pmf(count, 100, p) / binom.pmf(count, 100, p).sum()

    def worth(k):
        return given @ np.maximum(0.5 * ndtri(beta.ppf(0.001, p * k, k - p * k + 1)), 0) - price * k

    best = max(0.0, *(worth(k) for k in np.geomspace(10, 20_000, 300)))
    assert (worth(n) if n else 0.0) == pytest.approx(best, abs=2e-3)


def test_a_lower_price_never_buys_fewer_samples():
    counts = np.arange(201)
    sizes = [Price(price=price).after_pilot(counts, NOISE) for price in (1e-3, 1e-4, 1e-5, 1e-6, 1e-9)]
    assert all(np.all(a <= b) for a, b in pairwise(sizes))
    assert sizes[-1].max() == 100_000
    assert not Price(price=1e3).after_pilot(counts, NOISE).any()


def test_the_failure_probability_is_exact_and_at_most_alpha():
    found = exact_coverage(Price(price=1e-6), NOISE)
    assert found.exact
    assert 0.99 * 0.001 < found.worst_failure <= 0.001


def test_the_map_tells_the_expected_samples_and_radii():
    plan, p = Price(10_000, price=1e-5), np.array([0.4, 0.6, 0.9, 0.999])
    found = outlook(plan, NOISE, p)
    seen = simulated_endings(plan, NOISE, p, repetitions=4_000, rng=np.random.default_rng(0))
    assert found.expected
    assert found.samples == pytest.approx(seen.samples.mean(axis=1), rel=0.02)
    radius = np.maximum(NOISE.radius(np.maximum(seen.needed, 0.5)), 0).mean(axis=1)
    assert found.proved["radius"] == pytest.approx(radius, abs=0.01)


def test_few_votes_tell_what_a_plan_costs_on_the_whole_population():
    rng = np.random.default_rng(0)
    p = np.concatenate([rng.uniform(0.3, 1, 2_000), np.ones(500), 1 - rng.exponential(0.01, 1_500)])
    weights = distribution(Counter((int(votes), 100) for votes in rng.binomial(100, p)))
    plan = InputSpecific(100_000, decline=0.05)
    assert weights @ expected_samples(plan, P, NOISE) == pytest.approx(expected_samples(plan, p, NOISE).mean(), rel=0.1)


def test_on_a_population_it_needs_fewer_samples_than_input_specific_sampling_for_the_same_acr():
    p = np.concatenate([np.linspace(0.3, 1, 300), np.ones(50), 1 - np.geomspace(1e-5, 0.1, 150)])
    population = from_shares(p, np.ones(len(p), bool))
    reference = simulate(population, InputSpecific(decline=0.1), noise=NOISE).plan
    priced = simulate(population, Price(price=5e-6), noise=NOISE).plan
    assert priced.acr >= reference.acr
    assert priced.samples < 0.8 * reference.samples


def test_a_pilot_that_counts_is_refused():
    with pytest.raises(InvalidInput, match="needs fresh samples"):
        Price(price=1e-6, pilot_use="reuse")

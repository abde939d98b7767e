import itertools

import numpy as np
import pytest
from scipy.stats import binomtest, multinomial

from smoothcert.noises import Gaussian
from smoothcert.statistics.bounds import critical_count
from smoothcert.statistics.comparison import (
    anytime_interval,
    bounded_mean_interval,
    curve_band,
    detectable,
    differ,
    difference_interval,
    log_wealth,
    mcnemar,
    mean_interval,
    power,
)


def test_the_test_is_the_exact_binomial_test():
    for a, b in itertools.product(range(8), range(8)):
        expected = binomtest(b, a + b, 0.5).pvalue if a + b else 1.0
        assert mcnemar(a, b) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("inputs", [8, 25])
def test_the_interval_covers_the_true_difference_in_all_possible_cases_together(inputs):
    cases = [(a, b) for a in range(inputs + 1) for b in range(inputs + 1 - a)]
    intervals = np.array([difference_interval(a, b, inputs, alpha=0.05) for a, b in cases])
    outcomes = np.array([(a, b, inputs - a - b) for a, b in cases])
    for differing, share in itertools.product([0.05, 0.2, 0.5, 0.9], np.linspace(0, 1, 11)):
        p = [differing * (1 - share), differing * share, 1 - differing]
        delta = p[1] - p[0]
        covered = (intervals[:, 0] <= delta + 1e-9) & (delta - 1e-9 <= intervals[:, 1])
        assert multinomial.pmf(outcomes, inputs, p)[covered].sum() >= 0.95, (differing, delta)


def test_the_interval_excludes_zero_exactly_if_the_test_rejects():
    for a, b in itertools.product(range(20), range(20)):
        low, high = difference_interval(a, b, 300, alpha=0.05)
        assert (low > 0 or high < 0) == (mcnemar(a, b) <= 0.05), (a, b)
        assert low <= (b - a) / 300 <= high


def test_a_model_against_itself_seldom_differs():
    """Two runs with other noise on the same inputs, which are new in each of 1,000 repetitions."""
    rng = np.random.default_rng(0)
    needed = int(critical_count(Gaussian(0.5).probability(0.25), 1_000, alpha=0.001))
    claimed = 0
    for _ in range(1_000):
        p = rng.normal(0.75, 0.08, 500).clip(
            0, 1
        )  # many inputs are close to the radius, so many pairs differ
        a, b = rng.binomial(1_000, p) >= needed, rng.binomial(1_000, p) >= needed
        claimed += mcnemar(int(np.sum(a & ~b)), int(np.sum(b & ~a))) <= 0.05
    assert claimed <= 50 + 3 * np.sqrt(1_000 * 0.05 * 0.95)


@pytest.mark.parametrize(("margin", "differing"), [(0.01, 0.03), (0.01, 0.2), (0.0, 0.1)])
def test_bets_seldom_accept_a_model_that_is_worse_by_the_margin(margin, differing):
    """The true difference is -m. After each of 30 looks, we would stop and say "not worse by more than m"."""
    rng = np.random.default_rng(1)
    looks = np.unique(np.geomspace(20, 5_000, 30).astype(int))
    steps = np.diff(looks, prepend=0)
    p = [(differing + margin) / 2, (differing - margin) / 2, 1 - differing]
    pairs = np.cumsum(np.stack([rng.multinomial(step, p, 5_000) for step in steps]), axis=0)
    wealth = log_wealth(pairs, [0, 1, 0.5], (1 - margin) / 2)
    accepted = np.mean(np.any(wealth >= np.log(20), axis=0))
    assert accepted <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 5_000)


def test_the_wealth_is_that_of_the_bets_one_by_one():
    stakes = ((np.arange(64) + 0.5) / 64) ** 2
    wealth, delta = np.ones(64), -0.02
    for d in [1, 0, 0, -1, 1, 1, 0]:
        wealth *= 1 + stakes * (d - delta) / (1 + delta)
    assert log_wealth([1, 3, 3], [0, 0.5, 1], (1 + delta) / 2) == pytest.approx(
        np.log(wealth.mean())
    )


def test_an_interval_that_always_holds_is_wider():
    for a, b, n in [(0, 0, 50), (3, 9, 100), (40, 80, 1_000), (100, 0, 100)]:
        low, high = difference_interval(a, b, n, alpha=0.05)
        always_low, always_high = anytime_interval(a, b, n, alpha=0.05)
        assert -1 <= always_low <= low <= high <= always_high <= 1


@pytest.mark.parametrize(("inputs", "alpha"), [(5, 0.05), (8, 0.05), (8, 0.0125), (25, 0.05)])
def test_not_worse_by_a_margin_is_wrong_with_half_of_alpha_at_most(inputs, alpha):
    """All outcomes, at every margin where the claim of an outcome begins. Without a reserve it errs in up to 2.7%."""
    outcomes = np.array([(a, b) for a in range(inputs + 1) for b in range(inputs + 1 - a)])
    low = np.array([difference_interval(a, b, inputs, alpha=alpha).low for a, b in outcomes])
    outcomes = np.column_stack([outcomes, inputs - outcomes.sum(axis=1)])
    for margin in np.unique(-low[(low < 0) & (low > -1)]) + 1e-9:
        claimed = outcomes[low > -margin]
        for differing in np.linspace(margin, 1, 20):
            p = [(differing + margin) / 2, (differing - margin) / 2, 1 - differing]
            assert multinomial.pmf(claimed, inputs, p).sum() <= alpha / 2, (margin, differing)


@pytest.mark.parametrize("inputs", [50, 100, 500])
def test_rare_losses_are_covered(inputs):
    """B gains .01 everywhere and loses 1 on 1% of the inputs. Student's interval says that B is better in up to 60%."""
    rng = np.random.default_rng(5)
    lost = rng.random((1_000, inputs)) < 0.01
    gains = np.where(lost, 0.01 - 1, 0.01)
    a = np.where(lost, 1.5, 0.5)
    misses = claims = 0
    for gain, of_a in zip(gains, a, strict=True):
        low, high = bounded_mean_interval(gain, (-2, 2), alpha=0.05)
        misses += not low <= 0 <= high
        claims += differ(of_a, of_a + gain, alpha=0.05, largest=(2.0, 2.0))
    assert misses == claims
    assert misses <= 50


def test_the_interval_of_a_bounded_mean_shrinks_with_more_inputs():
    rng = np.random.default_rng(6)
    widths = [
        np.ptp(bounded_mean_interval(rng.normal(0.1, 0.2, n).clip(-2, 2), (-2, 2), alpha=0.05))
        for n in (100, 1_000, 10_000)
    ]
    assert widths[0] > 2 * widths[1] > 4 * widths[2]
    assert widths[2] < 2.2 * 2 * 1.96 * 0.2 / 100


def test_the_mean_of_few_differences_is_covered():
    """With a normal quantile, 5 inputs would be covered in 88% of all cases."""
    rng = np.random.default_rng(2)
    covered = [
        low <= 0 <= high
        for low, high in (mean_interval(rng.normal(size=5), alpha=0.05) for _ in range(4_000))
    ]
    assert np.mean(covered) == pytest.approx(0.95, abs=3 * np.sqrt(0.05 * 0.95 / 4_000))


def test_the_band_excludes_zero_for_one_in_twenty_pairs_of_equal_curves():
    rng = np.random.default_rng(3)
    radii, excluded = np.linspace(0, 2, 30), []
    for _ in range(300):
        a, b = rng.exponential(size=(2, 60, 1))
        d = (b > radii).astype(int) - (a > radii)
        excluded.append(np.abs(d.mean(axis=0)).max() > curve_band(d, alpha=0.05))
    assert np.mean(excluded) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)


@pytest.mark.parametrize(("difference", "differing"), [(0.03, 0.08), (0.05, 0.08), (0.05, 0.05)])
def test_power_is_how_often_a_difference_is_shown(difference, differing):
    rng = np.random.default_rng(4)
    p = [(differing - difference) / 2, (differing + difference) / 2, 1 - differing]
    shown = [mcnemar(int(a), int(b)) <= 0.05 for a, b, _ in rng.multinomial(500, p, 2_000)]
    assert power(difference, differing, 500, alpha=0.05) == pytest.approx(np.mean(shown), abs=0.035)


def test_the_detectable_difference_is_shown_in_four_cases_of_five():
    for differing, inputs in [(0.08, 500), (0.3, 100), (0.0, 500)]:
        found = detectable(differing, inputs, alpha=0.05)
        assert power(found, max(found, differing), inputs, alpha=0.05) == pytest.approx(
            0.8, abs=1e-3
        )
    assert detectable(0.5, 5, alpha=0.05) > 0.999  # five pairs never show a difference

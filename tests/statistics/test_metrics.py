import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import binom

from smoothcert.statistics import metrics

radii = st.lists(st.floats(0, 4), min_size=2, max_size=30)


@given(radii, st.data())
def test_certified_accuracy_never_increases_and_its_integral_is_the_acr(radius, data):
    correct = data.draw(st.lists(st.booleans(), min_size=len(radius), max_size=len(radius)))
    edges = np.unique(np.concatenate([[0.0], radius]))
    curve = metrics.certified_accuracy(radius, correct, edges)
    assert np.all(np.diff(curve) <= 0)
    area = float(np.sum(curve[:-1] * np.diff(edges)))  # CA is constant between the radii that occur
    assert area == pytest.approx(metrics.average_certified_radius(radius, correct), abs=1e-9)


def test_certified_accuracy_is_strict():
    assert metrics.certified_accuracy([0.5], [True], [0.5]).tolist() == [0.0]


@given(radii)
def test_bands_hold_their_estimate(radius):
    correct = [r > 1 for r in radius]
    low, high = metrics.certified_accuracy_band(radius, correct, [0.0, 1.5])
    share = metrics.certified_accuracy(radius, correct, [0.0, 1.5])
    assert np.all((low <= share) & (share <= high))
    band = metrics.acr_band(radius, correct)
    assert band.low <= metrics.average_certified_radius(radius, correct) + 1e-12 <= band.high + 1e-9


def test_the_acr_band_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(2_000):
        radius = rng.exponential(1.0, 100)
        correct = rng.random(100) < 0.7
        low, high = metrics.acr_band(radius, correct)
        covered.append(low <= 0.7 <= high)
    assert 0.92 < np.mean(covered) < 0.97


def test_the_acr_band_of_five_inputs_covers_the_truth_as_well():
    """A normal quantile would cover 88% of these."""
    radius = np.random.default_rng(0).normal(3.0, 0.5, (4_000, 5))
    bands = [metrics.acr_band(row, np.ones(5, bool)) for row in radius]
    assert 0.94 < np.mean([low <= 3.0 <= high for low, high in bands]) < 0.96


@given(st.floats(0, 1.7e308))
def test_default_radii_are_few_and_reach_the_largest(largest):
    radii = metrics.default_radii(largest)
    assert len(radii) <= 10
    assert radii[-1] <= largest <= max(radii[-1] * 2, 0.25)


def test_largest_decline_ignores_gains():
    assert metrics.largest_decline([1.0, 0.7], [0.9, 0.9]) == pytest.approx(0.2)
    assert metrics.largest_decline([1.0], [0.9]) == 0


@example(1e300, 6)
@given(st.floats(0, 10), st.integers(1, 8))
def test_round_down_never_rounds_up(value, digits):
    assert value - 10.0**-digits <= float(metrics.round_down(value, digits)) <= value


@pytest.mark.parametrize(
    ("inputs", "count"), [(1, 0), (9, 0), (10, 0), (11, 1), (500, 3), (10_000, 18)]
)
def test_so_many_certificates_are_wrong_at_most(inputs, count):
    most = metrics.most_wrong(0.001, inputs)
    assert most.wrong == count
    assert 0.99 <= float(most.probability) <= binom.cdf(count, inputs, 0.001) + 1e-12
    assert not count or binom.cdf(count - 1, inputs, 0.001) < 0.99

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.refusals import refused

from smoothcert.statistics import bounds
from smoothcert.statistics.bounds import (
    can_certify,
    critical_count,
    interval,
    keeps_bound,
    lower_bound,
    upper_bound,
)

mp.mp.dps = 40


def upper_tail(count: int, samples: int, p: float) -> mp.mpf:
    """P(at least `count` of `samples`), summed from `count` on: beyond the mean the terms fall geometrically."""
    a, k, p = mp.mpf(count), mp.mpf(samples), mp.mpf(p)
    choices = mp.loggamma(k + 1) - mp.loggamma(a + 1) - mp.loggamma(k - a + 1)
    term = mp.exp(choices + a * mp.log(p) + (k - a) * mp.log1p(-p))
    total = mp.mpf(0)
    while a <= k and term > total * mp.mpf("1e-35"):
        total += term
        term *= (k - a) / (a + 1) * p / (1 - p)
        a += 1
    return total


@st.composite
def votes(draw, most=100_000):
    """(count, samples), often with nearly all votes, as certificates have them."""
    samples = int(10 ** draw(st.floats(0, math.log10(most))))
    against = int(samples * 10 ** draw(st.floats(-5, 0)))
    return draw(st.sampled_from([samples - against, against])), samples


alphas = st.floats(-9, -0.1).map(lambda e: 10**e)


@settings(max_examples=150, deadline=None)
@given(votes(), alphas)
@example((9_999, 10_000), 0.001)
@example((1, 1), 0.5)
def test_bound_never_exceeds_the_exact_quantile(votes, alpha):
    count, samples = votes
    bound = lower_bound(count, samples, alpha=alpha)
    if count == 0:
        assert bound == 0
        return
    assert upper_tail(count, samples, bound) <= alpha
    above = bound * (1 + 1e-8)
    assert above >= 1 or upper_tail(count, samples, above) > alpha, "sound, but not tight"


@settings(max_examples=60, deadline=None)
@given(votes(), alphas)
def test_upper_bound_is_never_below_the_exact_quantile(votes, alpha):
    count, samples = votes
    bound = upper_bound(count, samples, alpha=alpha)
    if count == samples:
        assert bound == 1
        return
    against = 1 - mp.mpf(float(bound))
    assert bound <= 1
    if alpha < 0.5:  # at p = count / samples, half of all draws have at most `count` votes
        assert count / samples < bound
    assert against == 0 or upper_tail(samples - count, samples, against) <= alpha


@pytest.mark.parametrize("alpha", [0.05, 1e-3, 1e-40])
@pytest.mark.parametrize("samples", [10**7, 10**9])
@pytest.mark.parametrize("share", [0.5004, 0.999999, 1.0])
def test_bound_holds_for_millions_of_samples(samples, share, alpha):
    count = round(share * samples)
    assert upper_tail(count, samples, lower_bound(count, samples, alpha=alpha)) <= alpha


@given(st.integers(1, 10**6), alphas)
def test_unanimous_votes_prove_the_root_of_alpha(samples, alpha):
    bound = mp.mpf(float(lower_bound(samples, samples, alpha=alpha)))
    exact = mp.root(mp.mpf(alpha), samples)
    assert bound <= exact < bound * (1 + mp.mpf("1e-9"))


@given(votes(), alphas)
def test_bounds_grow_with_the_count(votes, alpha):
    count, samples = votes
    some = np.unique(np.clip([0, count - 1, count, count + 1, samples], 0, samples))
    assert np.all(np.diff(lower_bound(some, samples, alpha=alpha)) > 0)
    assert np.all(np.diff(upper_bound(some, samples, alpha=alpha)) >= 0)


@given(votes(), alphas)
def test_votes_against_lower_the_bound_and_more_votes_at_the_same_share_raise_it(votes, alpha):
    count, samples = votes
    bound = lower_bound(count, samples, alpha=alpha)
    assert lower_bound(count, samples + 1, alpha=alpha) <= bound
    if alpha < 0.2:
        assert bound <= lower_bound(2 * count, 2 * samples, alpha=alpha) <= count / samples


@given(votes(), alphas, st.floats(0, 1))
def test_real_counts_lie_between_their_neighbours(votes, alpha, part):
    count, samples = votes
    low = min(count, samples - 1)
    left, middle, right = lower_bound([low, low + part, low + 1], samples, alpha=alpha)
    assert left <= middle <= right


@given(votes(), alphas)
def test_interval_gives_half_of_alpha_to_each_side(votes, alpha):
    found = interval(*votes, alpha=alpha)
    assert found.low == lower_bound(*votes, alpha=alpha / 2)
    assert found.high == upper_bound(*votes, alpha=alpha / 2)


@given(votes(), alphas)
def test_a_bound_leads_back_to_its_count(votes, alpha):
    count, samples = votes
    assert critical_count(lower_bound(count, samples, alpha=alpha), samples, alpha=alpha) == count


def test_a_bound_beyond_reach_takes_more_votes_than_there_are():
    assert critical_count([0.999, 1.0], 100, alpha=0.001).tolist() == [101, 101]
    unanimous = lower_bound(100, 100, alpha=0.001)
    assert critical_count([unanimous, unanimous * (1 + 1e-8)], 100, alpha=0.001).tolist() == [
        100,
        101,
    ]


@settings(max_examples=60, deadline=None)
@given(votes(most=3_000), alphas, st.floats(0, 1))
def test_the_critical_count_is_the_first_that_reaches_the_bound(votes, alpha, bound):
    _, samples = votes
    reached = np.flatnonzero(keeps_bound(np.arange(samples + 1), samples, bound, alpha=alpha))
    expected = reached[0] if len(reached) else samples + 1
    assert critical_count(bound, samples, alpha=alpha) == expected


@given(votes(), alphas, st.floats(0, 1))
def test_a_bound_is_kept_exactly_up_to_its_value(votes, alpha, other):
    bound = lower_bound(*votes, alpha=alpha)
    if abs(other - bound) > 1e-8 * bound:
        assert keeps_bound(*votes, other, alpha=alpha) == (other < bound)


@pytest.mark.parametrize("broken", [np.nan, 1.0, 2.0])
def test_a_failed_inversion_still_gives_a_sound_bound(monkeypatch, broken):
    monkeypatch.setattr(bounds, "betaincinv", lambda a, b, y: np.full(np.shape(a), broken))
    for count in (1, 700, 1000):
        bound = lower_bound(count, 1000, alpha=0.001)
        assert 0 < bound < count / 1000
        assert upper_tail(count, 1000, bound) <= 0.001


def test_arrays_and_scalars_agree():
    many = lower_bound([[0, 5], [9, 10]], 10, alpha=0.01)
    assert many.shape == (2, 2)
    assert many[1, 0] == lower_bound(9, 10, alpha=0.01)
    assert isinstance(lower_bound(9, 10, alpha=0.01), float)


def test_nine_samples_never_certify_at_alpha_001_and_ten_do():
    assert [can_certify(n, alpha=0.001) for n in (9, 10)] == [False, True]


@pytest.mark.parametrize(
    ("count", "samples", "alpha", "code"),
    [
        (11, 10, 0.01, "count-out-of-range"),
        (-1, 10, 0.01, "count-out-of-range"),
        (math.nan, 10, 0.01, "count-out-of-range"),
        (0, 0, 0.01, "samples-out-of-range"),
        (0, math.nan, 0.01, "samples-out-of-range"),
        (5, 2e9, 0.01, "samples-out-of-range"),
        (5, 10, 0, "not-between"),
        (5, 10, 1, "not-between"),
        (5, 10, 1.5, "not-between"),
        (5, 10, math.nan, "not-between"),
        (5, 10, 1e-60, "not-between"),
        (5, 10, "much", "not-between"),
    ],
)
@pytest.mark.parametrize("function", [lower_bound, upper_bound, interval])
def test_bad_input_is_named(function, count, samples, alpha, code):
    with refused(code):
        function(count, samples, alpha=alpha)


@pytest.mark.parametrize("bound", [1.5, -0.1, math.nan])
def test_a_bound_must_be_a_probability(bound):
    with refused("not-probability", name="a bound"):
        critical_count(bound, 100, alpha=0.01)

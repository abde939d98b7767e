import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from smoothcert.statistics.bounds import pmf, summed_tail, tail


@pytest.mark.parametrize(
    ("count", "samples", "p"),
    [(520, 1000, 0.5), (300, 1000, 0.7), (480, 1000, 0.5), (1000, 1000, 0.99), (2990, 3000, 0.994)],
)
def test_the_tail_is_that_of_the_binomial_distribution(count, samples, p):
    win, whole = Fraction(p).as_integer_ratio()
    ways = sum(
        math.comb(samples, k) * win**k * (whole - win) ** (samples - k)
        for k in range(count, samples + 1)
    )
    exact = Fraction(ways, whole**samples)
    assert summed_tail(count, samples, p) == pytest.approx(float(exact), rel=1e-11)


@given(st.integers(1, 400), st.one_of(st.sampled_from([0.0, 1.0]), st.floats(1e-9, 1 - 1e-9)))
def test_the_shares_of_all_counts_are_those_of_scipy_and_sum_to_one(samples, p):
    counts = np.arange(samples + 1)
    shares = pmf(counts, samples, p)
    assert shares == pytest.approx(binom.pmf(counts, samples, p), rel=1e-9, abs=1e-300)
    assert shares.sum() == pytest.approx(1, abs=1e-10)


@given(st.integers(1, 400), st.integers(-3, 403), st.floats(1e-6, 1 - 1e-6))
def test_both_ways_to_the_tail_agree_and_what_lies_outside_is_certain_or_impossible(
    samples, count, p
):
    found = float(tail(count, samples, p))
    assert found == pytest.approx(summed_tail(count, samples, p), rel=1e-9, abs=1e-13)
    if count <= 0 or count > samples:
        assert found == (count <= 0)


@pytest.mark.parametrize(("p", "expected"), [(0.0, 0.0), (1.0, 1.0)])
def test_a_certain_or_impossible_vote_has_a_tail(p, expected):
    assert summed_tail(3, 10, p) == tail(3, 10, p) == expected

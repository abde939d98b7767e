from fractions import Fraction
from math import comb

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from smoothcert.statistics.group_sequential import (
    SPENDING,
    boundary,
    crossing_probability,
    crossing_probability_backward,
    default_looks,
    futility_counts,
)


@pytest.mark.parametrize(
    ("looks", "threshold", "first", "last", "spent"),
    [
        ([100, 1_000, 10_000], ndtr(1), [97, 882, 8529], [97, 882, 8529], 0.000938044201),
        (
            default_looks(10_000),
            ndtr(1),
            [60, 72, 86, 102, 121, 145, 173, 206, 245, 292],
            [6075, 7277, 8542],
            0.000998783086,
        ),
        (
            default_looks(10_000),
            0.5,
            [46, 53, 63, 75, 87, 102, 120, 141, 166, 195],
            [3697, 4419, 5178],
            0.000998560801,
        ),
    ],
)
def test_boundaries_are_those_of_two_independent_computations(looks, threshold, first, last, spent):
    found = boundary(float(threshold), looks, alpha=0.001)
    assert found.votes[: len(first)].tolist() == first
    assert found.votes[-len(last) :].tolist() == last
    assert found.spent == pytest.approx(spent, abs=1e-12)


def test_default_looks_start_at_sixty_and_grow_by_a_fifth():
    assert default_looks(100_000)[:5] == (60, 72, 87, 105, 126)
    assert (
        len(default_looks(10_000)),
        len(default_looks(100_000)),
        default_looks(100_000)[-1],
    ) == (29, 42, 100_000)
    assert default_looks(40) == (40,)


def exact_crossing(votes, looks, p: Fraction) -> Fraction:
    """The probability to reach the boundary, in rational numbers."""
    alive, before, crossed = {0: Fraction(1)}, 0, Fraction(0)
    for needed, n in zip(votes, looks, strict=True):
        step = n - before
        draws = [comb(step, k) * p**k * (1 - p) ** (step - k) for k in range(step + 1)]
        after: dict[int, Fraction] = {}
        for count, mass in alive.items():
            for k, q in enumerate(draws):
                after[count + k] = after.get(count + k, Fraction(0)) + mass * q
        crossed += sum(mass for count, mass in after.items() if count >= needed)
        alive, before = {count: mass for count, mass in after.items() if count < needed}, n
    return crossed


@given(
    first=st.integers(3, 12),
    steps=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    threshold=st.fractions(Fraction(1, 2), Fraction(19, 20), max_denominator=40),
    alpha=st.sampled_from([0.001, 0.02, 0.2]),
)
def test_what_is_spent_is_exact_and_never_above_alpha(first, steps, threshold, alpha):
    looks = np.cumsum([first, *steps]).tolist()
    votes, spent = boundary(float(threshold), looks, alpha=alpha)
    truth = exact_crossing(votes.tolist(), looks, Fraction(float(threshold)))
    assert float(truth) <= spent <= alpha
    assert spent == pytest.approx(float(truth), rel=1e-9, abs=1e-15)
    # The boundary is the smallest one: a vote less at any look would spend more than that look allows.
    for i, n in enumerate(looks):
        if votes[i] > 0:
            lower = [*votes[:i].tolist(), int(votes[i]) - 1]
            allowed = alpha * (n / looks[-1]) ** SPENDING
            assert float(
                exact_crossing(lower, looks[: i + 1], Fraction(float(threshold)))
            ) > allowed * (1 - 1e-9)


@pytest.mark.parametrize("looks", [[100_000], default_looks(100_000)])
def test_an_alpha_below_what_is_left_out_proves_nothing(looks):
    votes, spent = boundary(0.5, looks, alpha=1e-30)
    assert np.all(votes > looks)
    assert spent < 1e-17


@pytest.mark.parametrize("p", [0.5, 0.7, 0.95, 0.9999])
def test_two_recursions_in_opposite_directions_agree(p):
    looks = default_looks(20_000)
    votes = boundary(0.7, looks, alpha=0.01).votes
    forward, backward = (
        crossing_probability(votes, looks, p),
        crossing_probability_backward(votes, looks, p),
    )
    assert forward == pytest.approx(backward, rel=1e-9, abs=1e-15)


def test_the_chance_to_cross_grows_with_p():
    looks = default_looks(5_000)
    votes = boundary(0.8, looks, alpha=0.001).votes
    chances = [crossing_probability(votes, looks, p) for p in np.linspace(0.5, 0.9, 30)]
    assert np.all(np.diff(chances) >= -1e-9)


def test_hopeless_counts_grow_with_the_looks_and_leave_room_below_the_last_boundary():
    looks = default_looks(10_000)
    votes = boundary(0.8, looks, alpha=0.001).votes
    given_up = futility_counts(int(votes[-1]), looks)
    assert np.all(np.diff(given_up) >= 0)
    assert np.all(given_up < votes)
    assert given_up[-1] == votes[-1] - 1


@pytest.mark.parametrize("samples", [1_000, 20_000, 1_000_000])
@pytest.mark.parametrize("threshold", [0.5, 0.6180339, 0.8413447, 0.99, 0.9987])
def test_rounding_of_binomial_probabilities_never_hides_what_is_spent(samples, threshold):
    """Their logarithms are as large as the sample size: at 1,000,000 samples they are off by 3e-9."""
    [needed], spent = boundary(threshold, [samples], alpha=0.001)
    with mpmath.workdps(40):
        p, k = mpmath.mpf(threshold), int(needed)
        term = mpmath.binomial(samples, k) * p**k * (1 - p) ** (samples - k)
        exact = mpmath.mpf(0)
        while k <= samples and term > 1e-20:
            exact += term
            term *= p / (1 - p) * (samples - k) / (k + 1)
            k += 1
        assert exact <= spent <= 0.001

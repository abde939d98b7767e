"""Top k beside the exact truth: classes are intervals of a line, whose shares after every shift are known."""

from functools import cache
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln, ndtr, ndtri, xlogy
from tests.refusals import refused

from smoothcert import Bands, Discrete, Fixed
from smoothcert.noises import Ablation, Brightness, Gaussian, Laplace, Splitting, Uniform
from smoothcert.plans.follow import told
from smoothcert.plans.votes import ManyVotes
from smoothcert.statistics.top_k import top_k_radius

ALPHA = 0.1
N = 40
NOISES = [Gaussian(0.5), Laplace(0.5), Uniform(1.0)]
noises = pytest.mark.parametrize("noise", NOISES, ids=str)


def cdf(noise, x):
    """The distribution of the noise in one coordinate."""
    if isinstance(noise, Gaussian):
        return ndtr(x / noise.sigma)
    if isinstance(noise, Laplace):
        tail = np.exp(-np.abs(x) / noise.scale) / 2
        return np.where(x > 0, 1 - tail, tail)
    return np.clip((1 + x / noise.scale) / 2, 0, 1)


def place(noise, share):
    """Where a share of the noise lies to the left."""
    if isinstance(noise, Gaussian):
        return noise.sigma * ndtri(share)
    if isinstance(noise, Laplace):
        return noise.scale * np.where(
            share > 0.5, -np.log(2 * (1 - np.minimum(share, 1 - 1e-12))), np.log(2 * share)
        )
    return noise.scale * (2 * share - 1)


def true_radius(noise, shares, order, k):
    """The smallest shift after which k others have at least the share of class 0; infinite if none does.

    Classes are intervals of a line in this order, from left to right.
    """
    ends = np.concatenate([[-np.inf], place(noise, np.cumsum(shares[list(order)])[:-1]), [np.inf]])
    shifts = np.linspace(0, 6, 3001)
    shifts = np.concatenate([shifts, -shifts])
    moved = np.diff(cdf(noise, ends[:, None] - shifts), axis=0)[np.argsort(order)]
    false = (moved[1:] >= moved[0] - 1e-12).sum(axis=0) >= k
    return np.abs(shifts[false]).min(initial=np.inf)


@cache
def outcomes(classes):
    """All votes of N samples."""
    bars = np.array(list(combinations(range(N + classes - 1), classes - 1)))
    ends = np.column_stack([np.full(len(bars), -1), bars, np.full(len(bars), N + classes - 1)])
    return np.diff(ends, axis=1) - 1


def radii(noise, classes, k):
    """What a plan with known labels proves for class 0, for all of its outcomes."""
    plan = Fixed(N, alpha=ALPHA, known_labels=True, top=k)
    votes = outcomes(classes)
    first = np.zeros(len(votes), np.int64)
    state = plan.init(noise, first)
    return plan.prove(told(plan, state, ManyVotes(first + N, votes))).radius


def failures(noise, classes, k, shares):
    """The probability to claim too much, for every order of the classes on the line."""
    shares = np.array(shares)
    votes = outcomes(classes)
    ways = gammaln(N + 1) - gammaln(votes + 1).sum(axis=1)
    chance = np.exp(ways + xlogy(votes, shares).sum(axis=1))
    proved = radii(noise, classes, k)
    return [
        chance[proved > true_radius(noise, shares, order, k) + 1e-9].sum()
        for order in permutations(range(classes))
    ]


SHARES = [
    (0.3, 0.35, 0.35),
    (0.33, 0.34, 0.33),
    (0.34, 0.33, 0.33),
    (0.45, 0.3, 0.25),
    (0.6, 0.25, 0.15),
    (0.85, 0.1, 0.05),
]


@noises
def test_a_false_place_among_the_top_k_has_at_most_alpha(noise):
    found = [failures(noise, 3, 2, shares) for shares in SHARES]
    found += [failures(noise, 4, k, (0.25, 0.27, 0.25, 0.23)) for k in (2, 3)]
    worst = [max(each) for each in found]
    assert max(worst) <= ALPHA
    assert min(max(worst[:2]), max(worst[2:6])) > 0.01  # the bound is not empty


def test_a_bound_for_half_of_the_change_would_claim_too_much():
    class HalfOfTheChange(Gaussian):
        def largest_probability(self, radius, q):
            return super().largest_probability(np.asarray(radius) / 2, q)

    shares = (0.6, 0.25, 0.15)
    assert max(failures(HalfOfTheChange(0.5), 3, 2, shares)) > ALPHA


@noises
@given(data=st.data())
@settings(max_examples=30)
def test_no_set_gets_more_than_its_largest_probability_and_a_half_line_gets_it(noise, data):
    unit = getattr(noise, "sigma", None) or noise.scale
    ends = np.sort(data.draw(st.lists(st.floats(-3, 3), min_size=4, max_size=4)))
    r = data.draw(st.floats(0, 2)) * unit

    def share(shift, low, high):
        return cdf(noise, high * unit - shift) - cdf(noise, low * unit - shift)

    now = share(0, *ends[:2]) + share(0, *ends[2:])
    for shift in (r, -r):
        after = share(shift, *ends[:2]) + share(shift, *ends[2:])
        assert after <= noise.largest_probability(r, now) + 1e-9
    half = cdf(noise, ends[0] * unit)
    shifted = cdf(noise, ends[0] * unit + r)
    if shifted < 1 and half > 0:
        assert shifted == pytest.approx(noise.largest_probability(r, half), rel=1e-9)


def test_the_largest_probability_under_ablation_is_that_of_all_sets_of_kept_pixels():
    noise = Ablation(2, size=5)
    kept = list(combinations(range(5), 2))
    rng = np.random.default_rng(0)
    for r in range(6):
        same = np.array([max(pixels) < 5 - r for pixels in kept])  # no changed pixel is kept
        for _ in range(50):
            before, after = rng.random((2, len(kept))) < rng.random()
            after = np.where(same, before, after)
            assert after.mean() <= noise.largest_probability(r, before.mean()) + 1e-12
        assert noise.largest_probability(r, 0.0) == pytest.approx(1 - same.mean())


def test_a_radius_under_ablation_is_a_whole_number():
    radius = top_k_radius(Ablation(45, size=784), np.array([0.999]), np.array([[0.001, 0.0005]]))
    assert radius == np.floor(radius)
    assert radius > Ablation(45, size=784).radius(0.999)


def test_a_radius_is_the_largest_that_is_proved_and_scales_with_the_noise():
    lower = np.array([0.9, 0.4, 0.2])
    rivals = np.array([[0.05, 0.02], [0.35, 0.2], [0.5, 0.3]])
    small, large = (top_k_radius(Gaussian(s), lower, rivals) for s in (0.01, 10.0))
    assert np.isnan(small[2])
    assert large[:2] == pytest.approx(1000 * small[:2], rel=1e-6)
    for radius, p, (first, second) in zip(small[:2], lower, rivals, strict=False):
        z = radius / 0.01
        left = ndtr(ndtri(p) - z)
        pair = min(first + second, 1 - p)
        margins = [left - ndtr(ndtri(second) + z), left - ndtr(ndtri(pair) + z) / 2]
        assert max(margins) == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("noise", [Discrete(0.8, size=9), Bands(4, size=28)], ids=str)
def test_a_noise_that_does_not_bound_sets_answers_no_question_about_the_top_k(noise):
    with refused("no-largest-probability", noise=noise):
        top_k_radius(noise, np.array([0.9]), np.array([[0.05, 0.02]]))


def test_brightness_and_splitting_bound_sets_like_their_families():
    assert Brightness(0.5).largest_probability(0.2, 0.3) == Gaussian(0.5).largest_probability(
        0.2, 0.3
    )
    assert Splitting(0.5).largest_probability(0.2, 0.3) == pytest.approx(0.5)

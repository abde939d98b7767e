import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refused

from smoothcert import Additive, Gaussian

sigmas = st.floats(0.01, 10)


@given(st.floats(1e-12, 1 - 1e-12), sigmas)
def test_radius_never_exceeds_the_exact_quantile(p, sigma):
    radius = mp.mpf(float(Gaussian(sigma).radius(p)))
    with mp.workdps(40):
        # Phi is increasing, so the radius is below sigma * Phi^-1(p) exactly if Phi(radius / sigma) is below p.
        assert mp.ncdf(radius / mp.mpf(sigma)) <= mp.mpf(p)
        assert radius == 0 or mp.ncdf(
            (radius + abs(radius) * mp.mpf("1e-14")) / mp.mpf(sigma)
        ) > mp.mpf(p)


@given(st.floats(0, 6), sigmas)
def test_probability_is_the_inverse_of_radius(z, sigma):
    noise = Gaussian(sigma)
    assert noise.radius(noise.probability(sigma * z)) == pytest.approx(
        sigma * z, rel=1e-6, abs=1e-12
    )


@given(st.lists(st.floats(0.001, 0.999), min_size=2), sigmas)
def test_radius_grows_with_p_and_with_sigma(p, sigma):
    p = np.unique(np.round(p, 6))
    assert np.all(np.diff(Gaussian(sigma).radius(p)) > 0)
    assert np.all(np.abs(Gaussian(2 * sigma).radius(p)) >= np.abs(Gaussian(sigma).radius(p)))


def test_the_ends_of_the_scale():
    assert Gaussian(0.5).radius([0.0, 0.5, 1.0]).tolist() == [-math.inf, 0, math.inf]


@pytest.mark.parametrize("sigma", [0, -1, math.nan, math.inf, "wide", None])
def test_sigma_must_be_positive(sigma):
    with refused("not-between", name="sigma", value=sigma, low=0):
        Gaussian(sigma)


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_p_must_be_a_probability(p):
    with refused("not-probability", name="p") as raised:
        Gaussian(0.5).radius(p)
    assert str(raised.value.fields["value"]) == str(p)


probabilities = st.floats(1e-9, 1 - 1e-9)


@given(probabilities, probabilities, sigmas)
def test_the_radius_between_two_probabilities_never_exceeds_the_exact_one(a, b, sigma):
    radius = mp.mpf(float(Gaussian(sigma).radius_between(a, b)))
    with mp.workdps(40):
        exact = (
            mp.mpf(sigma)
            / 2
            * mp.sqrt(2)
            * (mp.erfinv(2 * mp.mpf(a) - 1) - mp.erfinv(2 * mp.mpf(b) - 1))
        )
        assert radius <= exact
        assert exact - radius <= 1e-13 * sigma * 20


@given(st.floats(0.5, 1 - 1e-9), sigmas)
def test_between_a_class_and_all_others_together_lies_the_usual_radius(p, sigma):
    noise = Gaussian(sigma)
    assert noise.radius_between(p, 1 - p) == pytest.approx(noise.radius(p), rel=1e-6, abs=1e-12)


@given(probabilities, probabilities, probabilities, sigmas)
def test_the_radius_between_grows_with_the_class_and_falls_with_its_rival(a, b, other, sigma):
    noise = Gaussian(sigma)
    low, high = sorted((b, other))
    assert noise.radius_between(a, high) <= noise.radius_between(a, low)
    low, high = sorted((a, other))
    assert noise.radius_between(low, b) <= noise.radius_between(high, b)


def test_two_certain_or_two_impossible_classes_prove_nothing():
    noise = Gaussian(0.5)
    assert np.isnan(noise.radius_between([0.0, 1.0], [0.0, 1.0])).all()
    assert noise.radius_between([1.0, 0.5], [0.0, 0.5]).tolist() == [math.inf, 0]


def test_gaussian_noise_says_how_it_is_drawn():
    noise = Gaussian(0.5)
    assert (noise.draw, noise.deviation, noise.norm) == (Additive("normal", 0.5), 0.5, "l2")


@pytest.mark.parametrize("sigma", [True, np.True_])
def test_a_truth_value_is_no_sigma(sigma):
    with refused("not-between", name="sigma"):
        Gaussian(sigma)

"""The curve on which two classes may tie within a radius: what bets on the runner-up rest on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smoothcert.noises import (
    Blur,
    Brightness,
    Contrast,
    Gaussian,
    GridGaussian,
    Laplace,
    Splitting,
    Translation,
    Uniform,
)

NOISES = [
    Gaussian(0.5),
    GridGaussian(0.25, size=784),
    Brightness(0.1),
    Contrast(0.3),
    Blur(3.0),
    Translation(2.0),
    Uniform(1.0),
    Splitting(0.7),
    Laplace(0.5),
]
curves = pytest.mark.parametrize("noise", NOISES, ids=str)
scaled = st.floats(0.001, 3)  # a radius in units of the noise
rivals = st.floats(1e-6, 0.5)


def unit(noise):
    return getattr(noise, "sigma", None) or noise.scale


@curves
@given(r=scaled, b=rivals)
@settings(max_examples=60, deadline=None)
def test_the_radius_of_two_classes_is_where_they_lie_on_the_curve(noise, r, b):
    radius = r * unit(noise)
    a = float(noise.trade_off(radius, b)[0])
    if a + b < 1:
        assert noise.radius_between(a, b) == pytest.approx(radius, rel=1e-7)
        assert (
            noise.radius_between(min(1.001 * a, 1.0), b)
            > radius
            > noise.radius_between(0.999 * a, b)
        )


@curves
@given(r=scaled, b=rivals, c=st.floats(1e-6, 0.999), larger=st.floats(1, 2))
@settings(max_examples=60, deadline=None)
def test_a_curve_lies_below_each_of_its_tangents_and_grows_with_the_radius(noise, r, b, c, larger):
    h, slope = noise.trade_off(r * unit(noise), np.array([b, c]))
    assert h[1] <= h[0] + slope[0] * (c - b) + 1e-12
    assert np.all(h >= [b, c] - np.spacing(1.0))
    assert np.all(noise.trade_off(larger * r * unit(noise), np.array([b, c]))[0] >= h * (1 - 1e-12))


@curves
@given(r=scaled, b=st.floats(1e-3, 0.5))
@settings(max_examples=60, deadline=None)
def test_the_slope_is_the_derivative(noise, r, b):
    radius, step = r * unit(noise), 1e-6 * b
    (low, _, high), (before, slope, after) = noise.trade_off(
        radius, np.array([b - step, b, b + step])
    )
    assert (high - low) / (2 * step) == pytest.approx(
        slope, rel=1e-4, abs=1e-6 + abs(before - after)
    )


@curves
def test_at_radius_0_classes_tie_where_they_are_equally_likely(noise):
    b = np.array([1e-9, 0.1, 0.4, 0.9])
    h, slope = noise.trade_off(0.0, b)
    assert h == pytest.approx(b, rel=1e-12)
    assert slope == pytest.approx(np.ones(4), rel=1e-12)


def cells(scale, shift, edges):
    """The probabilities of the cells between edges under one Laplace number around a shift."""
    x = (np.concatenate([[-np.inf], edges, [np.inf]]) - shift) / scale
    return np.diff(np.where(x < 0, np.exp(np.minimum(x, 0)) / 2, 1 - np.exp(-np.maximum(x, 0)) / 2))


@pytest.mark.parametrize("shift", [(0.6, 0.0), (0.3, 0.3), (0.5, -0.1), (0.05, 0.55)])
def test_no_set_gains_more_by_an_l1_shift_of_laplace_noise_than_the_curve_says(shift):
    noise, edges = (
        Laplace(0.5),
        np.linspace(-3, 3.6, 265),
    )  # steps of 0.025, so that kinks lie on edges
    here = np.outer(cells(0.5, 0, edges), cells(0.5, 0, edges)).ravel()
    there = np.outer(cells(0.5, shift[0], edges), cells(0.5, shift[1], edges)).ravel()
    order = np.argsort(-there / here)  # the best sets, by the Neyman-Pearson lemma
    b, gained = np.cumsum(here[order])[:-1], np.cumsum(there[order])[:-1]
    # h is the curve of two shifts, one of each class: half of the radius for one shift.
    bound = noise.trade_off(sum(map(abs, shift)) / 2, np.minimum(b, 1.0))[0]
    assert np.all(gained <= bound + 1e-12)
    if 0 in shift:
        assert gained == pytest.approx(bound, abs=1e-3)  # a shift along one axis is the worst one

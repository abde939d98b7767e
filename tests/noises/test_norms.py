"""Every noise against its reference values, its exact formula and the properties that plans rely on."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

from smoothcert import InputSpecific, SampleMap, exact_coverage
from smoothcert.noises import (
    Ablation,
    Bands,
    Blocks,
    Blur,
    Brightness,
    Contrast,
    ContrastBrightness,
    Discrete,
    Gaussian,
    GridGaussian,
    Laplace,
    Splitting,
    Translation,
    Uniform,
)
from smoothcert.noises.rounded_normal import thresholds

NOISES = [
    Uniform(1.0),
    Uniform(3.464),
    Laplace(0.5),
    Splitting(0.7),
    Splitting(0.5, 255),
    Gaussian(0.5),
    GridGaussian(0.25, size=784),
    Translation(2.0),
    Brightness(0.1),
    Contrast(0.3),
    ContrastBrightness(0.3),
    Blur(3.0),
    Ablation(45, 784),
    Ablation(3, 10),
    Discrete(0.8, size=50),
    Discrete(0.2, 256),
    Bands(4, 32),
    Blocks(5, 784),
]
IDS = [str(noise) for noise in NOISES]
probabilities = st.floats(0.0, 1.0) | st.floats(1e-12, 1e-2).map(lambda rest: 1 - rest)


@pytest.mark.parametrize(
    ("noise", "p", "radius"),
    [
        (Uniform(1), 0.99, 0.98),
        (Splitting(1), 0.99, 0.98),
        (Laplace(1), 0.99, 3.912023),
        (Ablation(45, 784), 1.0, 11),
        (Ablation(75, 1024), 1.0, 9),
        (Ablation(1000, 50176), 1.0, 34),
    ],
)
def test_reference_radii(noise, p, radius):
    assert noise.radius(p) == pytest.approx(radius, abs=5e-7)
    assert noise.radius(p) <= radius + 5e-7


@pytest.mark.parametrize(
    ("noise", "needed"),
    [
        (Ablation(45, 784), [0.557398]),
        (Ablation(75, 1024), [0.573242]),
        (Ablation(1000, 50176), [0.519930]),
        (Discrete(0.8), [0.875, 0.96875, 0.9921875, 0.99275]),
        (Discrete(0.2, 256), [0.696862745, 0.853735333, 0.978988297]),
    ],
)
def test_reference_probabilities_of_whole_radii(noise, needed):
    radii = np.arange(1, len(needed) + 1)
    assert noise.probability(radii) == pytest.approx(needed, abs=5e-7)
    for radius, p in zip(radii, noise.probability(radii), strict=True):
        assert noise.radius(p) >= radius
        assert noise.radius(np.nextafter(p, 0)) == radius - 1
        assert Fraction(float(np.nextafter(p, 0))) <= noise.thresholds[radius]


def test_the_l_infinity_radius_of_gaussian_noise():
    noise = Gaussian(1.0)
    assert noise.other_radii(noise.radius(0.99), (3, 32, 32))["linf"] == pytest.approx(
        0.0419724, abs=5e-8
    )
    assert Uniform(1).other_radii(1.0, (3,)) == {}


@pytest.mark.parametrize("noise", NOISES, ids=IDS)
@given(p=probabilities, q=probabilities)
@settings(max_examples=50, deadline=None)
def test_the_radius_never_decreases_and_below_one_half_nothing_is_proved(noise, p, q):
    low, high = sorted((p, q))
    assert noise.radius(low) <= noise.radius(high)
    assert noise.radius(min(p, 0.5)) <= 0
    assert not noise.radius_between(low, high) > max(noise.radius(low), 0)  # NaN proves nothing


@pytest.mark.parametrize("noise", NOISES, ids=IDS)
@given(p=st.floats(0.5001, 0.9999))
@settings(max_examples=50, deadline=None)
def test_the_probability_of_a_radius_proves_it_and_hardly_less_does(noise, p):
    radius = float(noise.radius(p))
    if radius < 0:
        return
    needed = noise.needed_probability(radius)
    if noise.certified_radius(1.0) > radius:
        assert noise.certified_radius(needed) > radius
        assert noise.certified_radius(needed - noise.drawing_error - 1e-9) <= radius
    else:
        assert needed == 1
    assert float(noise.probability(radius)) <= p + 1e-12
    if radius > 0:
        assert noise.radius(max(float(noise.probability(radius)) - 1e-6, 0)) < radius + 1e-12


@given(p=st.floats(0.5, 1 - 1e-12), scale=st.floats(0.01, 10))
@settings(max_examples=200, deadline=None)
def test_no_radius_exceeds_the_exact_formula(p, scale):
    with mpmath.workdps(60):
        exact = mpmath.mpf(p)
        assert Uniform(scale).radius(p) <= mpmath.mpf(scale) * (2 * exact - 1)
        assert Splitting(scale).radius(p) <= mpmath.mpf(scale) * (2 * exact - 1)
        assert Laplace(scale).radius(p) <= -mpmath.mpf(scale) * mpmath.log(2 * (1 - exact))
        normal = mpmath.sqrt(2) * mpmath.erfinv(2 * exact - 1)
        for noise in (Gaussian(scale), Brightness(scale), Translation(scale)):
            assert noise.radius(p) <= mpmath.mpf(scale) * normal


@given(a=st.floats(0.01, 0.999), b=st.floats(0, 0.98))
@settings(max_examples=200, deadline=None)
def test_no_radius_of_two_classes_exceeds_the_exact_formula(a, b):
    b = min(b, 1 - a)
    with mpmath.workdps(60):
        p, q = mpmath.mpf(a), mpmath.mpf(b)
        assert Uniform(0.7).radius_between(a, b) <= mpmath.mpf(0.7) * (p - q)
        left = (
            p if a <= 0.5 else 1 / (4 * (1 - p))
        )  # h(q) = q exp(2 r) up to 1/2, then 1 - exp(-2 r) / (4 q)
        right = q if b <= 0.5 else 1 / (4 * (1 - q))
        exact = mpmath.log(left / right) / 2 if b else mpmath.inf
        assert Laplace(0.7).radius_between(a, b) <= mpmath.mpf(0.7) * exact


@pytest.mark.parametrize(("keep", "values"), [(0.8, 2), (0.6, 3), (0.5, 5)])
def test_discrete_thresholds_equal_a_full_enumeration_of_the_worst_classifier(keep, values):
    noise, a = Discrete(keep, values), Fraction(repr(keep))
    b = (1 - a) / (values - 1)
    for r in (1, 2, 3):
        points = np.stack(np.meshgrid(*[np.arange(values)] * r), -1).reshape(-1, r)
        here = [math.prod(a if v == 0 else b for v in point) for point in points]  # x = 0 ... 0
        there = [math.prod(a if v == 1 else b for v in point) for point in points]  # x' = 1 ... 1
        p, left = Fraction(0), Fraction(1, 2)
        for h, t in sorted(zip(here, there, strict=True), key=lambda pair: pair[1] / pair[0]):
            taken = min(t, left)
            p, left = p + h * taken / t, left - taken
        assert noise.thresholds[r] == max(p, noise.thresholds[r - 1])


@pytest.mark.parametrize("deviation", [0.3, 2.0, 63.75])
def test_thresholds_of_a_rounded_normal_number_are_exact_to_the_last_bit(deviation):
    table = thresholds(deviation)
    with mpmath.workdps(50):
        for index in {0, 1, len(table.values) // 3, len(table.values) // 2, len(table.values) - 1}:
            exact = 2**64 * mpmath.ncdf(
                (table.smallest + index + mpmath.mpf(1) / 2) / mpmath.mpf(deviation)
            )
            assert abs(int(table.values[index]) - exact) <= 0.5 + 1e-6
    assert np.all(np.diff(table.values.astype(object)) >= 0)
    assert table.error < 1e-15


def test_tiny_noise_is_always_zero_and_needs_no_long_series():
    table = thresholds(1e-6)
    assert (table.smallest, len(table.values)) == (0, 0)


def test_a_noise_is_bound_to_the_size_of_inputs():
    assert Ablation(45).for_shape((1, 28, 28)) == Ablation(45, 784)
    assert Ablation(75).for_shape((3, 32, 32)).size == 1024
    assert Gaussian(0.5).for_shape((3, 32, 32)) == Gaussian(0.5)
    assert Discrete(0.8).for_shape((30,)).same_kind(Discrete(0.8))
    assert not Discrete(0.8).same_kind(Discrete(0.9))
    with refused("other-size", bound=784, size=10):
        Ablation(5, 784).for_size(10)
    with refused("no-size", noise=Ablation(45)):
        Ablation(45).radius(0.9)
    with refused("keep-too-large", size=10, keep=45):
        Ablation(45, 10)
    with refused("partial-offset", offsets=0.51, nearest=1 / 510):
        Splitting(0.001, 255)
    with refused("keep-too-small", least=0.5, keep=0.4):
        Discrete(0.4)


def test_the_trap_of_uniform_noise():
    psi = SampleMap(Uniform(3.464), samples=100_000, decline=0.05)
    assert psi([0.512, 0.513, 1.0]).tolist() == [0, 16_368, 945]
    assert 16_368 <= psi.largest(0.4, 1.0) <= 1.03 * 16_690


MAPS = [
    (Uniform(3.464), 0.05, "absolute"),
    (Uniform(1.0), 0.05, "relative"),
    (Laplace(1.0), 0.05, "absolute"),
    (Ablation(45, 784), 1, "absolute"),
    (Discrete(0.8), 1, "absolute"),
    (Discrete(0.2, 256), 0.3, "relative"),
]


@pytest.mark.parametrize(("noise", "decline", "kind"), MAPS)
@given(ends=st.tuples(st.floats(0, 1), st.floats(0, 0.2)), share=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_the_map_is_enough_everywhere_in_an_interval(noise, decline, kind, ends, share):
    psi = SampleMap(noise, samples=10_000, decline=decline, kind=kind)
    low, high = ends[0], min(sum(ends), 1.0)
    inside = min(low + share * (high - low), high)
    found = int(psi.largest(low, high))
    assert found >= max(int(psi(p)) for p in (low, inside, high))
    needed = int(psi(inside))
    if needed:
        assert psi.radius(found, inside) >= psi.required_radius(inside) * (1 - 1e-9)


@pytest.mark.parametrize(("noise", "decline", "kind"), MAPS)
def test_plans_keep_their_alpha_under_every_noise(noise, decline, kind):
    plan = InputSpecific(1_000, pilot=100, decline=decline, kind=kind, alpha=0.01)
    found = exact_coverage(plan, noise)
    assert found.valid
    assert found.drawing_error == noise.drawing_error < 1e-6


def test_the_papers_grid_is_for_maps_that_peak_at_the_ends():
    with refused("grid-misses-peaks"):
        exact_coverage(InputSpecific(1_000, grid="paper"), Uniform(1.0))


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (Gaussian(0.5), "change of the input that is smaller than r in l2"),
        (
            GridGaussian(0.5),
            "change of the input in steps of 1/255 (8-bit images in [0, 1]) that is smaller than r in l2",
        ),
        (Uniform(1.0), "change of the input that is smaller than r in l1"),
        (Splitting(1.0), "change of the input that is smaller than r in l1"),
        (Splitting(1.0, 15), "change of the input in steps of 1/15 that is smaller than r in l1"),
        (Discrete(0.8), "change of at most r values in steps of 1"),
        (
            Discrete(0.2, 256),
            "change of at most r values in steps of 1/255 (8-bit images in [0, 1])",
        ),
        (Ablation(45), "change of at most r pixels"),
        (Translation(2), "circular shift by whole pixels that is shorter than r pixels"),
        (
            Brightness(0.1),
            "change of all values by the same number, without clipping, that is smaller than r",
        ),
        (
            Contrast(0.3),
            "multiplication of all values by a factor between e^-r and e^r, without clipping,",
        ),
        (
            ContrastBrightness(0.3),
            "change of all values x to e^k (x + b), without clipping, with k and b between -r and r,",
        ),
        (Blur(3.0), "further blur with a squared radius smaller than r square pixels"),
    ],
    ids=str,
)
def test_a_noise_says_which_changes_it_certifies(noise, words):
    assert noise.certified_change("r") == words

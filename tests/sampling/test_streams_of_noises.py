"""All noises but the three additive laws, from the host, Triton's interpreter and CUDA."""

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare, kstest, norm

from smoothcert._registry import describe
from smoothcert.noises import (
    Ablation,
    Blur,
    Brightness,
    ContrastBrightness,
    Discrete,
    GridGaussian,
    Splitting,
    Translation,
)

SEGMENTS = [(id, 0, 10) for id in range(4)]


@pytest.mark.parametrize(
    ("noise", "shape"),
    [
        (GridGaussian(0.25), (3, 5, 5)),
        (GridGaussian(0.25), (7,)),
        (Ablation(5, 25), (3, 5, 5)),
        (Discrete(0.5, 256), (3, 5, 5)),
        (Splitting(0.5), (3, 5, 5)),
        (Splitting(0.5, 255), (3, 5, 5)),
        (Translation(2.0), (3, 5, 5)),
        (Brightness(0.5), (3, 5, 5)),
        (ContrastBrightness(0.5), (3, 5, 5)),
        (Blur(2.0), (3, 5, 5)),
    ],
    ids=str,
)
def test_every_noise_is_keyed_by_seed_input_and_sample(draw, noise, shape):
    settings = {"shape": shape, "seed": 9, "x": 51 / 255, "noise": describe(noise)}
    whole = draw((5, 0, 8), **settings)
    packed = draw((8, 3, 1), (5, 5, 3), (5, 0, 1), batch=7, **settings)
    assert np.isfinite(whole).all()
    np.testing.assert_array_equal(packed[1:4], whole[5:8])
    np.testing.assert_array_equal(packed[4], whole[0])


@pytest.mark.parametrize("deviation", [0.6, 63.75, 127.5])
def test_noise_on_the_grid_is_a_rounded_normal_number(draw, deviation):
    noise = describe(GridGaussian(deviation / 255))
    k = (
        np.rint(draw(*SEGMENTS, shape=(20_000,), seed=3, x=51 / 255, noise=noise).ravel() * 255.0)
        - 51
    )
    inner = np.unique(np.round(norm.ppf(np.linspace(0.001, 0.999, 60)) * deviation)) + 0.5
    edges = np.concatenate([[-np.inf], inner, [np.inf]])
    expected = np.diff(norm.cdf(edges / deviation)) * len(k)
    assert chisquare(np.histogram(k, edges)[0], expected).pvalue > 1e-4
    for sigmas in (3, 4, 4.5):
        limit = np.ceil(sigmas * deviation) - 0.5
        assert (
            binomtest(int((np.abs(k) > limit).sum()), len(k), 2 * norm.sf(limit / deviation)).pvalue
            > 1e-4
        )


def test_noisy_inputs_on_the_grid_depend_on_the_sum_alone(draw):
    settings = {"shape": (1000,), "seed": 3, "noise": describe(GridGaussian(0.25))}
    low, high = (draw((0, 0, 5), x=level / 255, **settings) for level in (10, 200))
    moved = np.rint(low * 255.0) - 10
    np.testing.assert_array_equal(np.rint(high * 255.0) - 200, moved)
    values = {}
    for rows in (low, high):
        for level, value in zip(np.rint(rows * 255.0).ravel(), rows.ravel(), strict=True):
            assert values.setdefault(level, value) == value


def test_kept_pixels_are_a_random_subset(draw):
    noisy = draw(
        *[(id, 0, 100) for id in range(4)],
        shape=(1, 4, 5),
        seed=3,
        x=0.25,
        noise=describe(Ablation(6, 20)),
    )
    kept = noisy.sum(axis=1)
    assert set(np.unique(kept)) == {0.0, 1.0}
    assert (kept.sum(axis=(1, 2)) == 6).all()
    assert chisquare(kept.sum(axis=0).ravel()).pvalue > 1e-4


def test_values_are_replaced_by_any_other(draw):
    noisy = draw(*SEGMENTS, shape=(2000,), seed=3, x=0.5, noise=describe(Discrete(0.3, 5)))
    counts = np.bincount(np.rint(noisy.ravel() * 4).astype(int), minlength=5)
    assert (
        chisquare(counts, np.array([0.175, 0.175, 0.3, 0.175, 0.175]) * counts.sum()).pvalue > 1e-4
    )


def test_brightness_is_normal(draw):
    moved = draw(
        *[(id, 0, 125) for id in range(4)], shape=(3,), seed=3, noise=describe(Brightness(0.5))
    )
    assert np.ptp(moved, axis=1).max() == 0
    assert kstest(moved[:, 0] / 0.5, norm.cdf).pvalue > 1e-4


@pytest.mark.gpu
@pytest.mark.parametrize("sigmas", [5.0, 5.42, 5.7, 6.0])
def test_normal_tails_beyond_the_former_cut(draw, sigmas):
    """800 million numbers on CUDA; too many for the others."""
    if "cuda" not in str(draw.process.args):
        pytest.skip("too slow here")
    beyond = total = 0
    for seed in range(20):
        z = draw(*[(id, 0, 40) for id in range(40)], shape=(25_000,), seed=seed)
        beyond, total = beyond + int((np.abs(z) > sigmas).sum()), total + z.size
    assert binomtest(beyond, total, 2 * norm.sf(sigmas)).pvalue > 1e-4


@pytest.mark.parametrize("x", [-0.5, 1.5])
def test_a_hidden_pixel_does_not_show_the_sign_of_its_value(draw, x):
    shown = draw((0, 0, 20), shape=(3, 5, 5), seed=1, x=x, noise=describe(Ablation(5, 25)))
    hidden = shown == 0
    assert hidden.mean() == 0.8
    assert not np.signbit(shown[hidden]).any()

"""Brightness, contrast and blur: how they compose, and radii against exact shares of votes.

Classifiers see small pictures. Their shares are computed by integrating over the parameter of the
noise, on a fine grid of its quantiles.
"""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import ive, ndtr, ndtri

from smoothcert import Blur, Contrast, ContrastBrightness
from smoothcert.sampling.drawing import blurred, drawer_for

QUANTILES = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
SQUARED_RADII = -3 * QUANTILES.log()
"""Of Blur(3.0)."""


def picture(seed, *shape):
    return torch.rand(1, *shape, dtype=torch.float64, generator=torch.manual_seed(seed))


def at(squared_radius):
    return torch.tensor([squared_radius], dtype=torch.float64)


def words(count, rows=50):
    return torch.randint(-(2**63), 2**63 - 1, (rows, count), generator=torch.manual_seed(1))


def test_squared_radii_of_blur_add_up():
    x = picture(0, 2, 5, 8)
    for first, second in [(0.01, 0.02), (0.3, 4.0), (30.0, 0.5)]:
        twice = blurred(blurred(x, at(first)), at(second))
        assert torch.allclose(twice, blurred(x, at(first + second)), rtol=0, atol=1e-13)
    assert torch.allclose(blurred(x, at(0)), x, rtol=0, atol=1e-13)


def test_drawn_blur_after_another_blur_is_one_blur():
    x = picture(0, 1, 6, 6)
    drawer = drawer_for(Blur(3.0), (1, 6, 6))
    alone = drawer.noisy(words(1), x)
    changed = drawer.noisy(words(1), blurred(x, at(0.7)))
    assert torch.allclose(changed, blurred(alone, at(0.7)), rtol=0, atol=1e-12)
    flat = drawer.noisy(words(1), torch.ones_like(x))
    assert torch.allclose(flat, torch.ones_like(flat))


def test_blur_is_the_discrete_gaussian_kernel_with_reflected_edges():
    point = torch.zeros(1, 1, 81, dtype=torch.float64)
    point[..., 40] = 1
    kernel = blurred(point, at(2.5))[0, 0].numpy()
    offset = np.arange(81) - 40
    assert kernel == pytest.approx(ive(np.abs(offset), 2.5), abs=1e-14)
    assert kernel @ offset**2 == pytest.approx(2.5)
    edge = picture(0, 1, 6)
    whole = blurred(torch.cat([edge.flip(-1), edge] * 7, dim=-1), at(2.5))
    assert torch.allclose(whole[..., 42:48], blurred(edge, at(2.5)), atol=1e-9)


def test_contrast_multiplies_and_brightness_is_added_before():
    x = picture(0, 3, 4, 4)
    factor = drawer_for(Contrast(0.3), (3, 4, 4)).noisy(words(1), x) / x
    assert torch.allclose(factor, factor[:, :1, :1, :1].expand_as(factor))
    drawer = drawer_for(ContrastBrightness(0.3), (3, 4, 4))
    both = drawer.noisy(words(2), x)
    scale = (both[:, 0, 0, 0] - both[:, 0, 0, 1]) / (x[:, 0, 0, 0] - x[:, 0, 0, 1])
    shift = both[:, 0, 0, 0] / scale - x[0, 0, 0, 0]
    changed = drawer.noisy(words(2), math.exp(0.2) * (x + 0.1))
    for row in range(len(both)):
        composed = math.exp(0.2) * scale[row] * (x[0] + 0.1 + math.exp(-0.2) * shift[row])
        assert torch.allclose(changed[row], composed)


@pytest.mark.parametrize(
    ("noise", "law"),
    [
        (Blur(3.0), lambda p: -3 * np.log1p(-p)),
        (Contrast(0.3), lambda p: np.exp(0.3 * ndtri(p))),
    ],
    ids=["blur", "contrast"],
)
def test_parameters_are_drawn_by_their_law(noise, law):
    # The second cosine coefficient of two pixels is multiplied by exp(-a), a mean by the contrast.
    x = torch.tensor([[[1.0, -1.0]]]) if isinstance(noise, Blur) else torch.ones(1, 1, 1)
    bits = words(1, 20_000)
    value = drawer_for(noise, tuple(x.shape[1:])).noisy(bits, x.double()).flatten(1)[:, 0].numpy()
    parameter = -np.log(value) if isinstance(noise, Blur) else value
    share = np.arange(0.05, 1, 0.05)
    assert np.quantile(parameter, share) == pytest.approx(law(share), rel=0.1)


def linear(seed, tie, classes=3):
    """Linear classes that tie at one picture."""
    generator = torch.manual_seed(seed)
    weight = torch.randn(tie.numel(), classes, generator=generator, dtype=torch.float64)
    return lambda x: ((x - tie).flatten(1) @ weight).argmax(1)


def shares(labels, classes=3):
    return np.bincount(labels.numpy(), minlength=classes) / len(labels)


def test_no_further_blur_below_the_radius_changes_the_answer():
    noise = Blur(3.0)
    divided = 0
    for seed in range(60):
        x = picture(seed, 1, 4, 4)
        classify = linear(seed, blurred(x, at(2.0)))
        p = shares(classify(blurred(x, SQUARED_RADII)))
        order = np.argsort(p)[::-1]
        radius = noise.radius_between(p[order[0]] - 1e-3, p[order[1]] + 1e-3)
        divided += 0.1 < radius < 6
        for blur in np.linspace(0, min(radius, 20), 6):
            after = shares(classify(blurred(blurred(x, at(blur)), SQUARED_RADII)))
            assert after.argmax() == order[0]
    assert divided > 10


def test_the_radius_of_blur_cannot_be_larger():
    """A class that answers wherever the picture is still sharp enough keeps its vote up to R."""
    x = picture(0, 1, 4, 4)
    sharpness = blurred(x, SQUARED_RADII).flatten(1).var(1)
    for p in (0.6, 0.8, 0.99):
        limit = sharpness.quantile(1 - p)
        radius = Blur(3.0).radius(p)
        for share, keeps in ((0.98, True), (1.02, False)):
            twice = blurred(blurred(x, at(share * radius)), SQUARED_RADII)
            assert ((twice.flatten(1).var(1) > limit).double().mean() > 0.5) == keeps


def test_no_factor_below_the_radius_of_contrast_changes_the_answer():
    factors = (0.3 * torch.special.ndtri(QUANTILES)).exp()[:, None, None]
    divided = 0
    for seed in range(60):
        x = picture(seed, 2, 2)
        classify = linear(seed, 1.1 * x + 0.01)
        p = shares(classify(factors * x))
        order = np.argsort(p)[::-1]
        radius = Contrast(0.3).radius_between(p[order[0]] - 1e-3, p[order[1]] + 1e-3)
        divided += 0.01 < radius < 0.6
        for k in np.linspace(-1, 1, 7) * min(radius, 1):
            assert shares(classify(factors * (math.exp(k) * x))).argmax() == order[0]
    assert divided > 10


NODES = np.linspace(-12, 12, 4_001)


def smallest_share(p, k, b, sigma):
    """The least that a set of parameters of probability p has after the change e^k (x + b).

    By the Neyman-Pearson lemma, the worst set is where the density grows least; the parameter of
    contrast is integrated in closed form. All sets count, because a picture of two pixels shows
    both parameters.
    """
    c = math.exp(-k)
    move = abs(k) / sigma
    growth = NODES**2 / 2 - (NODES - b / sigma) ** 2 / (2 * c**2)
    before = np.exp(-(NODES**2) / 2)
    after = np.exp(-((NODES - b / sigma) ** 2) / (2 * c**2))

    def share(limit, density, moved):
        return density @ ndtr((limit - growth) / move - moved) / density.sum()

    limit = brentq(lambda limit: share(limit, before, 0) - p, -2_000, 2_000)
    return share(limit, after, move)


@pytest.mark.parametrize("sigma", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("p", [0.55, 0.8, 0.99, 0.9999])
def test_no_set_of_parameters_loses_its_majority_within_the_radius(sigma, p):
    radius = float(ContrastBrightness(sigma).radius(p))
    for k in radius * np.array([-1, -0.7, -0.01, 0.01, 0.7, 1]):
        for b in radius * np.array([-1, -0.5, 0, 1]):
            assert smallest_share(p, k, b, sigma) > 0.5


def test_contrast_changes_how_much_brightness_noise_there_is():
    """Without the term for the other deviation, the radius would be false."""
    p = 0.8535
    naive = 0.3 * float(ndtri(p)) / math.sqrt(2)
    assert smallest_share(p, naive, naive, 0.3) < 0.499
    assert ContrastBrightness(0.3).radius(p) < 0.9 * naive

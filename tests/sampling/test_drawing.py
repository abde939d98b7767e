"""From random bits to noisy inputs: distributions, tails, keys, and gaps of float noise."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, chisquare, kstest, laplace, norm, uniform
from tests.refusals import refused

from smoothcert import Fixed, Smoothed
from smoothcert.noises import (
    Ablation,
    Additive,
    Blur,
    Brightness,
    Contrast,
    ContrastBrightness,
    Discrete,
    Draw,
    Gaussian,
    GridGaussian,
    Laplace,
    Splitting,
    Translation,
    Uniform,
)
from smoothcert.noises.rounded_normal import thresholds
from smoothcert.sampling.drawing import drawer_for, split_mix
from smoothcert.sampling.streams import HostStream, Segment

NOISES = [
    Gaussian(0.5),
    Uniform(0.5),
    Laplace(0.5),
    GridGaussian(0.5),
    Brightness(0.5),
    Contrast(0.3),
    ContrastBrightness(0.3),
    Blur(3.0),
    Translation(2.0),
    Splitting(0.3),
    Splitting(1.0, 255),
    Ablation(7, 30),
    Discrete(0.8),
    Discrete(0.2, 256),
]


def drawn(noise, x, *segments, seed=0):
    """Noisy copies of x: segments are (id, first sample, count)."""
    parts = [Segment(0, *segment) for segment in segments]
    out = torch.full(
        (sum(p.count for p in parts), *noise.draw.output_shape(tuple(x.shape))), torch.nan
    )
    HostStream(seed, noise.draw).write(
        out, x[None], parts, torch.zeros((3, len(out)), dtype=torch.int32)
    )
    assert out.isfinite().all()
    return out


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_every_noise_is_keyed_by_seed_input_and_sample(noise):
    x = torch.ones(1, 5, 6) if noise == Discrete(0.8) else torch.arange(30.0).view(1, 5, 6) / 255
    whole = drawn(noise, x, (5, 0, 8))
    packed = drawn(noise, x, (8, 3, 1), (5, 5, 3), (5, 0, 1))
    assert torch.equal(packed[1:4], whole[5:8])
    assert torch.equal(packed[4], whole[0])
    if noise.outcomes is None:
        assert not torch.equal(drawn(noise, x, (6, 0, 8)), whole)
        assert not torch.equal(drawn(noise, x, (5, 0, 8), seed=1), whole)


def from_bits(draw, halves, more):
    """The noise that crafted 32-bit numbers give.

    Each number that asks for 64 further bits gets the same ones.
    """
    words = np.array([halves], np.int32).view(np.int64)
    drawer = drawer_for(draw, (len(halves),))
    return drawer.noisy(
        torch.from_numpy(words),
        torch.zeros(1, len(halves)),
        lambda where: np.full(len(where), more, np.uint64),
    )[0].double()


def exact(law, rest):
    """The absolute value of a law's number for 1 - |u|."""
    return norm.isf(np.asarray(rest) / 2) if law == "normal" else -np.log(rest)


@pytest.mark.parametrize("law", ["normal", "laplace"])
def test_numbers_are_never_smaller_than_those_of_the_law_and_hardly_larger(law):
    """A cell of uniform numbers becomes the number at its outer edge; near 0, at its middle."""
    rng = np.random.default_rng(2)
    ends = 2**31 - 1 - (rng.integers(0, 2**31, 100_000) >> rng.integers(0, 31, 100_000))
    small = rng.integers(0, 2**31, 100_000) >> 9
    folded = np.concatenate([rng.integers(0, 2**31, 400_000), ends, small, [0, 2**31 - 1]])
    halves = np.where(rng.integers(0, 2, len(folded)), folded, -folded - 1).astype(np.int32)
    more = int(rng.integers(0, 2**63)) * 2
    z = from_bits(Additive(law, 0.5), halves, more).numpy() / 0.5
    assert ((z < 0) == (halves < 0)).all()
    units = 2.0**31 - 1 - folded  # 1 - |u|, in units of 2^-31
    tail = units < 2**21 + 2**10  # some of them are still represented by the outer edge
    edge = (
        np.where(tail, units + (more + 0.5) / 2**64, np.where(folded < 2**23, units + 0.5, units))
        / 2**31
    )
    inner = np.where(tail, edge, (units + 1) / 2**31)
    assert (np.abs(z) >= exact(law, np.maximum(edge, 2.0**-100))).all()
    assert (np.abs(z) <= exact(law, inner) * (1 + 2.0**-14) + 2.0**-31).all()


@pytest.mark.parametrize("more", [0, 2**50, 2**63, 2**64 - 1])
def test_tails_reach_beyond_nine_standard_deviations(more):
    for half, sign in ((2**31 - 1, 1), (-(2**31), -1)):
        rest = (more + 0.5) / 2**95
        z, _ = from_bits(Additive("normal", 1.0), [half, 5], more)
        assert float(z) == pytest.approx(sign * exact("normal", rest), rel=2e-6)
        assert more or abs(float(z)) > 9
        heavy, _ = from_bits(Additive("laplace", 2.0), [half, 5], more)
        assert float(heavy) == pytest.approx(2 * sign * exact("laplace", rest), rel=2e-6)


def chance_beyond(draw, threshold):
    """The exact probability that the noise of one coordinate is above a threshold.

    This is the share of 96-bit words that give such noise. All numbers of the host stream increase
    with their bits, so bisection finds the first one above the threshold.
    """
    low, high = 2**95, 2**96  # words from 0 on, above the middle
    while low < high:
        middle = (low + high) // 2
        half, further = (
            (middle >> 64) - 2**31,
            2**64 - 1 - middle % 2**64,
        )  # further bits count towards the end
        drawn = float(from_bits(draw, [half, 0], further)[0])
        low, high = (low, middle) if drawn > threshold else (middle + 1, high)
    return (2**96 - low) / 2**96


@pytest.mark.parametrize("samples", [100_774, 13_600_000])
@pytest.mark.parametrize(
    "noise", [Gaussian(0.25), Gaussian(1.0), Laplace(0.5), Uniform(0.5)], ids=str
)
def test_a_threshold_on_a_lattice_point_is_certified_wrongly_with_at_most_alpha(noise, samples):
    """The worst case of coarse noise: all votes, and the threshold as near as the claim allows."""
    alpha = 0.001
    for count in (samples, samples + 1, samples + 7, samples * 2):
        radius = float(noise.certified_radius(alpha ** (1 / count)))
        other = np.float32(radius)  # every number of float32 near here is a lattice point
        for threshold in (radius, float(other), float(np.nextafter(other, np.float32(0)))):
            missed = chance_beyond(noise.draw, min(threshold, radius))
            assert count * math.log1p(-missed) <= math.log(alpha) * (1 - 1e-12)


@pytest.mark.parametrize("noise", [Gaussian(0.5), Laplace(0.5), Uniform(0.5)], ids=str)
def test_the_chance_beyond_a_threshold_is_that_of_the_law_within_the_error_that_is_charged(noise):
    exact_law = {"normal": norm.sf, "laplace": laplace.sf, "uniform": uniform(-1, 2).sf}[
        noise.draw.law
    ]
    for t in np.concatenate([np.linspace(1e-9, 0.99, 25), np.linspace(1, 7, 13)]):
        chance = chance_beyond(noise.draw, t * noise.draw.scale)
        expected = float(exact_law(t))
        assert chance >= expected - noise.drawing_error
        assert chance <= expected * (1 + 2.0**-11) + noise.drawing_error


@pytest.mark.parametrize("scale", [0.3, 0.5, 1.1])
def test_the_chance_of_a_cell_under_splitting_is_exact_within_the_error_that_is_charged(scale):
    noise, width = Splitting(scale), 2 * scale
    drawer = drawer_for(noise.draw, (2,))
    for x in np.random.default_rng(4).uniform(0, min(width, 1), 40).astype(np.float32):
        low, high = -(2**31), 2**31
        while (
            low < high
        ):  # the centre of the cell of x is in the upper half as long as the offset is below x
            middle = (low + high) // 2
            words = torch.from_numpy(np.array([[middle, 0]], np.int32).view(np.int64))
            above = (
                float(drawer.noisy(words, torch.full((1, 2), float(x)))[0, 0]) > min(width, 1) / 2
            )
            low, high = (middle + 1, high) if above else (low, middle)
        assert (low + 2**31) / 2**32 == pytest.approx(float(x) / width, abs=noise.drawing_error)


def test_tail_frequencies_are_those_of_a_normal_variable_beyond_the_former_cut():
    """Numbers beyond 4.9 standard deviations, from random bits that are known to lie there."""
    rng = np.random.default_rng(0)
    halves = rng.integers(2**31 - 2**11, 2**31, 200_000).astype(np.int32)
    key = np.arange(len(halves), dtype=np.uint64)
    words = halves.view(np.int64)[None]
    drawer = drawer_for(Additive("normal", 1.0), (len(halves),))
    z = drawer.noisy(
        torch.from_numpy(words),
        torch.zeros(1, len(halves)),
        lambda where: split_mix(7, key[: len(where)]),
    )
    z = z[0].numpy().astype(float)
    for sigmas in (5.0, 5.42, 5.7, 6.0, 6.5):
        share = 2 * norm.sf(sigmas) / 2.0**-20
        assert binomtest(int((z > sigmas).sum()), len(z), share).pvalue > 1e-4
    assert z.max() > 6.5


def test_further_bits_are_uniform_and_random_access():
    bits = split_mix(3, np.arange(100_000, dtype=np.uint64))
    assert kstest(bits / 2.0**64, "uniform").pvalue > 1e-4
    assert split_mix(3, np.array([77], np.uint64)) == bits[77]
    assert (
        int(split_mix(0, np.array([0], np.uint64))[0]) == 0xE220A8397B1DCDAF
    )  # the published first number


@pytest.mark.parametrize("deviation", [0.7, 63.75])
def test_noise_on_the_grid_has_the_probabilities_of_a_rounded_normal_variable(deviation):
    noise = GridGaussian(deviation / 255)
    k = (drawn(noise, torch.zeros(1000), (0, 0, 300)).double() * 255).round().flatten().numpy()
    edges = np.unique(np.round(norm.ppf(np.linspace(0.001, 0.999, 40)) * deviation)) + 0.5
    expected = np.diff(norm.cdf(np.concatenate([[-np.inf], edges, [np.inf]]) / deviation))
    counts = np.histogram(k, np.concatenate([[-np.inf], edges, [np.inf]]))[0]
    assert chisquare(counts, expected * len(k)).pvalue > 1e-4


@pytest.mark.parametrize("deviation", [2.0, 63.75, 255.0])
def test_the_fast_way_to_a_number_on_the_grid_never_differs_from_the_thresholds(deviation):
    rng = np.random.default_rng(1)
    halves = rng.integers(-(2**31), 2**31, 400_000).astype(np.int32)
    more = 2**63 + 12345
    k = (from_bits(GridGaussian(deviation / 255).draw, halves, more) * 255).round().numpy()
    table = thresholds(float(GridGaussian(deviation / 255).sigma * 255))
    words = ((halves.astype(np.int64) + 2**31).astype(np.uint64) << np.uint64(32)) | np.uint64(
        more >> 32
    )
    np.testing.assert_array_equal(
        k, table.smallest + np.searchsorted(table.values, words, side="right")
    )


def test_the_sum_on_the_grid_is_exact():
    x = torch.arange(256) / 255
    noisy = drawn(GridGaussian(0.5), x, (0, 0, 50)).double() * 255
    assert (noisy - noisy.round()).abs().max() < 1e-3
    shifted = drawn(GridGaussian(0.5), torch.flip(x, (0,)), (0, 0, 50)).double() * 255
    moved = torch.round(noisy) - torch.arange(256)
    assert torch.equal(moved, torch.round(shifted) - torch.arange(255, -1, -1))


def test_kept_pixels_are_a_random_subset_and_absent_ones_are_marked():
    x = torch.rand(3, 4, 5)
    noisy = drawn(Ablation(6, 20), x, (0, 0, 4000))
    assert noisy.shape == (4000, 6, 4, 5)
    kept = (noisy[:, :3] + noisy[:, 3:]).round()  # x + (1 - x), or 0
    assert torch.equal(kept[:, 0], kept[:, 2])
    assert torch.equal(kept[:, 0].sum((1, 2)), torch.full((4000,), 6.0))
    assert torch.equal(noisy[:, :3], x * kept)
    counts = kept[:, 0].sum(0).flatten().numpy()
    assert chisquare(counts).pvalue > 1e-4
    assert drawn(Ablation(2, 7), torch.rand(7), (0, 0, 3)).shape == (3, 14)


@pytest.mark.parametrize(
    ("noise", "value"), [(Discrete(0.8), 1), (Discrete(0.3, 5), 2), (Discrete(0.2, 256), 200)]
)
def test_values_are_kept_or_replaced_by_any_other(noise, value):
    others = noise.values - 1
    noisy = drawn(noise, torch.full((500,), value / others), (0, 0, 400))
    counts = np.bincount((noisy * others).round().long().flatten().numpy(), minlength=noise.values)
    expected = np.full(noise.values, (1 - noise.keep) / others)
    expected[value] = noise.keep
    assert chisquare(counts, expected * counts.sum()).pvalue > 1e-4


def test_shifts_are_circular_rounded_and_normal():
    x = torch.zeros(2, 41, 61)
    x[:, 20, 30] = torch.tensor([1.0, 2.0])
    noisy = drawn(Translation(3.0), x, (0, 0, 4000))
    assert torch.equal(noisy[:, 1], 2 * noisy[:, 0])
    place = noisy[:, 0].flatten(1).argmax(1)
    for moved in (place // 61 - 20, place % 61 - 30):
        counts = np.bincount(np.clip(moved.numpy() + 7, 0, 14), minlength=15)
        edges = np.concatenate([[-np.inf], np.arange(-6.5, 7), [np.inf]])
        assert chisquare(counts, np.diff(norm.cdf(edges / 3)) * 4000).pvalue > 1e-4
    for noise in (Translation(3.0), Blur(3.0)):
        with refused("not-images", shape=(5,)):
            drawn(noise, torch.zeros(5), (0, 0, 1))


def test_brightness_is_one_normal_number_for_all_values():
    x = torch.rand(2, 3, 4)
    moved = drawn(Brightness(0.5), x, (0, 0, 20_000)) - x
    assert (moved.flatten(1).max(1).values - moved.flatten(1).min(1).values).max() < 1e-6
    assert kstest(moved[:, 0, 0, 0].numpy() / 0.5, norm.cdf).pvalue > 1e-4


@pytest.mark.parametrize("scale", [0.2, 0.5, 1.3])
def test_random_splitting_cuts_between_two_values_with_the_probability_of_the_theorem(scale):
    """The proof needs only this: values a and b fall into different cells as often as it says.

    That is a probability of at most |a - b| / (2 scale).
    """
    a, b = 0.31, 0.47
    noisy = (
        drawn(Splitting(scale), torch.tensor([a]), (0, 0, 20_000)),
        drawn(Splitting(scale), torch.tensor([b]), (0, 0, 20_000)),
    )
    apart = int((noisy[0] != noisy[1]).sum())
    assert binomtest(apart, 20_000, min((b - a) / (2 * scale), 1)).pvalue > 1e-4
    assert all(0 <= float(part.min()) <= float(part.max()) <= 1 for part in noisy)


@pytest.mark.parametrize("offsets", [51, 255, 510])
def test_enumerated_splitting_cuts_between_two_levels_exactly_as_often_as_they_differ(offsets):
    noise = Splitting(offsets / 510, 255)
    levels = torch.tensor([0, 3, 50, 51, 254, 255])
    cells = [drawn(noise, torch.full((4,), float(n)) / 255, (9, 0, offsets)) for n in levels]
    for n, a in zip(levels, cells, strict=True):
        for m, b in zip(levels, cells, strict=True):
            assert (a != b).sum(0).tolist() == [min(abs(int(n - m)), offsets)] * 4


def test_a_description_without_a_drawer_is_refused():
    class Unknown(Draw):
        pass

    with refused("no-drawer", kind="Unknown"):
        drawer_for(Unknown(), (3,))


SIGMA = 0.5
NUMBERS = 16


def possible(values):
    """Whether noise added to 0 could have given each value, under the host stream's arithmetic."""
    scale = math.sqrt(2) * Additive("normal", SIGMA).drawn_scale
    centre = torch.erf(values.double() / scale).float().clamp(-1 + 2.0**-24, 1 - 2.0**-24)
    occurs = values.abs() > 2.8 * SIGMA  # computed in another way
    for lower in (True, False):
        candidate = centre.clone()
        for _ in range(10):
            occurs |= torch.add(torch.zeros(()), candidate.erfinv(), alpha=scale) == values
            candidate = torch.nextafter(candidate, torch.tensor(-1.0 if lower else 1.0))
    return occurs


def test_floating_point_noise_can_be_attacked_and_noise_on_the_grid_cannot():
    """The attack asks which values can occur at all.

    Sums of 1/255 and float32 noise are often none of the values that occur at 0.
    """

    def model(x):
        return possible(x).all(1).long()

    plan = Fixed(2_000, pilot=100)
    here, there = torch.zeros(1, NUMBERS), torch.full((1, NUMBERS), 1 / 255)
    distance = float((there - here).norm())
    plain = Smoothed(
        model, noise=Gaussian(SIGMA), classes=2, device="cpu", dtype="float32", batch=1000
    )
    [certificate] = plain.certify(here, plan=plan)
    assert certificate.prediction == 1
    assert certificate.radius > 50 * distance  # claimed, and wrong:
    assert plain.predict(there)[0].prediction == 0
    sound = Smoothed(
        model, noise=GridGaussian(SIGMA), classes=2, device="cpu", dtype="float32", batch=1000
    )
    [certificate] = sound.certify(here, plan=plan)
    if not certificate.abstained and certificate.radius >= distance:
        assert sound.predict(there)[0].prediction in (None, certificate.prediction)

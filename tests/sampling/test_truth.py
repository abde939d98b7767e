"""Certificates of every noise against the truth, through the real sampler.

Each classifier's probabilities are known in closed form. An adversary moves the input by the
certified radius in the norm of the noise, in the worst direction. A certificate is wrong if the
class then has no majority; at alpha .05, at most 5% may be wrong. Most of these classifiers are
worst cases, for which the certified radius is the true one.
"""

from dataclasses import replace
from math import ceil, comb, log

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm
from tests.subjects import bound

from smoothcert import (
    Ablation,
    AtRadii,
    Blur,
    Brightness,
    Discrete,
    Exact,
    Fixed,
    Gaussian,
    GridGaussian,
    InputSpecific,
    Laplace,
    Splitting,
    Translation,
    Uniform,
)
from smoothcert.device.runtime import Runtime

ALPHA, INPUTS = 0.05, 500


def certify(noise, model, inputs, plan, classes=2, labels=None):
    """Certificates of the inputs, in their order."""
    noise = noise.for_shape(tuple(inputs[0].shape))
    runtime = Runtime.resolve("cpu", dtype="float32", batch=4096)
    subject = bound(model, classes, noise, runtime, inputs[0])
    engine = subject.prepare().engine(plan.for_noise(noise))
    labels = labels or [None] * len(inputs)
    numbered = zip(range(len(inputs)), inputs, labels, strict=True)
    return sorted(engine.certify(numbered), key=lambda certificate: certificate.id)


def allowed(wrong, of):
    assert of > INPUTS / 4  # abstentions prove nothing
    return wrong <= binom.ppf(0.9999, of, ALPHA)


PLANS = [
    Fixed(300, pilot=20, alpha=ALPHA),
    InputSpecific(600, pilot=50, alpha=ALPHA, decline=0.1, kind="relative"),
]
BETS = AtRadii([0, 0.1, 0.2], 400, pilot=60, alpha=ALPHA, bound="runner-up")
CONTINUED = AtRadii(
    [0, 0.1, 0.2], 400, pilot=60, alpha=ALPHA, bound="runner-up", earlier=((50, 1), (200, 2))
)


def positive(x):
    return (x[:, 0] > 0).long()


def survives(certificate, distance):
    """Whether a class of a half-space keeps its majority after a move by the radius.

    `distance` is the signed distance from the boundary before the move.
    """
    return (distance > 0) == (certificate.prediction == 1) and certificate.radius <= abs(distance)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("noise", [Uniform(0.5), Laplace(0.5), Brightness(0.5)], ids=str)
def test_half_spaces_in_l1_and_in_brightness(noise, plan):
    distances = np.linspace(-0.45, 0.45, INPUTS)
    inputs = [torch.tensor([d], dtype=torch.float32) for d in distances]
    certified = [
        (c, d)
        for c, d in zip(certify(noise, positive, inputs, plan), distances, strict=True)
        if not c.abstained
    ]
    wrong = [d for c, d in certified if not survives(c, d)]
    assert allowed(len(wrong), len(certified))
    assert max(c.radius for c, _ in certified) > 0.2


def ends(x):
    """Class 0 below 0.3, class 1 above 0.7, and eight classes that share what is between.

    A move by less than half of the way to class 1 does not make class 0 lose, and no classifier
    with the same probabilities loses earlier.
    """
    value = x.flatten(1)[:, 0]
    between = 2 + (1000 * value).floor().long() % 8
    return torch.where(value < 0.3, 0, torch.where(value > 0.7, 1, between))


@pytest.mark.parametrize("plan", [BETS, CONTINUED], ids=["bets", "continued"])
@pytest.mark.parametrize(
    "noise",
    [Gaussian(0.25), GridGaussian(0.25), Uniform(0.5), Laplace(0.25), Brightness(0.25)],
    ids=str,
)
@pytest.mark.parametrize("radius", [0.0, 0.1, 0.2])
def test_bets_are_not_won_where_the_runner_up_ties_within_a_radius(noise, radius, plan):
    """At this distance from the tie, certificates of this radius or a larger one are wrong."""
    steps = round(
        255 * (0.5 - radius)
    )  # on the grid, one step is added so that the tie is inside the radius
    x = torch.tensor(
        [
            (steps + (1 if isinstance(noise, GridGaussian) else 0)) / 255
            if noise.grid
            else 0.5 - radius
        ]
    )
    certified = certify(
        noise,
        ends,
        [x] * INPUTS,
        replace(plan, known_labels=True, pilot=0),
        classes=10,
        labels=[0] * INPUTS,
    )
    wrong = sum(not c.abstained and c.radius >= radius for c in certified)
    assert wrong <= binom.ppf(0.9999, INPUTS, ALPHA)
    if radius:  # smaller radii are true, and most inputs prove them
        assert np.mean([not c.abstained for c in certified]) > 0.8


@pytest.mark.parametrize("plan", [BETS, CONTINUED], ids=["bets", "continued"])
def test_bets_on_a_class_that_a_pilot_chose(plan):
    distances = np.linspace(-0.45, 0.45, INPUTS)
    inputs = [torch.tensor([d], dtype=torch.float32) for d in distances]
    certified = [
        (c, d)
        for c, d in zip(certify(Uniform(0.5), positive, inputs, plan), distances, strict=True)
        if not c.abstained
    ]
    assert allowed(sum(not survives(c, d) for c, d in certified), len(certified))
    assert max(c.radius for c, _ in certified) == 0.2


@pytest.mark.parametrize("plan", [*PLANS, replace(BETS, radii=(0, 2, 4))])
def test_a_contrast_that_blur_takes_away(plan):
    """The difference of two pixels falls by e^-a, and class 1 answers where it is large enough."""

    def sharp(x):
        return (x[:, 0, 0] - x[:, 0, 1] > 1e-3).long()

    blurs = np.linspace(0, 20, INPUTS)  # each takes away the sharpness of one input
    inputs = [torch.tensor([[1.0, -1.0]]) * float(np.exp(b) * 5e-4) for b in blurs]
    certified = [
        (c, b)
        for c, b in zip(certify(Blur(4.0), sharp, inputs, plan), blurs, strict=True)
        if not c.abstained
    ]
    median = 4 * log(2)
    wrong = 0
    for c, b in certified:
        if c.prediction == 1:
            wrong += not c.radius <= b - median
        else:
            wrong += not b < median
    assert allowed(wrong, len(certified))
    assert max(c.radius for c, _ in certified if c.prediction == 1) >= 4


def above_half(x):
    """Cells are as wide as [0, 1]: the centre is above 1/2 if the offset is below the value."""
    return (x[:, 0] > 0.5).long()


@pytest.mark.parametrize("plan", [*PLANS, BETS])
def test_a_threshold_under_random_splitting(plan):
    values = np.linspace(0.02, 0.98, INPUTS)
    certified = certify(
        Splitting(0.5), above_half, [torch.tensor([v]).float() for v in values], plan
    )
    kept = [(c, v - 0.5) for c, v in zip(certified, values, strict=True) if not c.abstained]
    assert allowed(sum(not survives(c, d) for c, d in kept), len(kept))
    assert max(c.radius for c, _ in kept) > (0.3 if plan.radii is None else 0.1)


def test_enumerated_splitting_is_exact_and_never_wrong():
    noise = Splitting(0.5, 255)
    certified = certify(
        noise, above_half, [torch.tensor([n / 255, 0.0]) for n in range(256)], Exact()
    )
    for n, certificate in enumerate(certified):
        exact = abs(
            n / 255 - 0.5
        )  # p is n / 255: the offset is one of 255 values between two levels
        assert certificate.samples == 255
        assert certificate.radius == pytest.approx(exact, abs=1e-12)
        assert certificate.radius <= exact
        moved = (
            ceil(certificate.radius * 255) - 1
        )  # the largest change in levels that is below the radius
        after = n - moved if certificate.prediction == 1 else n + moved
        assert certificate.prediction == (1 if n > 127 else 0)
        assert certified[min(max(after, 0), 255)].prediction == certificate.prediction


@pytest.mark.parametrize("plan", PLANS)
def test_a_half_space_on_the_grid(plan):
    noise, sigma = GridGaussian(0.25), 0.25 * 255
    levels = np.linspace(-100, 100, INPUTS).round()
    inputs = [torch.tensor([n / 255]).float() for n in levels]
    certified = [
        (c, n)
        for c, n in zip(certify(noise, positive, inputs, plan), levels, strict=True)
        if not c.abstained
    ]

    def majority(n):
        return (
            1 if norm.cdf((n - 0.5) / sigma) > 0.5 else 0
        )  # the class is 1 from one step above 0 on

    wrong = 0
    for c, n in certified:
        moved = ceil(c.radius * 255) - 1
        wrong += majority(n - moved if c.prediction == 1 else n + moved) != c.prediction
    assert allowed(wrong, len(certified))


@pytest.mark.parametrize("plan", [*PLANS, replace(BETS, radii=(0, 2, 4))])
def test_a_bar_that_is_shifted(plan):
    noise, width = Translation(4.0), 200

    def left(
        x,
    ):  # whether the bar stands in the left half; the other boundary is too far away to matter
        return (x[:, 0, 0].argmax(1) < width // 2).long()

    places = np.random.default_rng(0).integers(90, 110, INPUTS)
    inputs = [
        torch.nn.functional.one_hot(torch.tensor(int(p)), width).float().view(1, 1, width)
        for p in places
    ]
    certified = [
        (c, p)
        for c, p in zip(certify(noise, left, inputs, plan), places, strict=True)
        if not c.abstained
    ]
    wrong = 0
    for c, p in certified:
        moved = ceil(c.radius) - 1
        place = p + moved if c.prediction == 1 else p - moved
        wrong += (1 if place < width // 2 else 0) != c.prediction
    assert allowed(wrong, len(certified))
    assert max(c.radius for c, _ in certified) > 3


@pytest.mark.parametrize("plan", [PLANS[0]])
def test_a_majority_of_bits(plan):
    noise, bits = Discrete(0.8), 15

    def majority(x):
        return (x.sum(1) > bits / 2).long()

    ones = np.random.default_rng(0).integers(0, bits + 1, INPUTS)
    certified = certify(noise, majority, [(torch.arange(bits) < n).float() for n in ones], plan)

    def probability(n):
        kept = binom.pmf(np.arange(n + 1), n, 0.8)
        flipped = binom.pmf(np.arange(bits - n + 1), bits - n, 0.2)
        return np.convolve(kept, flipped)[ceil(bits / 2) :].sum()

    kept = [(c, int(n)) for c, n in zip(certified, ones, strict=True) if not c.abstained]
    wrong = 0
    for c, n in kept:
        after = max(n - int(c.radius), 0) if c.prediction == 1 else min(n + int(c.radius), bits)
        wrong += (probability(after) > 0.5) != (c.prediction == 1)
    assert allowed(wrong, len(kept))
    assert max(c.radius for c, _ in kept) >= 1


@pytest.mark.parametrize("plan", [PLANS[0], InputSpecific(600, pilot=50, alpha=ALPHA, decline=1)])
def test_pixels_that_are_seen_or_not(plan):
    pixels, keep = 60, 5
    noise = Ablation(keep)

    def clean(x):  # class 1 as long as no kept pixel is white
        return (x[:, 0].flatten(1).max(1).values < 0.5).long()

    white = np.random.default_rng(0).integers(0, 5, INPUTS)
    inputs = [(torch.arange(pixels) < n).float().view(1, 6, 10) for n in white]
    certified = [
        (c, int(n))
        for c, n in zip(certify(noise, clean, inputs, plan), white, strict=True)
        if not c.abstained
    ]
    wrong = 0
    for c, n in certified:
        more = n + int(c.radius)
        wrong += c.prediction != 1 or comb(pixels - more, keep) / comb(pixels, keep) <= 0.5
    assert allowed(wrong, len(certified))
    assert max(c.radius for c, _ in certified) >= Ablation(keep, pixels).radius(0.99) - 1

import inspect

import numpy as np
import pytest
import torch
from scipy.stats import beta, norm
from torch import nn

from smoothcert.compat.cohen import Smooth
from smoothcert.errors import InvalidInput


def above_half(x):
    return torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1)


def published(count, n, sigma, alpha):
    """The radius as Cohen's code computes it."""
    return sigma * norm.ppf(beta.ppf(alpha, count, n - count + 1))


def test_the_interface_is_the_published_one():
    assert list(inspect.signature(Smooth).parameters)[:3] == ["base_classifier", "num_classes", "sigma"]
    assert list(inspect.signature(Smooth.certify).parameters) == ["self", "x", "n0", "n", "alpha", "batch_size"]
    assert list(inspect.signature(Smooth.predict).parameters) == ["self", "x", "n", "alpha", "batch_size"]
    assert Smooth.ABSTAIN == -1


def test_certify_gives_the_published_radius_of_its_votes_rounded_down():
    smooth = Smooth(above_half, 2, 0.25)
    for value in (0.9, 0.7, 0.2):
        x = torch.tensor([value, 0.3])
        prediction, radius = smooth.certify(x, 100, 2000, 0.001, 500)
        assert prediction == int(value > 0.5)
        assert (type(prediction), type(radius)) == (int, float)
        radii = published(np.arange(1001, 2001), 2000, 0.25, 0.001)
        assert np.min(np.abs(radii - radius)) < 1e-9
        assert np.min(radii[radii >= radius - 1e-15] - radius) < 1e-9
        assert radius < abs(value - 0.5)


def test_both_abstain_on_the_boundary():
    smooth = Smooth(above_half, 2, 0.25)
    x = torch.tensor([0.5, 0.0])
    assert smooth.certify(x, 50, 500, 0.001, 100) == (Smooth.ABSTAIN, 0.0)
    assert smooth.predict(x, 500, 0.001, 100) == Smooth.ABSTAIN
    assert smooth.predict(torch.tensor([0.9, 0.0]), 500, 0.001, 100) == 1


def test_calls_draw_noise_of_their_own_whatever_the_batch_size():
    smooth = Smooth(above_half, 2, 0.25)
    x = torch.tensor([0.6, 0.0])
    radii = {smooth.certify(x, 100, 5000, 0.001, batch)[1] for batch in (500, 500, 1000)}
    assert len(radii) == 3
    again = Smooth(above_half, 2, 0.25)
    assert {again.certify(x, 100, 5000, 0.001, batch)[1] for batch in (500, 500, 1000)} == radii


def test_the_batch_size_is_honoured():
    sizes = set()

    def model(x):
        sizes.add(len(x))
        return above_half(x)

    Smooth(model, 2, 0.25).certify(torch.tensor([0.9, 0.0]), 100, 1000, 0.001, 250)
    assert max(sizes) == 250


def test_further_training_is_noticed():
    torch.manual_seed(0)
    network = nn.Linear(2, 2)
    smooth = Smooth(network, 2, 0.25)
    x = torch.tensor([0.9, 0.1])
    first = smooth.predict(x, 200, 0.001, 100)
    with torch.no_grad():
        network.weight.neg_()
        network.bias.neg_()
    assert smooth.predict(x, 200, 0.001, 100) == 1 - first
    assert not network.training


def test_a_decline_spends_less_and_gives_up_no_more():
    drawn = []

    def model(x):
        drawn.append(len(x))
        return above_half(x)

    x = torch.tensor([0.75, 0.0])
    _, full = Smooth(model, 2, 0.25).certify(x, 100, 20_000, 0.001, 100)
    fixed = sum(drawn)
    drawn.clear()
    _, less = Smooth(model, 2, 0.25, decline=0.05).certify(x, 100, 20_000, 0.001, 100)
    assert sum(drawn) < fixed / 3
    assert full - 0.1 < less <= 0.25


@pytest.mark.parametrize(("n", "sigma"), [(5, 0.25), (100, -1.0)])
def test_what_can_never_certify_is_one_sentence(n, sigma):
    with pytest.raises(InvalidInput, match=r"use at least 10|sigma must be"):
        Smooth(above_half, 2, sigma).certify(torch.zeros(2), 5, n, 0.001, 100)


def test_without_samples_no_class_can_be_chosen():
    with pytest.raises(InvalidInput, match="n0 must be at least 1, got 0"):
        Smooth(above_half, 2, 0.25).certify(torch.zeros(2), 0, 100, 0.001, 100)

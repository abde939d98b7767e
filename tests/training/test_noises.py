"""Training under another noise: the recipe stays, the noise is exchanged, and the weights file tells it."""

import numpy as np
import pytest
import torch
from tests.refusals import refused

from smoothcert import Ablation, GridGaussian, Splitting, Uniform
from smoothcert.models import load_classifier
from smoothcert.noises import Gaussian as GaussianNoise
from smoothcert.training import Recipe, method_named, train
from smoothcert.training.methods.base import noisy_copies


@pytest.mark.parametrize("noise", [Uniform(0.5), Ablation(45), Splitting(0.5, 255)], ids=str)
def test_weights_record_their_noise_and_fit_it(small, tmp_path, noise):
    training, validation = small
    recipe = Recipe("fashion-cnn", method_named("gaussian", noise=noise), epochs=1, batch=64)
    trained = train(recipe, training, validation, out=tmp_path, device="cpu")
    assert train(recipe, training, validation, out=tmp_path, device="cpu").epochs_now == 0
    classifier = load_classifier(None, weights=trained.weights)
    assert classifier.trained_noise == noise
    assert classifier.input_shape == noise.draw.output_shape((1, 28, 28))
    assert classifier.module(torch.rand(2, *classifier.input_shape)).shape == (
        2,
        classifier.classes,
    )


def test_gaussian_noise_is_recorded_as_before():
    method = method_named("gaussian", noise=GaussianNoise(0.5))
    assert method == method_named("gaussian", sigma=0.5)
    assert "noise" not in Recipe("fashion-cnn", method, epochs=1).settings()


def test_other_methods_need_gaussian_noise():
    with refused("only-gaussian-noise", method="macer", noise=Uniform(0.5)):
        method_named("macer", noise=Uniform(0.5))


def test_copies_are_drawn_with_the_noise_of_the_method():
    torch.manual_seed(0)
    x = torch.full((50, 1, 28, 28), 51 / 255)
    flat = noisy_copies(x, 2, sigma=0, noise=Uniform(0.5))
    assert flat.shape == (2, 50, 1, 28, 28)
    assert (flat - x).abs().max() <= 0.5
    assert (flat - x).std() == pytest.approx(0.5 / np.sqrt(3), rel=0.01)
    levels = 255 * noisy_copies(x, 1, sigma=0, noise=GridGaussian(0.25)).double()
    assert (levels - levels.round()).abs().max() < 1e-3
    assert levels.std() / 255 == pytest.approx(0.25, rel=0.02)

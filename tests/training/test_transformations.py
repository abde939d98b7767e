"""Training on turned and zoomed pictures."""

import warnings

import pytest
import torch
from tests.refusals import refused
from tests.training.test_loop import Interrupted, interrupt_after, recipe

from smoothcert.errors import SmoothcertWarning
from smoothcert.models import load_classifier
from smoothcert.noises import Gaussian, transformed
from smoothcert.noises.transformed import Rotation, Zoom
from smoothcert.smoothed.checks import warn_about_training
from smoothcert.training import train
from smoothcert.transformations.pictures import transform, transform_at_random


def test_training_sees_pictures_that_are_turned_within_the_largest_angle_and_masked():
    x = torch.rand(64, 3, 9, 9)
    torch.manual_seed(0)
    turned = transform_at_random(x, Rotation(Gaussian(0.1), 10))
    torch.manual_seed(0)
    angles = 10 * (2 * torch.rand(64) - 1)
    assert torch.equal(turned, transform(x, Rotation(Gaussian(0.1)), angles))
    assert (turned[:, :, 0, 0] == 0).all()  # a corner is outside of the disk
    assert (turned[:, :, 4, 4] - x[:, :, 4, 4]).abs().max() < 1e-6  # the centre stays


@pytest.mark.parametrize("kind", [Rotation, Zoom])
def test_a_model_learns_transformed_pictures_and_training_resumes(kind, small, tmp_path):
    turned = recipe(epochs=2, transformation=kind(Gaussian(0.25)))
    whole = train(turned, *small, out=tmp_path / "whole", device="cpu")
    with pytest.raises(Interrupted):
        train(
            turned,
            *small,
            out=tmp_path / "broken",
            device="cpu",
            checkpoint_seconds=0,
            on_epoch=interrupt_after(1),
        )
    resumed = train(turned, *small, out=tmp_path / "broken", device="cpu")
    assert resumed.weights.read_bytes() == whole.weights.read_bytes()
    plain = train(recipe(epochs=2), *small, out=tmp_path / "plain", device="cpu")
    assert plain.weights.read_bytes() != whole.weights.read_bytes()
    assert load_classifier(None, weights=plain.weights).trained_transformation is None
    classifier = load_classifier(None, weights=whole.weights)
    assert classifier.trained_transformation == turned.transformation
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_about_training(classifier, kind(Gaussian(0.25), 5))
    for other in (Gaussian(0.25), (Zoom if kind is Rotation else Rotation)(Gaussian(0.25))):
        with pytest.warns(SmoothcertWarning, match=f"for {turned.transformation.title}"):
            warn_about_training(classifier, other)
    with pytest.warns(SmoothcertWarning, match="trained differently"):
        load_classifier(None, weights=[whole.weights, plain.weights])


def test_the_command_takes_a_transformation_with_its_largest_amount():
    transformation = transformed(Gaussian(0.25), "zoom:25")
    assert transformation == Zoom(Gaussian(0.25), 25.0)
    assert transformed(Gaussian(0.25), "rotation") == Rotation(Gaussian(0.25))
    with refused("unknown-name"):
        transformed(Gaussian(0.25), "shear")
    with refused("unfit-numbers"):
        transformed(Gaussian(0.25), "rotation:10,20")

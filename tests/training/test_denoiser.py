"""Training of denoisers."""

import copy
import math

import numpy as np
import pytest
import torch
from safetensors import safe_open
from tests.refusals import refused
from torch import nn

from smoothcert.data import ArrayDataset
from smoothcert.models import Classifier
from smoothcert.models.denoisers import load_denoiser
from smoothcert.models.denoisers.unet import UNet
from smoothcert.training import Denoising, Recipe, method_named, train
from smoothcert.training.methods.denoiser import stability_loss
from smoothcert.training.step import optimizer_of, share_of_step


def stripes(count, seed, shape=(1, 8, 8)):
    """Images of one grey value per row, without labels."""
    rows = np.random.default_rng(seed).integers(0, 256, (count, 1, shape[1], 1), np.uint8)
    return ArrayDataset(np.broadcast_to(rows, (count, *shape)).copy(), name="stripes")


@pytest.fixture(scope="module")
def images():
    return stripes(256, 0), stripes(64, 1)


def recipe(epochs=3, **other):
    return Recipe(
        "unet-small", Denoising(0.5, 0.1), epochs=epochs, batch=16, learning_rate=3e-3, **other
    )


class Interrupted(Exception):
    pass


def test_a_denoiser_learns_from_images_without_labels(images, tmp_path):
    epochs = []
    trained = train(recipe(), *images, out=tmp_path, device="cpu", on_epoch=epochs.append)
    noisy = Denoising(0.5, 0.1).noisy_psnr
    assert noisy == pytest.approx(-20 * math.log10(math.sqrt(0.5 * 0.1)))
    assert trained.psnr == epochs[-1].psnr > noisy + 4
    assert epochs[-1].train_psnr > epochs[0].train_psnr
    assert trained.accuracy is None


def test_the_file_is_the_denoiser_that_was_validated(images, tmp_path):
    trained = train(recipe(), *images, out=tmp_path, device="cpu")
    with safe_open(trained.weights, framework="pt") as file:
        metadata = file.metadata()
    assert {
        key: metadata[key] for key in ("method", "architecture", "sigma_low", "sigma_high", "shape")
    } == {
        "method": "denoiser",
        "architecture": "unet-small",
        "sigma_low": "0.1",
        "sigma_high": "0.5",
        "shape": "[1, 8, 8]",
    }
    denoiser = load_denoiser(trained.weights)
    assert denoiser.sigmas == (0.1, 0.5)
    x = torch.stack([images[1][index][0] for index in range(64)]).repeat(20, 1, 1, 1)
    torch.manual_seed(0)
    with torch.no_grad():
        method = Denoising(0.5, 0.1)
        scores = method.score(method.outputs(denoiser, x), x, torch.zeros(len(x)))
    assert trained.psnr == pytest.approx(
        scores.mean().item(), abs=4 * scores.std().item() / math.sqrt(64)
    )


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(images, tmp_path):
    def stop(epoch):
        if epoch.number == 2:
            raise Interrupted

    whole = train(recipe(), *images, out=tmp_path / "whole", device="cpu")
    broken = {"out": tmp_path / "broken", "device": "cpu", "checkpoint_seconds": 0}
    with pytest.raises(Interrupted):
        train(recipe(), *images, on_epoch=stop, **broken)
    resumed = train(recipe(), *images, **broken)
    assert resumed.epochs_now == 1
    assert resumed.weights.read_bytes() == whole.weights.read_bytes()
    again = train(recipe(), *images, **broken)
    assert again.psnr == pytest.approx(whole.psnr, abs=1e-4)


def test_the_loss_is_the_error_in_units_of_the_output_scale():
    class Blurred(UNet):
        def denoise(self, x, sigma):
            return x  # the error is the noise itself

    torch.manual_seed(0)
    x = torch.rand(512, 1, 8, 8)
    model = Blurred(1, (4, 4), 1, 1, (0.0, 1.0), (1, 8, 8))
    loss = Denoising(0.5).objective(model, x, None, None).loss.item()
    assert loss == pytest.approx((0.5**2 + 0.25**2) / 0.25**2, rel=0.02)  # sigma^2 / c_out^2


def test_sigmas_are_drawn_for_each_image_with_a_uniform_logarithm():
    seen = []

    class Spy(UNet):
        def denoise(self, x, sigma):
            seen.append(sigma)
            return x

    spy = Spy(1, (4, 4), 1, 1, (0.0, 1.0), (1, 4, 4))
    Denoising(1.0, 0.01).outputs(spy, torch.rand(10_000, 1, 4, 4))
    logarithms = seen[0].log10()
    assert -2 <= logarithms.min() < -1.99
    assert -0.01 < logarithms.max() <= 0
    assert logarithms.mean() == pytest.approx(-1, abs=0.03)
    assert logarithms.std() == pytest.approx(2 / math.sqrt(12), abs=0.03)


def test_adamw_takes_the_steps_of_torchs_own():
    torch.manual_seed(0)
    ours, theirs = nn.Linear(5, 3), nn.Linear(5, 3)
    theirs.load_state_dict(ours.state_dict())
    first = optimizer_of(ours, recipe(weight_decay=0.1))
    first.param_groups[0]["lr"].fill_(0.01)
    second = torch.optim.AdamW(theirs.parameters(), lr=0.01, betas=(0.9, 0.99), weight_decay=0.1)
    for _ in range(5):
        x = torch.randn(8, 5)
        for module, optimizer in ((ours, first), (theirs, second)):
            optimizer.zero_grad()
            module(x).square().mean().backward()
            optimizer.step()
    assert torch.allclose(ours.weight, theirs.weight, atol=1e-6)


def test_the_running_mean_weighs_steps_by_a_power():
    mean, steps = 0.0, 200
    for number in range(1, steps + 1):
        mean += share_of_step(number) * (number - mean)
    # With the density t^gamma on (0, steps), the mean of t is steps * (gamma + 1) / (gamma + 2).
    assert mean == pytest.approx(steps * 18 / 19, rel=0.01)


def test_training_can_start_from_another_denoiser(images, tmp_path):
    first = train(recipe(), *images, out=tmp_path / "first", device="cpu")
    start = load_denoiser(first.weights)
    gentle = Recipe("unet-small", Denoising(0.5, 0.1), epochs=1, batch=16, learning_rate=1e-6)
    trained = train(gentle, *images, out=tmp_path / "second", device="cpu", denoiser=start)
    assert trained.psnr == pytest.approx(first.psnr, abs=0.5)
    other = Recipe("unet", Denoising(0.5), epochs=1, batch=16)
    with refused("other-denoiser", architecture="unet"):
        train(other, *images, out=tmp_path / "third", device="cpu", denoiser=start)


class Brightness(nn.Module):
    """Two classes: bright or dark on average. It has a weight, which a denoiser must not change."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(8.0))
        self.norm = nn.BatchNorm1d(1, momentum=0.5)

    def forward(self, x):
        assert not self.training
        mean = self.norm(x.flatten(1).mean(1, keepdim=True) - 0.5)
        return self.scale * torch.cat((-mean, mean), 1)


def brightness():
    return Classifier(Brightness().eval(), classes=2, name="brightness", weights_hash="0" * 64)


def test_the_stability_loss_is_the_divergence_of_the_classifiers_answers():
    clean, denoised = (
        torch.tensor([[0.7, 0.3], [0.5, 0.5]]).log(),
        torch.tensor([[0.6, 0.4], [0.5, 0.5]]).log(),
    )
    expected = (0.7 * math.log(0.7 / 0.6) + 0.3 * math.log(0.3 / 0.4)) / 2
    assert stability_loss(denoised, clean).item() == pytest.approx(expected, rel=1e-5)


def test_stability_changes_the_denoiser_and_not_the_classifier(images, tmp_path):
    classifier = brightness()
    before = copy.deepcopy(classifier.module.state_dict())
    weights = []
    for name, method, judge in (
        ("plain", Denoising(0.5), None),
        ("stable", Denoising(0.5, stability=3.0), classifier),
    ):
        own = Recipe("unet-small", method, epochs=1, batch=16)
        trained = train(own, *images, out=tmp_path / name, device="cpu", classifier=judge)
        weights.append(load_denoiser(trained.weights).state_dict())
    assert weights[0].keys() == weights[1].keys()
    assert not torch.equal(weights[0]["enter.weight"], weights[1]["enter.weight"])
    assert all(
        torch.equal(before[name], tensor) for name, tensor in classifier.module.state_dict().items()
    )
    assert classifier.module.scale.requires_grad


@pytest.mark.parametrize(
    ("architecture", "method"),
    [("fashion-cnn", Denoising(0.5)), ("unet", method_named("gaussian", sigma=0.5))],
)
def test_the_architecture_must_be_one_that_the_method_trains(architecture, method):
    with refused("not-one-of", name="architecture", value=architecture):
        Recipe(architecture, method, epochs=1)


def test_the_smallest_sigma_is_not_above_the_largest():
    with refused("sigmas-not-in-order", sigma_low=0.5, sigma=0.1):
        Denoising(0.1, 0.5)


def test_images_that_do_not_fit_the_unet_are_refused(tmp_path):
    images = stripes(32, 0, (1, 7, 7))
    with refused("edges-of-denoiser"):
        train(recipe(), images, images, out=tmp_path, device="cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.filterwarnings("ignore")  # warnings of the compiler
def test_a_denoiser_trains_on_cuda_compiled_and_captured(images, tmp_path, own_records):
    plain, fast = (
        train(recipe(), *images, out=tmp_path / mode, device="cuda", compile=mode).psnr
        for mode in ("none", "default")
    )
    assert not own_records()  # a failed capture is logged
    assert fast == pytest.approx(plain, abs=1.0)
    assert fast > Denoising(0.5, 0.1).noisy_psnr + 4


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.filterwarnings("ignore")  # warnings of the compiler
def test_stability_trains_on_cuda_compiled_and_captured(images, tmp_path, own_records):
    own = Recipe(
        "unet-small", Denoising(0.5, 0.1, stability=1.0), epochs=3, batch=16, learning_rate=3e-3
    )
    trained = train(own, *images, out=tmp_path, device="cuda", classifier=brightness())
    assert not own_records()
    assert trained.psnr > Denoising(0.5, 0.1).noisy_psnr + 4

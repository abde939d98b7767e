"""`sigma=`: Gaussian noise, which is drawn on the grid of 8-bit images on CUDA. CUDA is faked."""

import numpy as np
import pytest
import torch
from PIL import Image

import smoothcert as sc
from smoothcert.data import load_dataset
from smoothcert.device.runtime import Runtime
from smoothcert.executors import LocalExecutor
from smoothcert.models import Classifier
from smoothcert.runs.progress import Progress
from smoothcert.tasks.audit import audit

BYTES = np.random.default_rng(0).integers(0, 256, (12, 1, 3, 3), np.uint8)
LABELS = (BYTES[:, 0, 0, 0] > 127).astype(int)


def above_half(x):
    value = x[:, 0, 0, 0]
    return torch.stack([0.5 - value, value - 0.5], 1)


def certify(out, data=(BYTES, LABELS), model=above_half, **settings):
    defaults = {"plan": sc.Fixed(500), "device": "cpu", "dtype": "float32", "batch": 500}
    return sc.certify(model, data, out=out, **(defaults | settings))


class LikeCuda(Runtime):
    """A CPU on which noise on a grid costs little, as on CUDA."""

    prefers_grid = True


class OnCuda(LocalExecutor):
    def resolve(self, *settings):
        return LikeCuda(**vars(super().resolve(*settings)))


class Said(Progress):
    def __init__(self):
        self.messages = []

    def say(self, message):
        self.messages.append(message)


def test_bytes_on_cuda_get_noise_on_their_grid(tmp_path):
    said = Said()
    run = certify(tmp_path, executor=OnCuda(), sigma=0.25, progress=said)
    assert run.noise == run.manifest.noise == sc.GridGaussian(0.25, size=9)
    assert said.messages[:1] == [
        "noise on the grid of 8-bit images, exact in floating point: grid-gaussian:0.25 "
        "(off the grid: noise=Gaussian(0.25))"
    ]
    assert not audit(tmp_path, redraw=3, model=above_half, data=(BYTES, LABELS)).findings


def test_its_radii_are_those_of_the_named_noise(tmp_path):
    chosen = certify(tmp_path / "a", executor=OnCuda(), sigma=0.25)
    named = certify(tmp_path / "b", executor=OnCuda(), noise=sc.GridGaussian(0.25))
    assert chosen.radius.tolist() == named.radius.tolist()
    assert (chosen.radius > 0).any()


@pytest.mark.parametrize("data", [(BYTES, LABELS), (BYTES / 255, LABELS)], ids=["bytes", "floats"])
def test_on_a_cpu_sigma_is_plain_gaussian_noise(tmp_path, data):
    said = Said()
    run = certify(tmp_path / "a", data, sigma=0.25, progress=said)
    assert run.noise == sc.Gaussian(0.25)
    assert not any("grid" in message for message in said.messages)
    assert (
        run.radius.tolist()
        == certify(tmp_path / "b", data, noise=sc.Gaussian(0.25)).radius.tolist()
    )


def test_data_without_a_known_grid_gets_plain_gaussian_noise(tmp_path):
    assert certify(
        tmp_path / "a", (BYTES / 255, LABELS), executor=OnCuda(), sigma=0.25
    ).noise == sc.Gaussian(0.25)
    assert certify(
        tmp_path / "b", list(BYTES / 255), executor=OnCuda(), sigma=0.25
    ).noise == sc.Gaussian(0.25)


def test_plain_noise_that_is_asked_for_stays_plain(tmp_path):
    assert certify(tmp_path, executor=OnCuda(), noise=sc.Gaussian(0.25)).noise == sc.Gaussian(0.25)


def test_noise_too_large_for_a_grid_is_plain(tmp_path):
    assert certify(tmp_path, executor=OnCuda(), sigma=20.0).noise == sc.Gaussian(20.0)


@pytest.mark.parametrize(
    "noise", [sc.Gaussian(0.25), sc.GridGaussian(0.25), sc.GridGaussian(0.25, 1 / 510)], ids=str
)
@pytest.mark.parametrize("executor", [LocalExecutor, OnCuda])
def test_a_resumed_run_keeps_its_noise(tmp_path, noise, executor):
    begun = certify(tmp_path, noise=noise, limit=4)
    said = Said()
    run = certify(tmp_path, sigma=0.25, progress=said, executor=executor())
    assert run.noise == begun.noise
    assert len(run) == 12
    assert not any("grid" in message for message in said.messages)
    assert run.radius.tolist() == certify(tmp_path / "whole", noise=noise).radius.tolist()


def test_a_run_with_another_sigma_or_another_noise_is_not_resumed(tmp_path):
    certify(tmp_path, executor=OnCuda(), sigma=0.25, limit=4)
    with pytest.raises(sc.InvalidInput, match="holds another run"):
        certify(tmp_path, executor=OnCuda(), sigma=0.5)
    with pytest.raises(sc.InvalidInput, match="holds another run"):
        certify(tmp_path, executor=OnCuda(), noise=sc.Gaussian(0.25))
    certify(tmp_path / "uniform", executor=OnCuda(), noise=sc.Uniform(0.25), limit=4)
    with pytest.raises(sc.InvalidInput, match="holds another run"):
        certify(tmp_path / "uniform", executor=OnCuda(), sigma=0.25)


def test_a_model_that_was_trained_on_the_grid_fits_both(tmp_path):
    model = Classifier(above_half, 2, "mine", trained_noise=sc.GridGaussian(0.25))
    certify(
        tmp_path, model=model, sigma=0.25, limit=1
    )  # without a warning, which would be an error


def test_data_sets_know_whether_they_hold_bytes(tmp_path):
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "image.png")
    np.savez(tmp_path / "floats.npz", x=np.zeros((2, 3)))
    found = [
        load_dataset(spec).levels for spec in ("fashion-mnist", tmp_path, tmp_path / "floats.npz")
    ]
    assert found == [255, 255, None]

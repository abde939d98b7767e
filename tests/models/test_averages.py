"""Ensembles and local smoothing: means of logits, as the classifier that is certified."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.refusals import refused
from torch import nn

import smoothcert as sc
from smoothcert.data import find_dataset
from smoothcert.errors import SmoothcertWarning
from smoothcert.models.architectures import build
from smoothcert.models.wrappers import Ensemble, LocalMean
from smoothcert.runs.progress import Progress
from smoothcert.tasks.audit import audit

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 1, 28, 28), dtype=np.uint8)
LABELS = [0, 1, 0, 1, 0, 1]
SETTINGS = {"sigma": 0.25, "device": "cpu", "dtype": "float32", "batch": 32, "compile": "none"}
PLAN = sc.Fixed(200, pilot=20)


class Killed(Exception):
    """Stands for a process that dies in the middle of a run."""


class KilledAfter(Progress):
    """Kills a run after some certificates."""

    def __init__(self, certificates):
        self.left = certificates

    def update(self, certificate, status):
        self.left -= 1
        if not self.left:
            raise Killed


@pytest.fixture
def files(tmp_path):
    """The weights of three small networks."""
    paths = []
    for seed in range(3):
        torch.manual_seed(seed)
        paths.append(tmp_path / f"weights-{seed}.safetensors")
        network = build("fashion-cnn", classes=10, channels=1)
        save_file(network.state_dict(), paths[-1], {"architecture": "fashion-cnn"})
    return paths


def joined(files):
    return ",".join(map(str, files))


def votes(run):
    return [certificate.looks for certificate in run]


def certified(out, progress=None, **settings):
    model = settings.pop("model", "fashion-cnn")
    progress = progress or Progress()
    data = (IMAGES, LABELS)
    return sc.certify(model, data, out=out, plan=PLAN, progress=progress, **(SETTINGS | settings))


def classifier_of(**settings):
    """The classifier that would be certified, with its settings."""
    subject = sc.Smoothed(settings.pop("model", "fashion-cnn"), **(SETTINGS | settings))
    return subject.bind(find_dataset((IMAGES, LABELS)), range(6)).classifier


def test_an_ensemble_is_the_mean_of_the_logits_of_its_members(files):
    x = torch.rand(5, 1, 28, 28)
    members = [sc.load_classifier("fashion-cnn", weights=file).module for file in files]
    mean = sum(member(x) for member in members) / 3
    for model in ("fashion-cnn", None):
        together = classifier_of(model=model, weights=joined(files))
        assert torch.allclose(together.module(x), mean, atol=1e-6)
    assert together.name == "fashion-cnn"
    for same in (files, f"{joined(files)},"):
        assert classifier_of(weights=same).weights_hash == together.weights_hash
    assert sc.Smoothed("fashion-cnn", weights=files, sigma=0.25).weights == joined(files)
    assert together.weights_hash != classifier_of(weights=joined(files[:2])).weights_hash


def test_members_that_were_trained_differently_are_named(files):
    save_file(load_file(files[1]), files[1], {"architecture": "fashion-cnn", "sigma": "0.5"})
    with pytest.warns(
        SmoothcertWarning, match="unknown noise; with noise of deviation 0.5"
    ) as seen:
        sc.load_classifier(None, weights=joined(files))
    assert seen[0].message.code == "other-training"


def test_members_that_were_trained_behind_other_denoisers_are_named(files):
    for file, denoiser in zip(files, ("1" * 64, "1" * 64, "2" * 64), strict=True):
        save_file(load_file(file), file, {"architecture": "fashion-cnn", "denoiser": denoiser})
    sc.load_classifier(None, weights=joined(files[:2]))
    with pytest.warns(SmoothcertWarning) as seen:
        sc.load_classifier(None, weights=joined(files))
    assert seen[0].message.code == "other-training"
    assert seen[0].message.fields["trained"] == (
        "with unknown noise behind the denoiser 11111111; with unknown noise behind the denoiser 22222222"
    )


@pytest.mark.parametrize("weights", ["", ",", []])
def test_weights_that_name_no_file_are_refused(weights):
    with refused("no-weights-named"):
        sc.Smoothed("fashion-cnn", weights=weights, sigma=0.25)


def test_a_file_whose_name_has_a_comma_is_one_file(files):
    odd = files[0].rename(files[0].with_name("a,b.safetensors"))
    module = sc.load_classifier("fashion-cnn", weights=odd).module
    assert not isinstance(module, Ensemble)


def test_local_smoothing_is_the_mean_over_noises_of_the_stated_size(files):
    classifier = classifier_of(weights=str(files[0]), local="64,0.5")
    module = classifier.module
    x = torch.rand(3, 1, 28, 28)
    each = torch.stack([module.classifier(x + noise) for noise in module.noises])
    assert torch.allclose(module(x), each.mean(0), atol=1e-6)
    assert module.noises.shape == (64, 1, 28, 28)
    assert abs(float(module.noises.std()) - 0.5) < 0.01
    assert abs(float(module.noises.mean())) < 0.01
    assert not torch.equal(module.noises[0], module.noises[1])


def test_the_noises_of_local_smoothing_are_after_the_denoiser(files):
    denoiser = nn.Hardtanh(0.0, 1.0)
    classifier = classifier_of(weights=str(files[0]), local=(2, 0.25), denoiser=denoiser)
    assert isinstance(classifier.module.classifier, LocalMean)
    x = 3 * torch.randn(4, 1, 28, 28)
    local = classifier_of(weights=str(files[0]), local=(2, 0.25)).module
    assert torch.allclose(classifier.module(x), local(x.clamp(0, 1)), atol=1e-6)


def test_votes_of_local_smoothing_do_not_depend_on_seed_batch_or_packing(files, tmp_path):
    settings = {"weights": str(files[0]), "local": "3,0.25"}
    one = certified(tmp_path / "one", **settings)
    assert votes(one) == votes(certified(tmp_path / "b", batch=7, **settings))
    assert votes(one)[3:4] == votes(certified(tmp_path / "c", ids=[3], **settings))
    noises = [classifier_of(seed=seed, **settings).module.noises for seed in (0, 1)]
    assert torch.equal(*noises)


@pytest.mark.parametrize(
    "average", [{"local": "3,0.25"}, {"ensemble": 3}, {"local": "2,0.1", "ensemble": 2}]
)
def test_a_killed_run_with_a_mean_resumes_to_the_same_votes_and_is_audited(
    average, files, tmp_path
):
    settings = {"weights": joined(files[: average.pop("ensemble", 1)]), **average}
    whole = certified(tmp_path / "whole", **settings)
    with pytest.raises(Killed):
        certified(tmp_path / "killed", KilledAfter(3), **settings)
    assert not sc.open_run(tmp_path / "killed").complete
    resumed = certified(tmp_path / "killed", **settings)
    assert votes(resumed) == votes(whole)
    assert not audit(tmp_path / "killed", data=(IMAGES, LABELS)).findings


@pytest.mark.annexes
def test_means_of_logits_are_traced_and_run_fused(files):
    from smoothcert.kernels.tracing import trace

    classifier = classifier_of(weights=joined(files[:2]), local="2,0.25")
    traced = trace(classifier.module, (1, 28, 28))
    x = torch.rand(4, 1, 28, 28)
    assert torch.allclose(traced(x), classifier.module(x), atol=1e-5)


def test_a_run_names_the_local_noises_that_differ(files, tmp_path):
    certified(tmp_path / "run", weights=str(files[0]), local="3,0.25", limit=1)
    for other in ("3,0.5", None):
        with refused("other-configuration") as error:
            certified(tmp_path / "run", weights=str(files[0]), local=other)
        assert "local" in error.value.fields["names"]


@pytest.mark.parametrize(
    "local", ["5", "0,0.25", "5,-1", "5,nan", "x,y", "1,2,3", 5, "100000000,0.25"]
)
def test_local_smoothing_needs_a_number_and_a_deviation(local):
    with refused("not-local"):
        sc.Smoothed("fashion-cnn", sigma=0.25, local=local)


def test_what_has_no_mean_is_refused(files, tmp_path):
    def labels(x):
        return x.flatten(1).argmax(1) % 2

    class Labels(nn.Module):
        def forward(self, x):
            return labels(x)

    with refused("not-a-module"):
        classifier_of(model=labels, classes=2, local="3,0.25")
    with refused("mean-of-labels"):
        certified(tmp_path, model=Labels(), classes=2, local="3,0.25")
    torch.manual_seed(0)
    wider = build("cifar-resnet20", classes=10, channels=3).state_dict()
    other = files[0].with_name("other.safetensors")
    save_file(wider, other, {"architecture": "cifar-resnet20"})
    with refused("other-members"):
        sc.load_classifier(None, weights=joined([files[0], other]))

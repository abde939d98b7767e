"""Runs with a denoiser: certify, resume, audit, bench, and classifiers in memory."""

import shutil

import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import nn

import smoothcert as sc
from smoothcert.errors import InvalidInput
from smoothcert.models.denoisers import compose, denoised
from smoothcert.models.load import as_classifier
from smoothcert.runs.journal import Journal
from smoothcert.tasks.audit import audit

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (6, 1, 8, 8)) / 255
DATA = (IMAGES, [0, 1, 0, 1, 0, 1])
NOISE = sc.Gaussian(0.25)
RUNTIME = {"device": "cpu", "dtype": "float32", "batch": 100, "compile": "none"}


@pytest.fixture
def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 2)).requires_grad_(False).eval()


def certify(out, model, **settings):
    defaults = {
        "noise": NOISE,
        "plan": sc.Fixed(300, pilot=50),
        "progress": sc.Progress(),
    } | RUNTIME
    return sc.certify(model, settings.pop("data", DATA), out=out, **(defaults | settings))


def votes(run):
    return [certificate.looks for certificate in run]


def test_a_run_with_a_denoiser_is_a_run_of_the_composition(tmp_path, unet, network):
    run = certify(tmp_path / "a", network, denoiser=unet)
    assert votes(run) == votes(certify(tmp_path / "b", compose(network, unet, NOISE)))
    assert votes(run) != votes(certify(tmp_path / "c", network))
    assert votes(run) == votes(certify(tmp_path / "d", lambda x: network(x), denoiser=unet))


def test_the_manifest_names_the_denoiser(tmp_path, checkpoint, network):
    manifest = certify(tmp_path / "run", network, denoiser=checkpoint).manifest
    assert manifest.denoiser["name"] == str(checkpoint)
    assert len(manifest.denoiser["hash"]) == 64
    assert manifest.denoiser["description"] == "for sigma from 0.1 to 0.5"
    assert manifest.classifier == f"{manifest.model} behind {checkpoint}"


def test_without_a_denoiser_the_classifier_is_the_model(tmp_path, network):
    manifest = certify(tmp_path, network, limit=2).manifest
    assert manifest.denoiser is None
    assert manifest.classifier == manifest.model


def test_a_run_resumes_with_its_denoiser_also_from_another_place(tmp_path, checkpoint, network):
    certify(tmp_path / "run", network, denoiser=checkpoint, limit=3)
    moved = shutil.move(checkpoint, tmp_path / "moved.safetensors")
    run = certify(tmp_path / "run", network, denoiser=moved)
    assert run.complete
    assert len(run) == 6
    assert run.manifest.denoiser["name"] == str(moved)


def test_a_run_does_not_continue_with_another_denoiser(tmp_path, unet, checkpoint, network):
    for model in (network, lambda x: network(x)):
        folder = tmp_path / type(model).__name__
        certify(folder, model, denoiser=checkpoint, limit=2)
        with pytest.raises(
            InvalidInput, match=r"denoiser \(there .*denoiser.safetensors, now the default\)"
        ):
            certify(folder, model)
        unet.leave.bias += 1
        with pytest.raises(InvalidInput, match=r"denoiser.hash \(there .*, now .*\)"):
            certify(folder, model, denoiser=unet)


def test_an_audit_rebuilds_the_denoiser(tmp_path, checkpoint, unet, network):
    certify(tmp_path / "run", network, denoiser=checkpoint)
    assert not audit(tmp_path / "run", model=network, data=DATA).findings
    composed = denoised(as_classifier(network, classes=2, example=torch.rand(1, 8, 8)), unet, NOISE)
    assert not audit(tmp_path / "run", model=composed, data=DATA).findings
    moved = shutil.move(checkpoint, tmp_path / "moved.safetensors")
    with refused("no-weights-file"):
        audit(tmp_path / "run", model=network, data=DATA)
    assert not audit(tmp_path / "run", model=network, data=DATA, denoiser=moved).findings
    unet.leave.bias += 1
    with refused("changed-since", part="denoiser's weights"):
        audit(tmp_path / "run", model=network, data=DATA, denoiser=unet)


def test_a_damaged_record_of_the_denoiser_is_one_sentence(tmp_path, checkpoint, network):
    certify(tmp_path / "run", network, denoiser=checkpoint, limit=1)
    with Journal(tmp_path / "run", write=True) as journal, journal.transaction():
        journal.write_manifest({"denoiser": {"name": "x"}})
    with refused("unreadable-manifest"):
        sc.open_run(tmp_path / "run")


def test_a_random_classifier_can_stand_behind_a_denoiser(tmp_path, unet, network):
    def drops_pixels(x):
        return network(nn.functional.dropout(x, 0.1))

    run = certify(tmp_path, drops_pixels, denoiser=unet, stochastic=True, classes=2, limit=1)
    settings = {"model": drops_pixels, "data": DATA, "denoiser": unet}
    assert not audit(tmp_path, **settings).findings
    assert len(run) == 1


@pytest.mark.annexes
def test_grid_noise_and_other_number_formats_run(tmp_path, unet, network):
    assert len(certify(tmp_path / "grid", network, denoiser=unet, noise=sc.GridGaussian(0.25))) == 6
    run = certify(tmp_path / "reduced", network, denoiser=unet, dtype="bfloat16", compile="fast")
    assert (run.manifest.dtype, run.manifest.compile) == ("bfloat16", "fast")


@pytest.mark.filterwarnings("ignore:.*values lie in")
def test_an_input_outside_the_range_of_the_denoiser_is_refused_by_its_number(
    tmp_path, unet, network
):
    images = IMAGES.copy()
    images[3] *= 2
    with refused("values-out-of-range", id=3):
        certify(tmp_path, network, denoiser=unet, data=(images, DATA[1]))
    assert (
        len(certify(tmp_path / "module", network, denoiser=nn.Identity(), data=(images, DATA[1])))
        == 6
    )


def test_a_second_denoiser_is_refused(tmp_path, unet, network):
    composed = denoised(as_classifier(network, classes=2, example=torch.rand(1, 8, 8)), unet, NOISE)
    assert certify(tmp_path / "a", composed).manifest.denoiser is not None
    with refused("second-denoiser"):
        certify(tmp_path / "b", composed, denoiser=unet)


def test_a_smoothed_classifier_in_memory_takes_a_denoiser(unet, network):
    found, composed = (
        sc.Smoothed(model, noise=NOISE, denoiser=front, **RUNTIME).certify(
            *DATA, plan=sc.Fixed(300, pilot=50)
        )
        for model, front in ((network, unet), (compose(network, unet, NOISE), None))
    )
    assert votes(found) == votes(composed)


@pytest.mark.annexes
def test_bench_times_the_composition(unet):
    from benchmarks.bench import bench

    small, fitting = (
        sc.Smoothed("fashion-cnn-clean", noise=NOISE, denoiser=front, **RUNTIME)
        for front in (unet, nn.Identity())
    )
    with refused("shape-of-denoiser", expected=(1, 8, 8)):
        bench(small)
    assert bench(fitting, seconds=0.01).sampler > 0


@pytest.mark.annexes
def test_the_drop_in_classes_take_a_denoiser(unet, network):
    from smoothcert.compat.art import PyTorchRandomizedSmoothing
    from smoothcert.compat.cohen import Smooth

    plan, x = (
        {"n0": 50, "n": 300, "alpha": 0.001, "batch_size": 100},
        torch.from_numpy(IMAGES[0]).float(),
    )
    found = Smooth(network, 2, 0.25, denoiser=unet).certify(x, **plan)
    assert found == Smooth(compose(network, unet, NOISE), 2, 0.25).certify(x, **plan)
    settings = {"device_type": "cpu", "sample_size": 50, "scale": 0.25}
    behind = PyTorchRandomizedSmoothing(network, None, (1, 8, 8), 2, denoiser=unet, **settings)
    assert behind.certify(IMAGES[:1], 300)[1].tolist() == [found[1]]


@pytest.mark.annexes
def test_a_probe_takes_the_denoiser_for_each_sigma(unet, network):
    settings = {"copies": 8, "device": "cpu", "dtype": "float32", "sigmas": [0.25, 0.5]}
    found = sc.probe(network, DATA, denoiser=unet, **settings)
    assert found.levels[0] == sc.probe(network, DATA, **settings).levels[0]
    for level in found.levels[1:]:
        composed = compose(network, unet, sc.Gaussian(level.sigma))
        [_, alone] = sc.probe(composed, DATA, **(settings | {"sigmas": [level.sigma]})).levels
        assert level == alone
    assert found.classifier.endswith(f"behind {unet.name}")

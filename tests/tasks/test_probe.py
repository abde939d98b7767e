"""Probes against probabilities that are known, and against the votes of the smoothed classifier."""

from dataclasses import replace
from statistics import NormalDist
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import binomtest
from tests.refusals import refused

import smoothcert as sc
from smoothcert.models.denoisers import Denoiser
from smoothcert.sampling.streams import key_for
from smoothcert.smoothed.number_format import NumberFormat
from smoothcert.tasks.probe import Level


def halves(x):
    """The class is the sign of the first number."""
    return (x[:, 0] > 0).long()


def test_accuracy_is_the_probability_that_noise_does_not_cross_the_boundary():
    data = (np.array([[0.5, 0.0], [0.25, 1.0]], np.float32), [1, 1])
    found = sc.probe(
        halves, data, sigmas=[0.5, 0.25], copies=20_000, classes=2, device="cpu", batch=1000
    )
    assert [level.sigma for level in found.levels] == [0, 0.25, 0.5]
    assert found.levels[0].accuracy == 1
    for level in found.levels[1:]:
        exact = np.mean([NormalDist().cdf(distance / level.sigma) for distance in (0.5, 0.25)])
        assert level.accuracy == pytest.approx(exact, abs=0.01)
        assert level.majority == 1


def test_the_copies_are_samples_of_another_seed_than_that_of_a_run(tmp_path):
    data = (np.array([[0.1, 0.0]], np.float32), [1])
    options = {"classes": 2, "device": "cpu", "batch": 64}
    found = sc.probe(halves, data, sigmas=[0.5], copies=64, seed=5, **options)
    votes = []
    for seed in (5, key_for(5, "probe")):
        plan = sc.Fixed(100, pilot=64)
        [certificate] = sc.certify(
            halves,
            data,
            sigma=0.5,
            plan=plan,
            seed=seed,
            out=tmp_path / str(seed),
            progress=sc.Progress(),
            **options,
        )
        votes.append(certificate.looks[0].votes[1])
    assert found.levels[1].accuracy == votes[1] / 64 != votes[0] / 64


def above(x):
    return (x[:, 0] > 0.5).long()


def test_the_estimate_of_certified_accuracy_is_close_to_what_is_certified(tmp_path):
    distance = np.random.default_rng(0).uniform(-0.2, 0.5, 400).astype(np.float32)
    data = (0.5 + np.stack([distance, distance], 1), [1] * 400)
    options = {"classes": 2, "device": "cpu", "batch": 1000}
    radii = [0, 0.1, 0.3, 0.45, 1.5]
    found = (
        sc.probe(above, data, sigmas=[0.25], copies=1, radii=radii, limit=400, **options)
        .levels[1]
        .estimated
    )
    # A lower bound of 100,000 votes lies about 3.09 standard errors below the probability.
    p = np.array([NormalDist().cdf(float(x) / 0.25) for x in distance])
    certified = [
        float(np.mean(p - 3.09 * np.sqrt(p * (1 - p) / 1e5) > NormalDist().cdf(r / 0.25)))
        for r in radii
    ]
    assert list(found) == radii
    assert found.pop(1.5) is None  # 100,000 samples prove no radius above 3.8 sigma
    assert list(found.values()) == pytest.approx(certified[:-1], abs=0.03)


def test_the_batch_does_not_change_the_result():
    options = {"sigmas": [0.25], "limit": 20, "device": "cpu", "dtype": "float32"}
    one, other = (
        sc.probe("fashion-cnn-clean", "fashion-mnist", batch=b, **options) for b in (7, 64)
    )
    assert one.levels == other.levels


def test_each_sigma_gets_the_classifier_that_would_be_certified_with_it():
    found = sc.probe("fashion-cnn", "fashion-mnist", sigmas=[0.25, 0.5], device="cpu")
    clean = sc.probe("fashion-cnn-clean", "fashion-mnist", sigmas=[0.5], device="cpu")
    assert found.levels[2].accuracy > 0.75 > 0.6 > clean.levels[1].accuracy
    assert found.too_large == ()
    assert clean.too_large == (0.5,)


def test_inputs_come_from_all_parts_of_the_data_and_those_without_a_label_are_left_out():
    seen = []

    def model(x):
        seen.extend(x[:, 0].round().int().tolist())
        return torch.zeros(len(x), dtype=torch.long)

    x = np.arange(100, dtype=np.float32)[:, None] / 99
    found = sc.probe(
        lambda noisy: model(noisy * 99),
        (x, [-1, *[0] * 99]),
        sigmas=[1e-3],
        copies=1,
        limit=5,
        classes=2,
        device="cpu",
    )
    assert found.inputs == 4
    assert {24, 49, 74, 99} <= set(seen)
    assert (
        sc.probe(halves, (x, [0] * 100), sigmas=[1], ids="3,4", classes=2, device="cpu").inputs == 2
    )


def _found(*accuracies, classes=10):
    levels = tuple(
        Level(sigma, share, share)
        for sigma, share in zip((0, 0.12, 0.25, 0.5), accuracies, strict=False)
    )
    return sc.Probe("model", "data", classes, 100, 16, levels, "cpu", "float32", 1.0)


@pytest.mark.parametrize(
    ("accuracies", "reading"),
    [
        (
            (0.91, 0.8, 0.31, 0.1),
            "At sigma 0.25 the model is right on 31% of noisy inputs (91% without noise): put a denoiser in front of "
            "it, train it with noise or stay at sigma 0.12 (80%).",
        ),
        (
            (0.91, 0.3),
            "At sigma 0.12 the model is right on 30% of noisy inputs (91% without noise): put a denoiser in front of "
            "it or train it with noise.",
        ),
        (
            (0.91, 0.9, 0.85),
            "At sigma 0.25 the model is right on 85% of noisy inputs (91% without noise): this noise is not too large "
            "for it.",
        ),
        (
            (0.12, 0.1),
            "Without noise, the model is right on only 12% of the inputs, and guessing on 10%: check its weights, its "
            "preprocessing, the units of the inputs, and the order of labels and classes.",
        ),
    ],
)
def test_the_reading_says_what_to_do(accuracies, reading):
    assert _found(*accuracies).reading == reading


def test_half_of_the_answers_is_no_more_than_chance_only_with_two_classes():
    assert "check its weights" in _found(0.52, 0.5, classes=2).reading
    assert "check its weights" not in replace(_found(0.52, 0.5), classes=1000).reading


def test_a_low_accuracy_on_folders_with_names_may_be_another_order_of_classes(tmp_path):
    for name, grey in (("dark", 20), ("bright", 220)):
        (tmp_path / name).mkdir()
        Image.fromarray(np.full((4, 4), grey, np.uint8)).save(tmp_path / name / "a.png")
    settings = {"sigmas": [0.1], "classes": 10, "device": "cpu"}
    found = sc.probe(lambda x: (x.mean((1, 2, 3)) > 0.5).long(), str(tmp_path), **settings)
    assert found.labels_are_positions
    low = replace(found, levels=_found(0.4, 0.4).levels)
    assert "the order of labels and classes" in low.reading
    assert "the order" not in replace(low, labels_are_positions=False).reading


def test_what_the_model_keeps_is_counted_above_chance():
    found = replace(_found(0.66, 0.63, 0.51, classes=2), inputs=10_000)
    assert found.threshold == pytest.approx(0.62)
    assert found.too_large == (0.25,)
    assert "train it with noise or stay at sigma 0.12" in found.reading


def test_few_inputs_leave_a_verdict_open():
    doubt = " noise is too large where the model is right on less than 78%, and on other inputs it may be right on "
    for accuracy, few in ((0.8, "56% to 94%."), (0.75, "51% to 91%.")):
        found = replace(_found(1.0, accuracy), inputs=20)
        assert found.reading.endswith(doubt + few)
        assert "too few" not in replace(found, inputs=10_000).reading
    low, high = found.plain()["levels"][1]["interval"]
    assert (low, high) == pytest.approx(tuple(binomtest(15, 20).proportion_ci(0.95)))


def test_a_random_denoiser_or_model_is_probed_if_it_says_so():
    def drops(x):
        return halves(torch.nn.functional.dropout(x, 0.5))

    class Drops(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.dropout(x, 0.5)

    options = {"sigmas": [0.25], "copies": 50, "classes": 2, "device": "cpu"}
    data = (np.array([[0.5, 0.0]], np.float32), [1])
    with refused("estimate-changes"):
        sc.probe(halves, data, denoiser=Drops(), **options)
    behind = sc.probe(halves, data, denoiser=Drops(), stochastic=True, **options)
    alone = sc.probe(drops, data, stochastic=True, **options)
    assert behind.levels[0].accuracy == 1  # without noise there is no denoiser
    assert 0.2 < behind.levels[1].accuracy < 0.8  # half of the values are dropped
    assert behind.levels[1] == alone.levels[1]


def test_a_classifier_is_prepared_again_if_a_sigma_needs_another_number_format(monkeypatch):
    formats = []

    class Recording(torch.nn.Linear):
        def forward(self, x):
            formats.append(x.dtype)
            return super().forward(x)

    def settled(runtime, module, inputs, *, classes, noise):
        dtype = "float32" if noise.sigma > 0.3 else "bfloat16"
        return NumberFormat(replace(runtime, dtype=dtype))

    monkeypatch.setattr("smoothcert.smoothed.subject.settle_number_format", settled)
    data = (np.array([[0.5, 0.0]], np.float32), [1])
    found = sc.probe(Recording(2, 2).eval(), data, sigmas=[0.25, 0.5], device="cpu")
    assert torch.bfloat16 in formats
    assert formats[-1] == torch.float32
    assert found.dtype == "float32"


@pytest.mark.parametrize(
    ("options", "code", "fields"),
    [
        ({"sigmas": [0]}, "no-sigma", {}),
        ({"sigmas": [-0.5]}, "not-at-least", {"name": "each sigma", "value": -0.5}),
        ({"copies": 0}, "too-small", {"name": "copies"}),
        ({"noise": sc.Gaussian(0.5)}, "noise-of-probe", {}),
        ({"transform": "rotation"}, "noise-of-probe", {}),
    ],
)
def test_a_mistake_is_refused(options, code, fields):
    with refused(code, **fields):
        sc.probe(halves, ([[0.5, 0.0]], [1]), classes=2, device="cpu", **options)


def test_inputs_without_any_label_are_refused():
    with refused("no-labels", data="array"):
        sc.probe(halves, np.zeros((2, 2), np.float32), classes=2, device="cpu")


class Recorder(Denoiser):
    """Returns zeros, and keeps the sigmas that it was told."""

    told: ClassVar[set[float]] = set()

    def __init__(self):
        super().__init__(sigmas=(0.1, 1.0))

    def denoise(self, x, sigma):
        self.told.add(round(float(sigma[0]), 3))
        return torch.zeros_like(x)


def test_a_denoiser_is_told_each_sigma_and_is_not_used_without_noise():
    options = {"sigmas": [0.25, 0.5], "limit": 30, "device": "cpu", "dtype": "float32"}
    found = sc.probe("fashion-cnn-clean", "fashion-mnist", denoiser=Recorder(), **options)
    assert Recorder.told == {0.25, 0.5}
    assert found.levels[0].accuracy > 0.8
    assert {level.accuracy for level in found.levels[1:]} == {
        found.levels[1].majority
    }  # one answer for all
    assert found.levels[1].accuracy < 0.4
    assert "use a better denoiser" in found.reading


class Halving(sc.Denoiser):
    def denoise(self, x, sigma):
        return x


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.2, 0.6, [0.25, 0.5]), (0.3, 0.4, [0.3, 0.4]), (0.3, 0.3, [0.3])],
)
def test_the_sigmas_of_a_denoiser_are_the_default(low, high, expected):
    found = sc.probe(
        "fashion-cnn-clean",
        "fashion-mnist",
        denoiser=Halving((low, high)),
        limit=4,
        copies=2,
        device="cpu",
    )
    assert [level.sigma for level in found.levels] == [0.0, *expected]

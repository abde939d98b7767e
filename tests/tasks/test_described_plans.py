"""Plans and protocols in the words of the command line."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import beta, norm
from tests.refusals import refused

import smoothcert as sc
from smoothcert.runs.words import summary

pytestmark = pytest.mark.filterwarnings("ignore:input 0 of", "ignore:the pilot is counted again")
SETTINGS = {"sigma": 0.5, "classes": 2, "device": "cpu", "batch": 500}
DATA = [([0.3 * i - 0.5, 0.0], int(i > 1)) for i in range(6)]


def above_half(x):
    return (x[:, 0] > 0).long()


def certified(**words):
    return sc.certify(above_half, DATA, **SETTINGS | words)


def plan_of(out, **words):
    return certified(out=out, samples=500, **words).plan


@pytest.mark.parametrize(
    ("words", "plan"),
    [
        ({}, sc.InputSpecific(500)),
        ({"decline": 0.1, "alpha": 0.01}, sc.InputSpecific(500, decline=0.1, alpha=0.01)),
        ({"radii": [0, 0.5]}, sc.AtRadii([0, 0.5], 500)),
        ({"radii": [0, 0.5], "bound": "runner-up"}, sc.BettingRadii([0, 0.5], 500)),
        ({"radii": [0, 0.5], "known_labels": True}, sc.AtRadii([0, 0.5], 500, known_labels=True)),
        ({"radii": [0, 0.5], "give_up": 0.1}, sc.AtRadii([0, 0.5], 500, give_up=0.1)),
        ({"radii": [0, 0.5], "method": "fixed"}, sc.Fixed(500)),  # here they are only shown
        ({"radii": [0, 0.5], "decline": 0.1}, sc.InputSpecific(500, decline=0.1)),
        (
            {"radii": [0, 0.5], "method": "radii,input-specific"},
            sc.Combined((sc.AtRadii([0, 0.5], 500), sc.InputSpecific(500))),
        ),
    ],
)
def test_words_describe_the_plan_as_on_the_command_line(tmp_path, words, plan):
    assert plan_of(tmp_path, **words) == plan


def test_with_a_budget_radii_are_only_shown(tmp_path):
    run = certified(radii=[0, 0.5], budget=6_000, out=tmp_path)
    assert isinstance(run.manifest.requested_plan, sc.Price)


def test_a_run_that_was_begun_when_radii_were_only_shown_keeps_its_plan(tmp_path):
    begun = certified(method="input-specific", samples=500, limit=3, out=tmp_path)
    resumed = certified(radii=[0, 0.25], samples=500, out=tmp_path)
    assert (len(begun), len(resumed)) == (3, 6)
    assert resumed.plan == begun.plan == sc.InputSpecific(500)
    with refused("other-configuration"):
        certified(radii=[0, 0.25], samples=500, give_up=0.1, out=tmp_path)


@pytest.mark.parametrize(
    ("function", "words", "name"),
    [
        ("certify", {"sampels": 100}, "sampels"),
        ("forecast", {"radius": 0.5}, "radius"),
    ],
)
def test_an_unknown_argument_names_itself_and_the_function(function, words, name):
    with refused("unknown-argument", function=function, name=name):
        getattr(sc, function)(above_half, DATA, **SETTINGS, **words)
    with refused("unknown-argument", function="certify", name="sampels"):
        sc.Smoothed(above_half, **SETTINGS).certify([[0.5, 0.0]], sampels=100)


def test_a_plan_has_its_settings_in_one_place():
    with refused("plan-and-settings"):
        certified(plan=sc.Fixed(), samples=100)


@pytest.mark.parametrize(
    "words",
    [
        {"samples": 1_000},
        {"alpha": 0.01},
        {"method": "input-specific"},
        {"bound": "runner-up"},
        {"known_labels": True},
        {"budget": 1e6},
        {"dtype": "bfloat16"},
        {"sigma": None, "noise": sc.GridGaussian(0.5)},
        {"sigma": None, "noise": sc.Uniform(0.5)},
    ],
)
def test_what_contradicts_a_protocol_is_refused(words):
    with refused("contradicts-protocol", protocol="cohen"):
        certified(protocol="cohen", **words)


def test_a_protocol_settles_plan_noise_and_number_format(tmp_path):
    agreed = {"method": "fixed", "samples": 100_000, "alpha": 0.001, "dtype": torch.float32}
    run = certified(protocol="cohen", radii=[0, 0.25], limit=1, out=tmp_path / "cohen", **agreed)
    assert run.plan == sc.Fixed(100_000, pilot=100)
    assert (run.noise, run.manifest.dtype) == (sc.Gaussian(0.5), "float32")
    run = certified(protocol="iss", samples=1_000, decline=0.1, out=tmp_path / "iss")
    assert run.plan == sc.InputSpecific(1_000, decline=0.1, pilot_use="reuse", grid="paper")
    assert "failure probability of a certificate: 0.00" in summary(run)


def test_both_certified_accuracy_and_the_average_radius_come_from_one_run(tmp_path):
    both = certified(radii=[0, 0.5], method="radii,input-specific", samples=500, out=tmp_path)
    table = sc.table(both)
    assert [row.run.plan for row in table.rows] == [
        sc.AtRadii([0, 0.5], 500),
        sc.InputSpecific(500),
    ]
    average = f"{table.rows[1].run.acr:.6f}"[:5]
    assert f"input-specific 500, decline 0.05: ACR {average}" in summary(both)


def test_the_summary_says_where_certified_accuracy_is_understated(tmp_path):
    understated = "understated"
    assert understated in summary(certified(samples=500, out=tmp_path / "specific"))
    assert understated not in summary(certified(radii=[0, 0.5], out=tmp_path / "radii"))
    assert understated not in summary(certified(method="fixed", out=tmp_path / "fixed"))
    specific = sc.open_run(tmp_path / "specific")
    perfect = replace(specific, prediction=specific.label, radius=specific.radius + 1)
    assert understated not in summary(perfect, radii=[0, 0.5])


def test_the_summary_says_which_radii_are_out_of_reach(tmp_path):
    few = certified(method="fixed", samples=500, out=tmp_path)
    most = f"{few.largest_radius:.6f}"[:5]
    assert f"prove a radius above {most}" in summary(few, radii=[0.5, 3])
    assert "too few samples" not in summary(few, radii=[0, 0.5])


def linear_classifier():
    """The nearest mean of the bundled images: as many numbers as a real picture, and fast."""
    data = sc.load_dataset("fashion-mnist")
    images = torch.stack([data[i][0] for i in range(500)]).flatten(1)
    labels = torch.tensor([data[i][1] for i in range(500)])
    means = torch.stack([images[labels == label].mean(0) for label in range(10)])
    return lambda x: x.flatten(1) @ means.T - (means**2).sum(1) / 2


def certified_as_in_2019(model, image, *, sigma, samples, generator):
    """Class and radius as in the paper of Cohen et al., written again from its pseudocode."""

    def counts(samples):
        found = np.zeros(10, int)
        for start in range(0, samples, 5_000):
            rows = min(5_000, samples - start)
            noise = sigma * torch.randn(rows, *image.shape, generator=generator)
            found += np.bincount(model(image + noise).argmax(1), minlength=10)
        return found

    top = int(counts(100).argmax())
    votes = int(counts(samples)[top])
    lower = beta.ppf(0.001, votes, samples - votes + 1)
    return (top, sigma * norm.ppf(lower)) if lower > 0.5 else (None, 0.0)


def test_the_protocol_of_cohen_is_the_loop_of_2019_within_sampling_error():
    model = linear_classifier()
    data = sc.load_dataset("fashion-mnist")
    ids = [0, 1, 17]
    sigma = 0.5
    samples = 100_000
    smoothed = sc.Smoothed(model, sigma=sigma, device="cpu", batch=5_000)
    results = smoothed.certify(data, ids=ids, protocol="cohen")
    generator = torch.Generator().manual_seed(1)
    for certificate in results:
        top, radius = certified_as_in_2019(
            model, data[certificate.id][0], sigma=sigma, samples=samples, generator=generator
        )
        p = norm.cdf(radius / sigma)
        # Both estimate p from their own samples; five standard deviations of the difference.
        error = sigma * 5 * np.sqrt(2 * p * (1 - p) / samples) / norm.pdf(norm.ppf(p))
        assert certificate.prediction == top
        assert abs(certificate.radius - radius) < error
    assert results.samples.tolist() == [100_100] * 3


def planned_by_the_paper(votes, pilot, samples, *, sigma, decline, alpha):
    """Algorithm 2 of Chen et al.: the samples of an input, by a search over all sizes."""

    def radius(k, p):
        return sigma * norm.ppf(beta.ppf(alpha, p * k, k - p * k + 1))

    sizes = np.arange(1, samples + 1)

    def needed(p):
        if p <= 0.5 or radius(samples, p) <= decline:
            return 0
        lost = radius(samples, p) - radius(sizes, p)
        return int(sizes[lost <= decline].min())

    low = beta.ppf(alpha / 2, votes, pilot - votes + 1)
    high = beta.ppf(1 - alpha / 2, votes + 1, pilot - votes) if votes < pilot else 1.0
    ends = [f(p * 1000) / 1000 for p in (low, high) for f in (np.floor, np.ceil)]
    return max(needed(p) if p < 1 else needed(1 - 1e-12) for p in ends)


def test_the_protocol_of_input_specific_sampling_is_the_algorithm_of_the_paper():
    results = certified(protocol="iss", samples=2_000, decline=0.1)
    checked = 0
    for certificate in results:
        pilot = certificate.looks[0]
        votes = pilot.of(certificate.prediction) if certificate.prediction is not None else 0
        if votes < 60:
            continue
        planned = planned_by_the_paper(
            votes, pilot.samples, 2_000, sigma=0.5, decline=0.1, alpha=0.001
        )
        drawn = sum(look.samples for look in certificate.looks)
        assert drawn == max(planned, pilot.samples)  # the pilot is a part of them
        count = sum(look.of(certificate.prediction) for look in certificate.looks)
        lower = beta.ppf(0.001, count, drawn - count + 1)
        assert certificate.radius == pytest.approx(0.5 * norm.ppf(lower), abs=1e-6)
        checked += 1
    assert checked >= 3


def test_print_shows_in_python_what_the_command_shows(tmp_path):
    run = certified(samples=500, out=tmp_path / "a")
    other = certified(samples=500, method="fixed", out=tmp_path / "b")
    audited = sc.audit(run, model=above_half, data=DATA, redraw=1)
    assert str(audited).startswith(f"{tmp_path / 'a'}: 6 certificates checked, 1 drawn again")
    assert "A certifies" in str(sc.compare(run, other))
    probed = sc.probe(
        above_half, DATA, sigmas=[0.5], radii=[0.25], classes=2, device="cpu", samples=500
    )
    shown = " ".join(str(probed).split())  # a title may be broken into lines
    assert "majority right" in shown
    assert "What 500 samples per input would certify" in shown
    assert probed.reading in shown

"""Certificates in pictures: the pictures are those of the run, and the page says what the certificate says."""

import base64
import io
import sqlite3
from collections import Counter
from contextlib import closing
from importlib.resources import files

import numpy as np
import pytest
import torch
from PIL import Image
from tests.pages import render
from tests.refusals import refused

import smoothcert as sc
from smoothcert._files import JOURNAL
from smoothcert.data.mnist_cifar import CLOTHES
from smoothcert.models import load_classifier
from smoothcert.models.denoisers import Denoiser

HOSTILE = "<script>document.title='owned'</script>"


def opened(picture):
    """The values of a picture in a data URI."""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(picture.partition(",")[2])))) / 255


def brighter_half(x):
    """Class 0 if the left half is brighter."""
    return (x[..., :4].mean((1, 2, 3)) < x[..., 4:].mean((1, 2, 3))).long()


def kept_half(x):
    """The same on the pixels that ablation keeps. It marks a kept value x by the channels x and 1 - x."""
    kept, absent = x.tensor_split(2, dim=1)
    return brighter_half(kept - absent)


class Gradient:
    """Pictures whose bright half tells their class. The last one is grey."""

    name, fingerprint, class_names = "gradient", "7" * 16, (HOSTILE, "right")

    def __init__(self, channels=1, shape=(8, 8)):
        self.channels, self.shape = channels, shape

    def __len__(self):
        return 5

    def __getitem__(self, index):
        x = torch.full((self.channels, *self.shape), 0.5)
        if index < 4:
            x[..., : self.shape[1] // 2] = 0.9 if index % 2 == 0 else 0.1
        return x, index % 2


def certified(tmp_path, *, data=None, model=brighter_half, **options):
    data = data or Gradient()
    settings = {
        "noise": sc.Gaussian(0.5),
        "plan": sc.Fixed(200, pilot=20),
        "classes": 2,
        "device": "cpu",
        "batch": 50,
    }
    run = sc.certify(
        model, data, out=tmp_path / "run", progress=sc.Progress(), **(settings | options)
    )
    return run, {"model": model, "data": data}


@pytest.fixture(scope="module")
def fashion(tmp_path_factory):
    plan = sc.Fixed(200, pilot=20)
    folder = tmp_path_factory.mktemp("runs") / "fashion"
    return sc.certify(
        "fashion-cnn",
        "fashion-mnist",
        noise=sc.Gaussian(0.25),
        plan=plan,
        limit=3,
        batch=64,
        device="cpu",
        out=folder,
    )


def test_the_noisy_copies_are_the_samples_that_voted(fashion):
    for e in sc.explain(fashion, [0, 1, 2], copies=20):
        pilot = fashion[e.id].looks[0]  # of 20 samples
        assert Counter(copy.text for copy in e.noisy) == {
            CLOTHES[c]: n for c, n in pilot.votes.items()
        }
        assert len({copy.picture for copy in e.noisy}) == 20
        assert e.same_noise


def test_bars_are_to_scale_and_add_up(tmp_path):
    run, places = certified(tmp_path)
    for e in sc.explain(run, [0, 1, 4], **places):
        c = e.certificate
        assert sum(bar.length for bar in e.votes) == pytest.approx(1)
        assert e.votes[0].main
        if c.abstained:
            assert e.distances == ()
            assert e.changed is None
            assert e.everywhere is None
            continue
        change = float(e.everywhere.removeprefix("less than "))
        assert change == pytest.approx(c.radius / 8, abs=2e-5)  # 64 values
        assert change <= c.radius / 8
        assert e.votes[0].text == e.answer == Gradient.class_names[c.prediction]
        lengths = {bar.text: bar.length for bar in e.distances}
        ratio = lengths["the certified radius"] / lengths["one pixel turns from black to white"]
        assert ratio == pytest.approx(c.radius)


def test_the_page_shows_them_and_escapes_what_it_shows(tmp_path):
    run, places = certified(tmp_path)
    text = render([run], dataset=places["data"], explained=sc.explain(run, [0, 4], **places))
    assert "What a certificate is" in text
    assert "no certificate" in text
    assert HOSTILE not in text
    assert "&lt;script&gt;" in text
    assert "Input 0, label" in text
    assert "Input 4, label" in text
    assert 'src="http' not in text
    assert "What a certificate is" not in render([run], dataset=places["data"])


@pytest.mark.parametrize(
    ("bound", "said"), [("binary", "of all possible noisy"), ("runner-up", "no other class is as")]
)
def test_the_page_says_what_the_votes_prove(tmp_path, bound, said):
    plan = sc.AtRadii([0, 0.25], 200, bound=bound)
    run, places = certified(tmp_path, plan=plan)
    text = render([run], dataset=places["data"], explained=sc.explain(run, [0], **places))
    assert said in " ".join(text.split())


def test_colour_pictures_and_large_ones(tmp_path):
    run, places = certified(tmp_path, data=Gradient(3, (80, 80)))
    [e] = sc.explain(run, 0, **places)
    assert not e.pixelated
    assert opened(e.picture).shape == (80, 80, 3)
    assert opened(e.picture)[0, 0] == pytest.approx([0.9] * 3, abs=0.02)
    assert len(e.noisy) == 6
    assert opened(e.noisy[0].picture).std() > 0.2


class Flat(Denoiser):
    """Its estimate has the value 0.3 or 0.6 in each half, whichever fits better."""

    def __init__(self):
        super().__init__(sigmas=(0.1, 1.0))

    def denoise(self, x, sigma):
        left, right = (
            torch.where(half.mean((1, 2, 3)) > 0.45, 0.6, 0.3) for half in (x[..., :4], x[..., 4:])
        )
        return torch.cat([v.view(-1, 1, 1, 1).expand(-1, 1, 8, 4) for v in (left, right)], 3)


def test_denoised_copies_are_what_the_classifier_sees(tmp_path):
    run, places = certified(tmp_path, denoiser=Flat())
    [e] = sc.explain(run, [1], denoiser=Flat(), **places)
    assert len(e.denoised) == len(e.noisy) == 6
    assert {round(float(v), 1) for copy in e.denoised for v in opened(copy).ravel()} <= {0.3, 0.6}
    assert "denoised" in render([run], dataset=places["data"], explained=[e])


class InPlace(torch.nn.Module):
    def forward(self, x):
        return x.clamp_(0.4, 0.6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_denoiser_or_classifier_that_works_in_place_leaves_the_pictures_as_they_are(
    tmp_path, dtype
):
    def spoiling(x):
        labels = brighter_half(x)
        x.zero_()
        return labels

    run, places = certified(tmp_path, model=spoiling, denoiser=InPlace(), dtype=dtype)
    pure, _ = certified(tmp_path / "pure", denoiser=torch.nn.Hardtanh(0.4, 0.6), dtype=dtype)
    assert [c.looks for c in run] == [c.looks for c in pure]
    [e] = sc.explain(run, [1], denoiser=InPlace(), **places)
    assert all(opened(copy.picture).std() > 0.2 for copy in e.noisy)
    assert all(0.39 < opened(copy).min() < opened(copy).max() < 0.61 for copy in e.denoised)


class Shaking(torch.nn.Module):
    """Shows the random number that decides: it brightens the left half or darkens it."""

    def forward(self, x):
        left = torch.where(torch.rand(()) > 0.5, 0.9, 0.1).to(x)
        return torch.cat([left.expand_as(x[..., :4]), torch.full_like(x[..., 4:], 0.5)], -1)


@pytest.mark.parametrize("module", [False, True])
def test_the_copies_of_a_random_denoiser_are_those_that_were_classified(tmp_path, module):
    class Half(torch.nn.Module):
        def forward(self, x):
            return brighter_half(x)

    model = Half() if module else brighter_half
    run, places = certified(tmp_path, model=model, denoiser=Shaking(), stochastic=True, limit=1)
    [e] = sc.explain(run, [0], denoiser=Shaking(), copies=20, **places)
    shown = ["right" if opened(copy)[0, 0] < 0.5 else HOSTILE for copy in e.denoised]
    assert shown == [copy.text for copy in e.noisy]
    assert set(shown) == {"right", HOSTILE}


@pytest.mark.parametrize(
    "noise", [sc.Laplace(0.5), sc.Discrete(0.4, 11), sc.Translation(1), sc.Brightness(0.2)]
)
def test_other_noises_have_no_distances_that_they_do_not_measure(tmp_path, noise):
    run, places = certified(tmp_path, noise=noise)
    [e] = sc.explain(run, [0], **places)
    assert len(e.noisy) == 6
    assert e.everywhere is None
    assert (
        bool(e.distances)
        == bool(e.changed)
        == (noise.norm in ("l1", "l0") and not e.certificate.abstained)
    )
    assert e.change == noise.certified_change(e.radius)
    text = render([run], dataset=places["data"], explained=[e])
    assert e.certificate.abstained or f"no {e.change}</strong> can alter this answer" in text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_ablation_counts_pixels_of_colour_pictures(tmp_path, dtype):
    run, places = certified(
        tmp_path, data=Gradient(3), model=kept_half, noise=sc.Ablation(6), dtype=dtype
    )
    [e] = sc.explain(run, [0], **places)
    radius = int(e.certificate.radius)
    assert radius >= 1
    numbers = {bar.text: bar.number for bar in e.distances}
    assert numbers["the certified radius"] == f"{radius}"
    assert numbers["one pixel turns from black to white"] == "1"
    assert numbers["a noisy copy, as above"] == f"{64 - 6}"
    assert e.change == f"change of at most {radius} pixels"
    changed = np.any(opened(e.changed.picture) != opened(e.picture), axis=-1)
    assert changed.sum() == radius


@pytest.mark.parametrize(("step", "steps"), [(0.05, 2), (0.1, 1)])
def test_on_a_grid_all_values_may_change_by_whole_steps(tmp_path, step, steps):
    run, places = certified(tmp_path, noise=sc.GridGaussian(0.5, step=step))
    [e] = sc.explain(run, [0], **places)
    assert steps * step < e.certificate.radius / 8 <= (steps + 1) * step  # 64 values
    assert f"all changes of every value by at most {steps} of these steps." in render(
        [run], dataset=places["data"], explained=[e]
    )


def test_the_confidence_of_a_tiny_alpha_is_never_100_percent(tmp_path):
    for alpha, shown in (
        (0.05, "95%"),
        (0.001, "99.9%"),
        (1e-9, "99.9999999%"),
        (1e-40, f"99.{38 * '9'}%"),
    ):
        run, places = certified(tmp_path / shown, plan=sc.Fixed(200, pilot=20, alpha=alpha))
        [e] = sc.explain(run, [0], **places)
        assert e.confidence == shown


@pytest.mark.filterwarnings("ignore:the pilot is counted again")
def test_the_votes_of_other_plans_and_the_claim_of_a_reused_pilot_are_told(tmp_path):
    sound, reused = sc.Fixed(200, pilot=20), sc.Fixed(300, pilot=20, pilot_use="reuse")
    earlier, claim = (
        "20 earlier votes only helped to plan",
        "what the plan claims: see the guarantee below",
    )
    for plan, told in (
        (sound, [True, False, False]),
        (reused, [False, False, True]),
        (sc.Combined((sound, reused)), [False, True, False]),
    ):
        run, places = certified(tmp_path / str(plan), plan=plan)
        text = render([run], dataset=places["data"], explained=sc.explain(run, [0], **places))
        assert [words in text for words in (earlier, "100 other votes do not count", claim)] == told


def test_counted_outcomes_are_shown_spread_over_all_of_them(tmp_path):
    noise = sc.Splitting(0.5, levels=20)
    run, places = certified(tmp_path, noise=noise, plan=sc.Exact())
    [e] = sc.explain(run, [0], copies=4, **places)
    every = sc.explain(run, [0], copies=30, **places)[0].noisy
    assert len(every) == noise.outcomes == 20
    assert [copy.picture for copy in e.noisy] == [every[i].picture for i in (0, 5, 10, 15)]
    assert Counter(copy.text for copy in every) == {
        Gradient.class_names[c]: n for c, n in run[0].looks[0].votes.items()
    }


def test_a_radius_of_0_is_no_promise_about_changes(tmp_path):
    plan = sc.AtRadii([0], samples=500)
    run, places = certified(tmp_path, plan=plan)
    [e] = sc.explain(run, [0], **places)
    assert (e.certificate.prediction, e.certificate.radius) == (0, 0)
    text = render([run], dataset=places["data"], explained=[e])
    assert "the votes prove no radius above 0" in text
    assert "can alter this answer" not in text
    assert e.changed is None


def test_a_run_without_certificates_is_one_sentence(tmp_path):
    run, places = certified(tmp_path)
    with closing(sqlite3.connect(run.path / JOURNAL)) as journal:
        journal.execute("DELETE FROM certificates")
        journal.commit()
    for ids in ([0], []):
        with refused("no-certificates", run=tmp_path / "run"):
            sc.explain(tmp_path / "run", ids, **places)


def test_a_loaded_model_takes_the_place_of_recorded_weights(tmp_path):
    weights = files("smoothcert") / "assets" / "fashion-cnn-0.50.safetensors"
    settings = {
        "noise": sc.Gaussian(0.5),
        "plan": sc.Fixed(100),
        "limit": 1,
        "batch": 64,
        "device": "cpu",
    }
    run = sc.certify("fashion-cnn", "fashion-mnist", weights=str(weights), out=tmp_path, **settings)
    loaded = load_classifier("fashion-cnn", weights=str(weights))
    assert len(sc.explain(run, [0], model=loaded)) == 1


@pytest.mark.parametrize("shape", [(3, 8), (8, 3)])
def test_a_picture_that_is_too_small_is_refused_for_that_reason(tmp_path, shape):
    run, places = certified(
        tmp_path, data=Gradient(shape=shape), model=lambda x: (x.mean((1, 2, 3)) > 0.5).long()
    )
    with pytest.raises(sc.InvalidInput, match=r"at least 4 pixels on each side can be explained"):
        sc.explain(run, [0], **places)


def test_what_cannot_be_explained_is_said(tmp_path, fashion):
    with refused("no-certificate", id=7, count=3, first=0, last=2):
        sc.explain(fashion, [7])
    with refused("no-ids"):
        sc.explain(fashion, [])
    with pytest.raises(sc.InvalidInput, match="cannot explain: the weights are not those"):
        sc.explain(fashion, [0], model="fashion-cnn-clean")
    with pytest.raises(sc.InvalidInput, match="cannot explain: nowhere is neither"):
        sc.explain(fashion, [0], data="nowhere")
    points = (np.random.default_rng(0).random((4, 2)).astype(np.float32), [0, 1, 0, 1])
    model = lambda x: (x[:, 0] > 0.5).long()  # noqa: E731
    run, _ = certified(tmp_path, data=points, model=model)
    with pytest.raises(sc.InvalidInput, match=r"input 0 has shape \(2,\): only pictures"):
        sc.explain(run, [0], model=model, data=points)


def test_the_row_of_a_table_is_no_picture_and_that_is_said_before_a_model_is_needed(tmp_path):
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(0).random((4, 2)))
    run, _ = certified(
        tmp_path, data=str(tmp_path / "rows.npz"), model=lambda x: (x[:, 0] > 0.5).long()
    )
    with refused("not-a-picture", id=0, shape=(2,)):
        sc.explain(run, [0])


class Bytes(Gradient):
    """The same pictures with values up to 255, as a model that divides by 255 takes them."""

    def __getitem__(self, index):
        x, label = super().__getitem__(index)
        return 255 * x, label


@pytest.mark.filterwarnings("ignore:.*values lie in")
def test_units_are_claimed_only_where_they_hold(tmp_path):
    run, places = certified(tmp_path / "one")
    [usual] = sc.explain(run, [0], **places)
    other, places = certified(tmp_path / "other", data=Bytes(), noise=sc.Gaussian(0.5 * 255))
    [scaled] = sc.explain(other, [0], **places)
    assert run.manifest.values == (np.float32(0.1), np.float32(0.9))
    assert other.manifest.values == pytest.approx((25.5, 229.5))
    assert "of all values, where black is 0 and white is 1.</p>" in render([run], explained=[usual])
    assert not [bar.text for bar in scaled.distances if "black" in bar.text or "255" in bar.text]
    assert opened(scaled.picture).max() == 1.0
    page = render([run, other], explained=[scaled])
    assert (
        "of all values, in the units of the inputs, whose values lie in [25.5, 229.5].</p>" in page
    )
    assert (
        "are for inputs in [0, 1] (one/run) and for inputs with values in [25.5, 229.5] (other/run)"
        in page
    )
    assert "radii (l2) of inputs in [25.5, 229.5]" in page
    assert "black is 0" not in page

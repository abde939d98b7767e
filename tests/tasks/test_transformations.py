"""Runs that certify turned and zoomed pictures, from the pictures to the audit."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from shutil import copytree

import numpy as np
import pytest
import torch
from scipy.special import ndtr, ndtri
from tests.refusals import refused

import smoothcert as sc
from smoothcert._registry import describe
from smoothcert.runs.journal import Journal
from smoothcert.transformations.margins import cover
from smoothcert.transformations.pictures import transform

SIGMA = 0.25
RADII = [2.0, 5.0, 10.0]


class Linear(torch.nn.Module):
    """Class 0 on one side of a plane through pictures of 8 x 8, so that probabilities are known."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        weight = torch.randn(64, generator=generator)
        self.register_buffer("weight", weight / weight.norm())

    def forward(self, x):
        side = x.flatten(1) @ self.weight.to(x)
        return torch.stack([side, -side], dim=1)


def small_pictures(count):
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", [sc.Rotation, sc.Zoom])
def test_no_claim_is_false_at_ten_thousand_amounts(kind):
    model = Linear()
    transformation = kind(sc.Gaussian(SIGMA))
    x = small_pictures(60)
    results = sc.certify(
        model, x, noise=transformation, radii=RADII, device="cpu", dtype="float32", samples=20_000
    )
    amounts = torch.linspace(-RADII[-1], RADII[-1], 10_001, dtype=torch.float64)
    proved = 0
    for certificate in results:
        if certificate.prediction is None:
            continue
        shown = transform(
            x[[certificate.id]].expand(len(amounts), 1, 8, 8), transformation, amounts
        )
        sign = 1 - 2 * certificate.prediction
        p = ndtr(sign * (shown.flatten(1) @ model.weight.double()).numpy() / SIGMA)
        assert np.all(p[np.abs(amounts.numpy()) <= certificate.radius] > 0.5)
        proved += 1
    assert proved > 20


class TwoLayers(torch.nn.Module):
    """Class 0 where relu(u) + relu(v) is above 0.45, for two numbers u and v of an 8 x 8 picture.

    Noise on the picture is independent noise on both, so shares need only an integral over u.
    """

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        rows = torch.linalg.qr(torch.randn(64, 2, generator=generator))[0].T
        self.register_buffer("weight", rows.contiguous())

    def forward(self, x):
        above = (x.flatten(1) @ self.weight.to(x).T).relu().sum(1) - 0.45
        return torch.stack([above, -above], dim=1)

    def share(self, x):
        """The share of class 0, by the midpoint rule over u."""
        u, v = (x.flatten(1) @ self.weight.double().T).numpy().T
        levels = (np.arange(200) + 0.5) / 200
        missing = 0.45 - np.maximum(u[:, None] + SIGMA * ndtri(levels), 0)
        return np.where(missing < 0, 1, ndtr((v[:, None] - missing) / SIGMA)).mean(1)


def share_of_false_intervals(kind):
    """How many of the intervals hold one of 10,000 amounts at which the class does not win."""
    model = TwoLayers()
    transformation = kind(sc.Gaussian(SIGMA))
    x = small_pictures(40)
    results = sc.certify(
        model,
        x,
        noise=transformation,
        radii=np.linspace(0.5, 20, 40),
        device="cpu",
        dtype="float32",
        samples=2_000,
        alpha=0.1,
    )
    amounts = torch.linspace(-20, 20, 10_001, dtype=torch.float64)
    false = []
    for certificate in results:
        if not certificate.radius:
            continue
        claimed = amounts[amounts.abs() <= certificate.radius]
        copies = x[[certificate.id]].expand(len(claimed), 1, 8, 8)
        p = model.share(transform(copies, transformation, claimed))
        least = p.min() if certificate.prediction == 0 else 1 - p.max()
        false.append(least < 0.499)
    assert len(false) > 15
    return np.mean(false)


@pytest.mark.parametrize("kind", [sc.Rotation, sc.Zoom])
def test_intervals_of_a_small_network_are_false_no_more_often_than_alpha(kind):
    assert share_of_false_intervals(kind) <= 0.1


@pytest.fixture(scope="module")
def turned_run(tmp_path_factory):
    """Fifteen bundled pictures, turned."""
    return certified(tmp_path_factory.mktemp("turned") / "run")


def certified(out, **others):
    return sc.certify(
        "fashion-cnn",
        "fashion-mnist",
        sigma=SIGMA,
        transform="rotation",
        radii=[2, 5],
        known_labels=True,
        samples=3_000,
        device="cpu",
        batch=256,
        out=out,
        **{"limit": 15} | others,
    )


def test_a_run_of_rotations_is_a_run_like_any_other(turned_run, tmp_path):
    assert turned_run.noise.norm == "rotation (degrees)"
    assert 0.5 < turned_run.certified_accuracy([5])[0] <= turned_run.certified_accuracy([2])[0]
    assert sc.table([turned_run]).plain()
    sc.write_results(turned_run, tmp_path / "run.csv")
    assert sc.read_results(tmp_path / "run.csv").certified_by == turned_run.plan
    assert sc.audit(turned_run, redraw=2).holds


def test_a_resumed_run_has_the_same_certificates(turned_run, tmp_path):
    for limit in (4, 9, 15):  # other inputs are open at the same time
        resumed = certified(tmp_path / "run", limit=limit)
    for one, other in zip(turned_run, resumed, strict=True):
        assert (one.looks, one.radius) == (other.looks, other.radius)


def test_an_audit_finds_margins_that_were_halved(tmp_path, monkeypatch):
    def halved(*cells):
        pictures, margins = cover(*cells)
        return pictures, margins / 2

    monkeypatch.setattr("smoothcert.sampling.views.cover", halved)
    run = certified(tmp_path / "run", limit=5)
    monkeypatch.undo()
    found = sc.audit(run.path, redraw=0)
    assert {finding.id for finding in found.findings} == {c.id for c in run if c.radius}
    assert all("does not cover" in finding.reason for finding in found.findings)


@pytest.mark.parametrize("margin", [0, -1, float("nan"), float("inf"), 1e300, True])
def test_an_audit_names_the_input_whose_margin_is_damaged(turned_run, tmp_path, margin):
    folder = copytree(turned_run.path, tmp_path / "run")
    with closing(sqlite3.connect(folder / "journal.sqlite")) as db, db:
        [[text]] = db.execute("SELECT looks FROM certificates WHERE id = 0")
        looks = [
            [samples, votes, *[margin] * len(more)] for samples, votes, *more in json.loads(text)
        ]
        db.execute("UPDATE certificates SET looks = ? WHERE id = 0", [json.dumps(looks)])
    found = sc.audit(folder, redraw=0)
    assert {finding.id for finding in found.findings} == {0}


@pytest.mark.parametrize("noise", [sc.Gaussian(SIGMA), sc.Rotation(sc.Gaussian(SIGMA), 4)])
def test_an_audit_finds_radii_that_the_noise_of_a_run_does_not_have(turned_run, tmp_path, noise):
    folder = copytree(turned_run.path, tmp_path / "run")
    with Journal(folder, write=True) as journal:
        journal.write_manifest({"noise": describe(noise)})
    assert len(sc.audit(folder, redraw=0).findings) == len(turned_run)


@pytest.mark.parametrize("shape", [(2, 5), (2, 28, 28), (2, 3, 4, 9, 9), (2, 1, 2, 9)])
@pytest.mark.parametrize("transform", ["rotation", "zoom"])
def test_only_pictures_can_be_transformed(shape, transform, tmp_path):
    with refused("not-pictures", transformation=transform):
        sc.certify(
            lambda x: x.flatten(1)[:, :2],
            torch.rand(shape),
            sigma=SIGMA,
            transform=transform,
            radii=[2],
            out=tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"transform": "shear"}, "unknown-name"),
        ({"transform": sc.Rotation(sc.Gaussian(SIGMA))}, "not-a-transformation"),
        ({"transform": "zoom", "protocol": "cohen"}, "contradicts-protocol"),
        ({"transform": "zoom", "noise": "laplace:1", "sigma": None}, "not-for-transformations"),
    ],
)
def test_a_transformation_is_read_before_the_plan_is_chosen(settings, code):
    with refused(code):
        sc.certify("fashion-cnn", "fashion-mnist", **({"sigma": SIGMA} | settings))


@pytest.mark.annexes
@pytest.mark.filterwarnings("ignore:fashion-cnn-clean was trained without noise")
def test_two_models_are_compared_under_a_transformation(tmp_path):
    settings = {"sigma": SIGMA, "transform": "rotation", "samples": 1000, "device": "cpu"}
    found = sc.compare(
        "fashion-cnn",
        "fashion-cnn-clean",
        "fashion-mnist",
        radius=2,
        limit=20,
        out=tmp_path,
        **settings,
    )
    with refused("binary-walk"):
        both = ("fashion-cnn", "fashion-cnn-clean", "fashion-mnist")
        sc.compare(*both, radius=2, out=tmp_path, bound="binary", **settings)
    assert isinstance(found.a.plan, sc.Walk)
    assert found.a.noise == sc.Rotation(sc.Gaussian(SIGMA))
    assert found.differences[0].shares[0] > 0.5


def test_other_plans_do_not_certify_transformations():
    with refused("needs-walk"):
        sc.certify(
            "fashion-cnn",
            "fashion-mnist",
            noise=sc.Zoom(sc.Gaussian(SIGMA)),
            plan=sc.Fixed(1000),
            limit=2,
            device="cpu",
        )


@pytest.mark.annexes
def test_a_report_explains_a_rotation_by_its_own_first_votes_on_the_masked_picture(
    turned_run, tmp_path
):
    from_centre = np.arange(28) - 13.5
    outside = np.hypot(from_centre, from_centre[:, None]) > 13.5
    explained = sc.explain(turned_run, range(15), copies=32)
    for one in explained:
        assert Counter(one.answers) == turned_run[one.id].looks[0].votes
        assert not one.x[0, outside].any()
    page = sc.write_report([turned_run], tmp_path / "report.html", explained=explained[:1])
    words = " ".join(page.read_text().split())
    assert "no rotation by at most 5.000 degrees, with bilinear interpolation" in words
    assert "without rounding to bytes, and with 0 outside of the disk" in words
    assert "radius r (rotation in degrees)" in words
    assert "(l2)" not in words


@pytest.mark.annexes
def test_attacks_find_no_amount_within_a_certificate_and_break_radii_times_three(turned_run):
    found = sc.attack(turned_run, steps=12, samples=2_000)
    assert found.norm == "rotation (degrees)"
    assert not len(found.broken)
    assert np.isfinite(found.distance).any()
    claimed = found.certified & (found.distance <= 3 * found.radius)
    assert claimed.any()  # 15 degrees are claimed, and a smaller angle alters the answer

"""Attacks on smoothed classifiers whose true radius is known."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import nn

import smoothcert as sc
from smoothcert._files import JOURNAL
from smoothcert.report.charts import certified_accuracy
from smoothcert.runs.journal import Journal

SIZE = 12
pytestmark = pytest.mark.filterwarnings("ignore:arrays?. values lie in")
FAST = {"steps": 8, "copies": 8}


class Halves(nn.Module):
    """Which side of a plane an input lies on. Under Gaussian noise, its distance from the plane is the true radius."""

    def __init__(self, normal):
        super().__init__()
        self.normal = nn.Parameter(torch.as_tensor(normal, dtype=torch.float32))

    def forward(self, x):
        side = 5 * (x.flatten(1) @ self.normal)
        return torch.stack([-side, side], dim=1)


def _inputs(distances, normal):
    rng = np.random.default_rng(0)
    unit = normal / np.linalg.norm(normal)
    along = rng.standard_normal((len(distances), SIZE))
    along -= (along @ unit)[:, None] * unit
    return (along + np.asarray(distances)[:, None] * unit).astype(np.float32)


def _run(
    folder,
    model,
    *,
    noise=None,
    plan=None,
    distances=(0.3, 0.6, 1.0, -0.4),
    normal=None,
    labels=None,
):
    normal = np.ones(SIZE) if normal is None else normal
    x = _inputs(distances, normal)
    labels = [int(d > 0) for d in distances] if labels is None else labels
    noise = noise or sc.Gaussian(0.25)
    plan = plan or sc.Fixed(2_000)
    sc.certify(
        model,
        x,
        labels,
        noise=noise,
        plan=plan,
        classes=2,
        out=folder,
        device="cpu",
        dtype="float32",
        batch=500,
    )
    return {"model": model, "data": (x, np.array(labels))}


def test_a_linear_classifier_is_broken_just_above_its_true_radius(tmp_path):
    places = _run(tmp_path / "run", Halves(np.ones(SIZE)))
    found = sc.attack(tmp_path / "run", samples=30_000, **FAST, **places)
    true = np.array([0.3, 0.6, 1.0, 0.4])
    assert np.all(found.distance >= true)
    assert np.all(found.distance <= 1.05 * true)
    assert not len(found.broken)
    assert found.settings["by"] == "gradients, then votes"
    curve = certified_accuracy([sc.open_run(tmp_path / "run")]).layers[1]
    assert (curve.series, curve.y[-1]) == (
        "run, attacked",
        0,
    )  # the chart shows the largest change, too


def test_radii_that_are_too_large_are_broken(tmp_path):
    places = _run(tmp_path / "run", Halves(np.ones(SIZE)))
    with closing(sqlite3.connect(tmp_path / "run" / JOURNAL)) as db, db:
        db.execute("UPDATE certificates SET radius = 3 * radius")
    assert sc.attack(tmp_path / "run", **FAST, **places).broken.tolist() == [0, 1, 2, 3]


def test_labels_without_a_gradient_are_attacked_by_votes(tmp_path):
    def halves(x):
        return (x.flatten(1).sum(1) > 0).long()

    places = _run(tmp_path / "run", halves)
    found = sc.attack(tmp_path / "run", **FAST, **places)
    true = np.array([0.3, 0.6, 1.0, 0.4])
    assert found.settings["by"] == "votes"
    assert np.all(found.distance >= true)
    assert np.all(found.distance <= 1.25 * true)


def test_changes_in_l1_are_sparse(tmp_path):
    normal = np.ones(SIZE)
    normal[3] = 4.0  # changing this coordinate is cheapest
    distances = np.array([0.3, 0.5])
    places = _run(
        tmp_path / "run", Halves(normal), noise=sc.Uniform(1.5), distances=distances, normal=normal
    )
    found = sc.attack(tmp_path / "run", **FAST, **places)
    true = distances * np.linalg.norm(normal) / 4
    assert np.all(found.distance >= found.radius)
    assert np.all(found.distance <= 1.25 * true)


def _cheapest_change(x, normal):
    """The l1 distance of a picture from the plane through grey: the steepest pixels go first."""
    side = (x - 0.5) @ normal
    room = np.where(side * normal > 0, x, 1 - x)
    missing = abs(side)
    length = 0.0
    for pixel in np.argsort(-np.abs(normal)):
        step = min(room[pixel], missing / abs(normal[pixel]))
        length += step
        missing -= step * abs(normal[pixel])
    return length


def test_a_change_in_l1_goes_on_where_the_steepest_pixels_are_at_their_limits(tmp_path):
    normal = np.linspace(-1, 1.1, SIZE)
    shifted = nn.Sequential(_Shifted(), Halves(normal))
    x = np.random.default_rng(0).choice([0, 40, 215, 255], (12, 1, 3, 4)).astype(np.uint8)
    flat = x.reshape(12, -1) / 255
    labels = ((flat - 0.5) @ normal > 0).astype(int)
    data = (x, labels)
    sc.certify(shifted, *data, noise=sc.Uniform(0.5), plan=sc.Fixed(1_000), classes=2,
               out=tmp_path / "run", device="cpu", dtype="float32", batch=500)  # fmt: skip
    found = sc.attack(tmp_path / "run", steps=20, copies=8, model=shifted, data=data)
    true = np.array([_cheapest_change(one, normal) for one in flat])
    assert np.all(found.distance >= true - 0.05)  # `predict` may settle for the other class early
    assert np.all(found.distance <= 1.25 * true + 0.1)


class _Shifted(nn.Module):
    def forward(self, x):
        return x - 0.5


class Rounded(Halves):
    """Rounding hides the gradient, and a tiny path beside it shows a useless one."""

    def forward(self, x):
        flat = x.flatten(1)
        side = (flat / 0.1).round() * 0.1 @ self.normal
        misleading = 1e-6 * (flat[:, 0] - flat[:, 1])
        return torch.stack([-side + misleading, side], dim=1)


def test_votes_break_a_model_whose_gradients_mislead(tmp_path):
    places = _run(tmp_path / "run", Rounded(np.ones(SIZE)))
    found = sc.attack(tmp_path / "run", **FAST, **places)
    true = np.array([0.3, 0.6, 1.0, 0.4])
    assert np.all(found.distance >= 0.95 * true)
    assert np.all(found.distance <= 1.25 * true)


def test_exact_certificates_are_attacked_by_counting(tmp_path):
    model = nn.Sequential(_Shifted(), Halves(np.ones(SIZE)))
    x = np.array([140, 100], np.uint8).repeat(SIZE).reshape(2, 1, 3, 4)
    data = (x, np.array([1, 0]))
    sc.certify(model, *data, noise=sc.Splitting(1.0, levels=255), plan=sc.Exact(), classes=2,
               out=tmp_path / "run", device="cpu", dtype="float32", batch=500)  # fmt: skip
    found = sc.attack(tmp_path / "run", **FAST, model=model, data=data)
    assert np.all(np.isfinite(found.distance))
    assert np.all(found.distance > found.radius)


def test_an_input_without_a_right_answer_is_left_out(tmp_path):
    distances = (0.3, 0.0, 0.6)
    model = Halves(np.ones(SIZE))
    places = _run(tmp_path / "run", model, distances=distances, labels=[1, -1, 1])
    with pytest.warns(UserWarning, match="1 input without a label"):
        found = sc.attack(tmp_path / "run", **FAST, **places)
    assert found.id.tolist() == [0, 2]
    with refused("no-right-answer", count=1):
        sc.attack(tmp_path / "run", ids=[1], **FAST, **places)


def test_certificates_in_l2_are_attacked_in_l_infinity(tmp_path):
    places = _run(tmp_path / "run", Halves(np.ones(SIZE)))
    found = sc.attack(tmp_path / "run", norm="linf", **FAST, **places)
    assert np.allclose(found.distance, np.array([0.3, 0.6, 1.0, 0.4]) / SIZE**0.5, rtol=0.08)
    assert np.all(found.radius <= found.distance)


def test_a_wrong_answer_is_broken_without_a_change_and_unlabelled_ones_keep_their_class(tmp_path):
    places = _run(tmp_path / "run", Halves(np.ones(SIZE)), labels=[0, 1, -1, 0])
    found = sc.attack(tmp_path / "run", **FAST, **places)
    assert found.distance[0] == 0
    assert 1 <= found.distance[2] <= 1.05
    assert found.attacked_accuracy([0, 0.5]).tolist() == [0.75, 0.5]
    assert found.certified_accuracy([0, 0.5]).tolist() == [0.75, 0.5]


def test_pictures_on_a_grid_stay_on_it_and_in_their_range(tmp_path):
    x = np.full((1, 1, 3, 4), 140, np.uint8)
    model = Halves(np.ones(SIZE))

    def shifted(batch):
        return model(batch - 0.5)

    sc.certify(shifted, x, [1], noise=sc.GridGaussian(0.25), plan=sc.Fixed(1_000), classes=2, out=tmp_path / "run",
               device="cpu", dtype="float32", batch=500)  # fmt: skip
    sc.attack(tmp_path / "run", **FAST, model=shifted, data=(x, np.array([1])))
    with Journal(tmp_path / "run") as journal:
        attack = journal.attack("l2", 0)
    changed = np.frombuffer(attack.changed, np.float32)
    assert np.abs(changed * 255 - np.rint(changed * 255)).max() < 1e-4
    assert attack.prediction == 0
    assert attack.distance == pytest.approx(np.linalg.norm(changed - 140 / 255), rel=1e-4)


def test_an_attack_resumes_and_refuses_other_settings(tmp_path):
    places = _run(tmp_path / "run", Halves(np.ones(SIZE)))
    sc.attack(tmp_path / "run", limit=2, **FAST, **places)
    counted = []
    found = sc.attack(
        tmp_path / "run",
        **FAST,
        **places,
        progress=lambda done, total: counted.append((done, total)),
    )
    assert counted[0] == (2, 4)
    assert len(found) == 4
    with refused("attacked-otherwise", differing="steps (there 8, now 9)"):
        sc.attack(tmp_path / "run", **(FAST | {"steps": 9}), **places)
    assert (
        len(sc.attack(tmp_path / "run", **(FAST | {"steps": 9}), **places, limit=1, restart=True))
        == 1
    )


def test_other_code_around_the_same_weights_is_not_attacked(tmp_path):
    class Reversed(Halves):
        def forward(self, x):
            return -super().forward(x)

    Reversed.__name__ = "Halves"
    places = _run(tmp_path / "run", Halves(np.ones(SIZE)))
    with refused("other-answers", purpose="attack"):
        sc.attack(tmp_path / "run", **FAST, **places | {"model": Reversed(np.ones(SIZE))})


def test_a_norm_without_an_attack_is_refused(tmp_path):
    images = np.random.default_rng(0).random((1, 1, 4, 4), dtype=np.float32)

    def dark(x):
        return (x[:, 0].mean((1, 2)) < 0.5).long()

    data = (images, np.array([0]))
    sc.certify(dark, *data, noise=sc.Ablation(8), plan=sc.Fixed(100), classes=2, out=tmp_path / "run", device="cpu",
               batch=50)  # fmt: skip
    with refused("no-attack-in-norm", norm="l0 of pixels"):
        sc.attack(tmp_path / "run", model=dark, data=data)


def test_table_and_chart_show_both_sides(tmp_path):
    places = _run(tmp_path / "run", Halves(np.ones(SIZE)))
    sc.attack(tmp_path / "run", limit=2, **FAST, **places)
    shown = sc.table(tmp_path / "run", radii=[0.25, 0.5])
    row = dict(zip(shown.titles, (cell.text for cell in shown.cells[0]), strict=True))
    assert (row["attacked 0.25"], row["attacked 0.5"]) == ("100.0% of 2", "50.0% of 2")
    chart = certified_accuracy([sc.open_run(tmp_path / "run")])
    [attacked] = [line for line in chart.layers if line.series == "run, attacked"]
    assert attacked.y[np.searchsorted(attacked.x, 0.5)] == 0.5
    assert "what attacks left unbroken" in chart.caption


def test_all_radii_that_the_plan_decides_are_shown(tmp_path):
    radii = (0.1, 0.25, 0.5)
    places = _run(
        tmp_path / "run", Halves(np.ones(SIZE)), plan=sc.AtRadii(radii, 2_000), distances=(0.4, 0.4)
    )
    found = sc.attack(tmp_path / "run", **FAST, **places).plain()
    assert found["radii"] == list(radii)
    assert found["certified_accuracy"] == [1, 1, 0]
    assert found["attacked_accuracy"] == [1, 1, 0]
    with refused("not-at-least"):
        sc.attack(tmp_path / "run", **FAST, **places).plain([0.1, np.nan])
    other = sc.attack(tmp_path / "run", norm="linf", **FAST, **places).plain()
    assert other["radii"] == pytest.approx(np.array(radii) / SIZE**0.5)
    assert other["certified_accuracy"] == [1, 1, 0]

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.refusals import refused

from smoothcert.errors import InvalidInput, MissingExtra
from smoothcert.noises import Ablation, Discrete, Gaussian, Laplace
from smoothcert.plans import AtRadii, Exact
from smoothcert.runs.formats import read_results, write_results
from smoothcert.runs.logs import read_log
from smoothcert.runs.results import COLUMNS, Results


@pytest.mark.parametrize("format", ["csv", "parquet", "json"])
def test_an_export_reads_back_to_the_last_bit(iss_run: Results, tmp_path, format):
    path = tmp_path / f"export.{format}"
    write_results(iss_run, path, format)
    back = read_results(path)
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(back, name), getattr(iss_run, name))
    assert (back.name, back.noise, back.plan) == (iss_run.name, iss_run.noise, iss_run.plan)
    assert back.manifest == iss_run.manifest


def test_the_published_form_never_prints_a_radius_larger_than_it_is(iss_run: Results, tmp_path):
    path = tmp_path / "log.tsv"
    write_results(iss_run, path, "cohen")
    assert path.read_text().splitlines()[0].split("\t") == [
        "idx",
        "label",
        "predict",
        "radius",
        "correct",
        "time",
    ]
    log = read_log(path)
    assert np.all(log.radius <= iss_run.radius)
    np.testing.assert_allclose(log.radius, iss_run.radius, atol=1e-6)
    np.testing.assert_array_equal(log.prediction, iss_run.prediction)
    np.testing.assert_array_equal(log.correct, iss_run.correct)
    np.testing.assert_allclose(log.seconds, iss_run.seconds, atol=1e-6)


def test_a_published_log_is_read_as_results_that_know_no_samples(iss_run: Results, tmp_path):
    write_results(iss_run, tmp_path / "log.tsv", "cohen")
    results = read_results(tmp_path / "log.tsv")
    assert results.average_samples is None
    assert np.all(np.isnan(results.p))
    assert results.acr == pytest.approx(iss_run.acr, abs=1e-6)


def test_nothing_is_written_without_a_path(iss_run: Results):
    assert json.loads(write_results(iss_run, None, "json"))["name"] == iss_run.name


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b"id,label\n1,2\n"),
        ("a.csv", b"id,label,prediction,radius,samples,count,counted,missing,seconds\n1,2,2,0.5\n"),
        ("a.csv", b'id,label\n1,"2"x\n'),
        ("a.json", b"[" * 100_000),
        ("a.json", b"[]"),
        ("a.json", b'{"name": '),
        ("a.json", b'{"certificates": []}'),
        ("a.parquet", b"PAR1 not really"),
        ("a.tsv", b"\xff\xfe\x00"),
    ],
)
def test_a_file_of_another_kind_is_one_sentence(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=name):
        read_results(tmp_path / name)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (b"\n590,", b"\n580,", "input 580 occurs more than once"),
        (b"\n590,", b"\n1" + b"0" * 20 + b",", "too large"),
        (b"\n590,0,0,1,", b"\n590,0,0,1,-", "radius of input 590"),
        (b"\n590,0,0,1,", b"\n590,0,0,1,nan,1,1,1,1,1,1,\n600,0,0,1,", "radius of input 590"),
        (b"\n590,0,0,1,", b"\n590,0,0,1\n600,0,0,1,", "a row is too short"),
        (b"\n590,0,0,1,", b"\n590,0,0,1,", "radius of input 590"),
    ],
)
def test_a_damaged_row_of_an_export_is_one_sentence(
    iss_run: Results, altered, tmp_path, old, new, named
):
    path = tmp_path / "export.csv"
    good = write_results(altered(iss_run, seconds=np.full(len(iss_run), 0.1)), None, "csv")
    path.write_bytes(b"\xef\xbb\xbf" + good)  # spreadsheets write this byte order mark
    assert len(read_results(path)) == len(iss_run)
    before, _, after = good.rpartition(old)
    if old == new:  # the radius is gone
        after = b"," + after.partition(b",")[2]
    path.write_bytes(before + new + after)
    with pytest.raises(InvalidInput, match=rf"export\.csv.*{named}"):
        read_results(path)


def test_an_export_with_a_plan_and_no_noise_is_damaged(iss_run: Results, tmp_path):
    content = json.loads(write_results(iss_run, format="json"))
    (tmp_path / "run.json").write_text(json.dumps(content | {"noise": None}))
    with refused("damaged-export"):
        read_results(tmp_path / "run.json")


def test_a_csv_export_opens_in_pandas_as_it_is(iss_run: Results, tmp_path):
    pandas = pytest.importorskip("pandas")
    write_results(iss_run, tmp_path / "q.csv")
    frame = pandas.read_csv(tmp_path / "q.csv")
    assert list(frame)[:5] == ["id", "label", "prediction", "correct", "radius"]
    assert frame["radius"].tolist() == iss_run.radius.tolist()
    assert frame["correct"].astype(bool).tolist() == iss_run.correct.tolist()
    assert frame["upper"].isna().all()


def test_an_unknown_label_leaves_correct_empty(iss_run: Results, altered):
    without = altered(iss_run, label=np.where(iss_run.id < 20, -1, iss_run.label))
    rows = [line.split(",") for line in write_results(without, None, "csv").decode().splitlines()]
    assert [row[3] for row in rows[1:4]] == ["", "", str(int(iss_run.correct[2]))]
    first, *_ = json.loads(write_results(without, None, "json"))["certificates"]
    assert first["correct"] is None


def test_the_settings_of_a_csv_file_are_beside_it(iss_run: Results, tmp_path):
    path = tmp_path / "q.csv"
    write_results(iss_run, path)
    assert read_results(path).manifest == iss_run.manifest
    (tmp_path / "q.csv.json").unlink()
    assert read_results(path).plan is None


@pytest.mark.parametrize(
    ("name", "format"), [("q.csv", "csv"), ("q.parquet", "parquet"), ("q.json", "json")]
)
def test_the_format_follows_the_name(iss_run: Results, tmp_path, name, format):
    assert write_results(iss_run, tmp_path / name) == write_results(iss_run, None, format)
    assert read_results(tmp_path / name).samples.tolist() == iss_run.samples.tolist()


def test_a_name_that_no_format_has_and_one_of_another_format_are_refused(
    iss_run: Results, tmp_path
):
    with refused("unknown-ending", ending=".xlsx"):
        write_results(iss_run, tmp_path / "q.xlsx")
    with refused("ending-of-other-format", usual="csv"):
        write_results(iss_run, tmp_path / "q.csv", "cohen")
    assert not list(tmp_path.iterdir())


def test_rows_for_the_leaderboard_hold_the_certified_accuracy_rounded_down(
    iss_run: Results, tmp_path
):
    yaml = pytest.importorskip("yaml")
    write_results(iss_run, tmp_path / "row.yml", radii=[0.25, 0.5])
    settings = yaml.safe_load((tmp_path / "row.yml").read_text())
    assert [s["setting"] for s in settings] == [
        rf"simulated,&nbsp; \(\ell_2\),&nbsp; \(\epsilon={radius}\)" for radius in (0.25, 0.5)
    ]
    for setting, share in zip(settings, iss_run.certified_accuracy([0.25, 0.5]), strict=True):
        [record] = setting["records"]
        score = float(record["score"].rstrip("%"))
        assert 100 * share - 0.01 < score <= 100 * share + 1e-9
        assert record["prob"] is True
        assert record["title"] == "simulated"
        assert "60 inputs" in record["comment"]


@pytest.mark.parametrize(
    ("noise", "radius", "words"),
    [
        (Gaussian(0.5), 2 / 255, r"\(\ell_2\),&nbsp; \(\epsilon=0.00784313725490196\)"),
        (Ablation(45, 784), 2, r"\(\ell_0\) of pixels,&nbsp; \(\epsilon=2\)"),
        (Discrete(0.2, 256), 2, r"\(\ell_0\) of values,&nbsp; \(\epsilon=2\)"),
    ],
    ids=str,
)
def test_the_leaderboard_gets_the_exact_radius_and_what_l0_counts(
    iss_run: Results, altered, noise, radius, words
):
    yaml = pytest.importorskip("yaml")
    [setting] = yaml.safe_load(
        write_results(altered(iss_run, noise=noise), None, "sok", radii=[radius])
    )
    assert setting["setting"] == f"simulated,&nbsp; {words}"


@pytest.mark.parametrize(
    ("values", "words"), [((0.0, 255.0), r"lie in \[0, 255\]"), (None, "are not recorded")]
)
def test_radii_in_other_units_have_no_row_for_the_leaderboard(
    iss_run: Results, altered, values, words
):
    other = altered(
        iss_run, manifest=altered(iss_run.manifest, values=values, data="cifar10")
    )  # a name proves nothing
    with pytest.raises(
        InvalidInput,
        match=rf"radii for inputs in \[0, 1\], but the values of the inputs of iss {words}",
    ):
        write_results(other, None, "sok", radii=[50.0])


def test_a_run_that_is_not_finished_has_no_row_for_the_leaderboard(iss_run: Results, altered):
    unfinished = altered(iss_run, manifest=replace(iss_run.manifest, ids=tuple(range(0, 610, 10))))
    with refused("not-finished", done=60, asked=61, name="iss"):
        write_results(unfinished, None, "sok", radii=[0.25])


def test_counting_every_outcome_is_not_probabilistic_on_the_leaderboard(
    iss_run: Results, altered, tmp_path
):
    write_results(altered(iss_run, plan=Exact(100)), tmp_path / "row.yml", radii=[0.25])
    assert "prob: false" in (tmp_path / "row.yml").read_text()


def test_a_log_has_no_row_for_the_leaderboard(iss_run: Results, altered):
    with refused("no-settings"):
        write_results(altered(iss_run, noise=None), None, "sok")
    with refused("no-labels"):
        write_results(altered(iss_run, label=np.full(len(iss_run), -1)), None, "sok")
    with refused("no-positive-radius"):
        write_results(iss_run, None, "sok", radii=[0.0])
    with refused("radii-for-other-format"):
        write_results(iss_run, None, "json", radii=[0.5])


def test_a_card_has_the_metadata_that_hugging_face_reads(iss_run: Results, altered, tmp_path):
    yaml = pytest.importorskip("yaml")
    hostile = altered(iss_run, manifest=altered(iss_run.manifest, model='a "model": <b>'))
    _, metadata, text = (
        write_results(hostile, tmp_path / "README.md", radii=[0.25, 0.5]).decode().split("---\n", 2)
    )
    [model] = yaml.safe_load(metadata)["model-index"]
    [result] = model["results"]
    assert (model["name"], result["dataset"]["name"]) == ('a "model": <b>', "simulated")
    low, high = (metric["value"] for metric in result["metrics"])
    assert [low, high] == pytest.approx(
        (100 * iss_run.certified_accuracy([0.25, 0.5])).tolist(), abs=0.01
    )
    assert f"| 0.25 | {low:.1f}% |" in text


def test_results_become_a_data_frame(iss_run: Results, altered):
    pytest.importorskip("pandas")
    frame = iss_run.to_pandas()
    assert frame["radius"].tolist() == iss_run.radius.tolist()
    assert frame["correct"].mean() == iss_run.correct.mean()
    unknown = altered(iss_run, label=np.full(len(iss_run), -1)).to_pandas()
    assert unknown["correct"].isna().all()


def test_a_missing_pandas_is_one_sentence(iss_run: Results, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with refused("missing-extra", MissingExtra, extra="pandas"):
        iss_run.to_pandas()


def test_the_published_form_warns_that_it_loses_decided_radii(
    iss_run: Results, altered, tmp_path, recwarn
):
    decided = altered(iss_run, plan=AtRadii([0, 0.5], samples=10_000))
    with pytest.warns(
        UserWarning,
        match="does not say that iss decides radii.*csv, json and parquet keep the plan",
    ):
        write_results(decided, tmp_path / "a.tsv")
    recwarn.clear()
    write_results(decided, tmp_path / "a.csv")
    write_results(iss_run, tmp_path / "b.tsv")
    assert not recwarn.list


def test_the_published_form_warns_that_it_loses_the_norm(iss_run: Results, altered, tmp_path):
    elsewhere = altered(iss_run, noise=Laplace(0.25))
    with pytest.warns(UserWarning, match="radii of iss are in l1"):
        write_results(elsewhere, tmp_path / "a.tsv")


def test_a_card_names_what_belongs_to_the_classifier(iss_run: Results, altered):
    settings = {"local": "5,0.25"}
    manifest = altered(iss_run.manifest, weights="a,b,c", settings=settings)
    card = write_results(altered(iss_run, manifest=manifest), format="card").decode()
    assert "| network | the mean of 3 networks |" in card
    assert "| local | 5,0.25 |" in card


def test_a_card_shows_foreign_names_as_text(iss_run, altered):
    hostile = "<img src=x onerror=alert(1)> [a](javascript:b) | `c`"
    run = altered(iss_run, manifest=replace(iss_run.manifest, model=hostile, weights_hash=hostile))
    body = write_results(run, format="card").decode().split("---", 2)[2]
    shown = "&lt;img src=x onerror=alert(1)&gt; \\[a\\](javascript:b) \\| \\`c\\`"
    assert "<img" not in body
    assert body.count(shown) == 2

import json

import numpy as np
import pytest

from smoothcert.errors import InvalidInput
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
    assert path.read_text().splitlines()[0].split("\t") == ["idx", "label", "predict", "radius", "correct", "time"]
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
        ("a.csv", b'# {"name": "a", "noise": null, "plan": null, "manifest": {}}\nid,label\n1,2\n'),
        ("a.csv", b'# {"name": "a", "noise": null, "plan": null, "manifest": {}}\nid,label\n1,"2"x\n'),
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
        (b"\n590,0,0,", b"\n590,0,0,-", "radius of input 590"),
        (b"\n590,0,0,", b"\n590,0,0,nan,1,1,1,1,1,1,1\n600,0,0,", "radius of input 590"),
        (b",nan\n", b"\n", "could not convert string to float: ''"),
    ],
)
def test_a_damaged_row_of_an_export_is_one_sentence(iss_run: Results, altered, tmp_path, old, new, named):
    path = tmp_path / "export.csv"
    good = write_results(altered(iss_run, seconds=np.full(len(iss_run), 0.1)), None, "csv")
    path.write_bytes(b"\xef\xbb\xbf" + good)  # the mark that spreadsheets put in front
    assert len(read_results(path)) == len(iss_run)
    before, _, after = good.rpartition(old)
    path.write_bytes(before + new + after)
    with pytest.raises(InvalidInput, match=rf"export\.csv.*{named}"):
        read_results(path)


def test_a_missing_file_and_an_unwritable_one_are_named(iss_run: Results, tmp_path):
    with pytest.raises(InvalidInput, match="does not exist"):
        read_results(tmp_path / "nothing.csv")
    with pytest.raises(InvalidInput, match="cannot write"):
        write_results(iss_run, tmp_path, "csv")

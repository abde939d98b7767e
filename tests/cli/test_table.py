import json

import pytest
from typer.testing import CliRunner

from smoothcert.cli import app
from smoothcert.runs.decline import largest_decline
from smoothcert.runs.formats import read_results, write_results


def test_table_prints_the_agreed_json(iss_run, fixed_run, tmp_path):
    for run in (iss_run, fixed_run):
        write_results(run, tmp_path / f"{run.name}.json", "json")
    result = CliRunner().invoke(
        app,
        [
            "table",
            str(tmp_path / "iss.json"),
            str(tmp_path / "fixed.json"),
            "--radii",
            "0,0.5",
            "--json",
        ],
    )
    assert result.exit_code == 0, result.output
    first = json.loads(result.stdout)["runs"][0]
    assert first["name"] == "iss"
    assert first["inputs"] == first["asked"] == len(iss_run)
    assert (first["noise"], first["alpha"]) == ("Gaussian(sigma=0.5)", 0.001)
    assert first["average_samples"] == iss_run.average_samples
    assert first["seconds"] == iss_run.total_seconds
    assert first["abstained"] == iss_run.abstained.mean()
    assert first["mad"] == largest_decline(iss_run, fixed_run)
    assert first["certified_accuracy"] == {
        "0": iss_run.certified_accuracy([0])[0],
        "0.5": iss_run.certified_accuracy([0.5])[0],
    }


def test_export_writes_to_a_file_or_to_standard_output(iss_run, tmp_path):
    write_results(iss_run, tmp_path / "iss.json", "json")
    printed = CliRunner().invoke(app, ["export", str(tmp_path / "iss.json")])
    assert printed.stdout_bytes == write_results(iss_run, None, "cohen")
    out = tmp_path / "iss.parquet"
    CliRunner().invoke(
        app, ["export", str(tmp_path / "iss.json"), "--format", "parquet", "--out", str(out)]
    )
    assert read_results(out).acr == iss_run.acr


@pytest.mark.parametrize("command", ["export --format json", "report"])
def test_what_is_read_and_the_journal_of_a_run_are_never_replaced(
    iss_run, smoothcert, tmp_path, command
):
    log, journal = tmp_path / "iss.json", tmp_path / "run" / "journal.sqlite"
    kept = write_results(iss_run, log)
    journal.parent.mkdir()
    journal.write_text("kept")
    answer = smoothcert(f"{command} {log} --out {tmp_path / 'run' / '..' / 'iss.json'}")
    assert answer.code == 2
    assert answer.err.endswith("would replace what is read: choose another file\n")
    assert smoothcert(f"{command} {log} --out {journal}").err.endswith(
        "would replace a run: choose another file\n"
    )
    assert (log.read_bytes(), journal.read_text()) == (kept, "kept")


def test_a_csv_export_says_where_its_settings_are(iss_run, smoothcert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_results(iss_run, "iss.json")
    assert smoothcert("export iss.json --out q.csv").out == (
        "q.csv: 60 inputs; noise, plan and manifest are in q.csv.json\n"
    )
    assert read_results("q.csv").manifest == iss_run.manifest

from typer.testing import CliRunner

from smoothcert.cli import app
from smoothcert.runs.decline import largest_decline
from smoothcert.runs.formats import write_results


def test_report_writes_the_page_and_the_figures(iss_run, fixed_run, tmp_path):
    for run in (iss_run, fixed_run):
        write_results(run, tmp_path / f"{run.name}.json", "json")
    page, figures = tmp_path / "page.html", tmp_path / "figures"
    options = [
        "--reference",
        str(tmp_path / "fixed.json"),
        "--radii",
        "0,0.3",
        "--figures",
        str(figures),
    ]
    result = CliRunner().invoke(
        app, ["report", str(tmp_path / "iss.json"), "--out", str(page), *options]
    )
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert "CA 0.3" in text
    assert f"the largest radius lost to that is {largest_decline(iss_run, fixed_run):.3f}" in text
    assert result.stdout.startswith(f"{page}: {page.stat().st_size / 1e6:.1f} MB\n")
    assert page.stat().st_size < 3e6  # small enough to be sent by mail
    assert (figures / "certified-accuracy.pdf").exists()
    assert str(figures / "certified-accuracy.pdf") in result.stdout.splitlines()


def test_a_log_is_given_its_pictures_and_a_run_no_others_than_its_own(
    smoothcert, iss_run, tmp_path
):
    page = tmp_path / "page.html"
    for name, format in (("iss.json", "json"), ("iss.tsv", "cohen")):
        write_results(iss_run, tmp_path / name, format)
    refused = smoothcert(f"report {tmp_path / 'iss.json'} --data fashion-mnist --out {page}")
    assert refused.code == 2
    assert "is not the data that the runs were made on" in refused.err
    assert smoothcert(f"report {tmp_path / 'iss.tsv'} --data fashion-mnist --out {page}").code == 0
    assert "Ankle boot" in page.read_text()
    assert "data:image/png;base64," in page.read_text()


def test_explain_adds_inputs_to_the_page(smoothcert, iss_run, tmp_path):
    run, page = tmp_path / "run", tmp_path / "page.html"
    settings = "--model fashion-cnn --data fashion-mnist --sigma 0.25 --samples 200 --device cpu --batch 64"
    assert smoothcert(f"certify {settings} --limit 3 --out {run}").code == 0
    assert smoothcert(f"report {run} --explain 0,2 --out {page}").code == 0
    text = page.read_text()
    assert "Input 0, label Ankle boot" in text
    assert "Input 1," not in text
    assert "Input 2," in text
    write_results(iss_run, tmp_path / "iss.json", "json")
    refused = smoothcert(f"report {tmp_path / 'iss.json'} --explain 0 --out {page}")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "--explain needs the folder of a run" in refused.err

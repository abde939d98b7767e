from typer.testing import CliRunner

from smoothcert.cli import app
from smoothcert.runs.formats import write_results


def test_report_writes_the_page_and_the_figures(iss_run, fixed_run, tmp_path):
    for run in (iss_run, fixed_run):
        write_results(run, tmp_path / f"{run.name}.json", "json")
    page, figures = tmp_path / "page.html", tmp_path / "figures"
    options = ["--reference", str(tmp_path / "fixed.json"), "--radii", "0,0.3", "--figures", str(figures)]
    result = CliRunner().invoke(app, ["report", str(tmp_path / "iss.json"), "--out", str(page), *options])
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert "CA 0.3" in text
    assert f"the largest radius lost to that is {iss_run.decline(fixed_run):.3f}" in text
    assert result.stdout.startswith(f"{page}: 0.9 MB\n")
    assert (figures / "certified-accuracy.pdf").exists()
    assert str(figures / "certified-accuracy.pdf") in result.stdout.splitlines()


def test_pictures_of_another_data_set_are_asked_for_by_name(iss_run, tmp_path):
    write_results(iss_run, tmp_path / "iss.json", "json")
    page = tmp_path / "page.html"
    result = CliRunner().invoke(
        app, ["report", str(tmp_path / "iss.json"), "--data", "fashion-mnist", "--out", str(page)]
    )
    assert result.exit_code == 0, result.output
    assert "Ankle boot" in page.read_text()
    assert "data:image/png;base64," in page.read_text()

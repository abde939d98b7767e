"""The reproduction of the paper, on a small log that is made here."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PAPER = Path(__file__).parents[2] / "docs" / "paper"


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(str(PAPER))
    import tables

    yield tables
    sys.modules.pop("tables")


def test_every_row_that_the_paper_prints_is_there(tables):
    assert [len(tables.printed(name)) for name in ("imagenet-ad", "imagenet-rd", "cifar10-ad")] == [8, 4, 12]
    iss, ias = tables.printed("imagenet-ad")[0]
    assert (iss.method, iss.samples, iss.acr, iss.mad) == ("ISS-AD-10-0.05", 32_992, 0.794, 0.05)
    assert (ias.method, ias.samples) == ("IAS-3.3", 33_000)
    assert ias.certified_accuracy[1.5] == pytest.approx(0.328)


def test_published_rows_use_the_published_method(tables):
    plan = tables.setting("ISS-RD-50-0.05", pilot_use="reuse")
    assert (plan.samples, plan.decline, plan.kind, plan.grid, plan.pilot) == (500_000, 0.05, "relative", "paper", 5_000)


def test_a_folder_without_logs_says_where_they_are(tmp_path):
    result = subprocess.run(
        [sys.executable, PAPER / "reproduce.py", tmp_path], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert "github.com/jh-jeong/smoothing-consistency" in result.stderr


def _write_log(path, sigma):
    """Ten inputs with radii up to what 100,000 samples prove."""
    radii = np.linspace(0.05, 3.8, 10) * sigma
    rows = [f"{20 * i}\t1\t{i % 5 and 1}\t{radius:.3g}\t{int(i % 5 > 0)}\t0:00:10.5" for i, radius in enumerate(radii)]
    path.write_text("\n".join(["idx\tlabel\tpredict\tradius\tcorrect\ttime", *rows]) + "\n")


def test_the_page_is_written_from_logs(tmp_path, monkeypatch):
    copy = tmp_path / "paper"
    shutil.copytree(PAPER, copy, ignore=shutil.ignore_patterns("*.svg", "README.md", "__pycache__"))
    for data in ("imagenet", "cifar10"):
        for sigma in (0.5, 1.0):
            _write_log(tmp_path / f"{data}-consistency-{sigma:.2f}.tsv", sigma)
    monkeypatch.syspath_prepend(str(copy))
    monkeypatch.setattr(sys, "argv", ["reproduce.py", str(tmp_path)])
    runpy.run_path(str(copy / "reproduce.py"), run_name="__main__")
    for module in ("plots", "tables"):
        sys.modules.pop(module)
    page = (copy / "README.md").read_text()
    assert "| ISS-AD-10-0.05 |" in page
    assert "32,992" in page
    assert "No log of this model was given." in page
    figures = {path.name for path in copy.glob("*.svg")}
    assert len(figures) == 6
    assert all(f"({name})" in page for name in figures)


def test_the_committed_page_is_that_of_the_template():
    page, template = (PAPER / "README.md").read_text(), (PAPER / "template.md").read_text()
    headings = [line for line in template.splitlines() if line.startswith("#")]
    assert [line for line in page.splitlines() if line.startswith(("# ", "## "))] == headings

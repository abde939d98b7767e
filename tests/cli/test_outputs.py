"""No command writes over a run, over what it reads, or over data of another format."""

import os
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.refusals import refused

from smoothcert._files import check_output, write_output
from smoothcert.plans import Fixed
from smoothcert.report import write_report
from smoothcert.report.charts import certified_accuracy
from smoothcert.report.figures import save
from smoothcert.runs.formats import write_results
from smoothcert.runs.run import open_run

COMMANDS = {
    "gate --junit": "gate {run} --policy {policy} --junit",
    "compare --report": "compare {run} {run} --report",
    "audit --evidence": "audit {run} --redraw 0 --evidence",
    "report --out": "report {run} --out",
    "export to TSV": "export {run} --format cohen --out",
    "export a card": "export {run} --format card --out",
}
"""Every command that writes a file of the user."""


@pytest.fixture(scope="module")
def recorded(on_disk):
    return on_disk("recorded", Fixed(1_000), inputs=4).path


@pytest.fixture
def run(recorded, tmp_path):
    folder = shutil.copytree(recorded, tmp_path / "run")
    (folder / ".lock").touch()
    return folder


@pytest.fixture
def write_to(smoothcert, run, tmp_path):
    """Run a command of the table above that writes to a place."""
    policy = tmp_path / "policy.toml"
    policy.write_text("inputs = 1")

    def write(command, place):
        line = COMMANDS[command].format(run=run, policy=policy)
        return smoothcert(f"{line} {place}")

    return write


def _journal(folder):
    return folder / "run" / "journal.sqlite"


def _through_parent(folder):
    return folder / "run" / ".." / "run" / "journal.sqlite"


def _symlink(folder):
    (folder / "page.html").symlink_to(_journal(folder))
    return folder / "page.html"


def _linked_folder(folder):
    (folder / "link").symlink_to(folder / "run")
    return folder / "link" / "journal.sqlite"


def _hard_link(folder):
    os.link(_journal(folder), folder / "page.html")
    return folder / "page.html"


def _copy_under_another_name(folder):
    return shutil.copy(_journal(folder), folder / "backup.db")


def _write_ahead_log(folder):
    return folder / "run" / "journal.sqlite-wal"


def _lock(folder):
    return folder / "run" / ".lock"


PLACES_IN_RUNS = [
    _journal,
    _through_parent,
    _symlink,
    _linked_folder,
    _hard_link,
    _copy_under_another_name,
    _write_ahead_log,
    _lock,
]


@pytest.mark.parametrize("place", PLACES_IN_RUNS)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_replaces_a_file_of_a_run(write_to, run, tmp_path, command, place):
    target = place(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    answer = write_to(command, target)
    assert answer.code == 2
    assert answer.err.endswith("would replace a run: choose another file\n")
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before
    assert len(open_run(run)) == 4


def _safetensors(path):
    save_file({"weight": torch.zeros(3)}, path)


def _checkpoint(path):
    torch.save({"weight": torch.zeros(3)}, path)


def _arrays(path):
    with path.open("wb") as file:
        np.savez(file, x=np.zeros((2, 3)))


def _png(path):
    path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")


@pytest.mark.parametrize("made", [_safetensors, _checkpoint, _arrays, _png])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_replaces_weights_or_arrays_or_images(write_to, tmp_path, command, made):
    target = tmp_path / "precious"
    made(target)
    before = target.read_bytes()
    answer = write_to(command, target)
    assert answer.code == 2
    assert "holds data of another format" in answer.err
    assert target.read_bytes() == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_is_not_a_file_to_write(write_to, run, command):
    answer = write_to(command, run)
    assert answer.code == 2
    assert "Is a directory" in answer.err


@pytest.mark.parametrize("command", COMMANDS)
def test_an_earlier_output_is_replaced(write_to, run, command):
    target = run / "report"  # the folder of a run is a good place for it
    target.write_text("é" * 2_000)  # 1,024 bytes end within a character
    assert write_to(command, target).code == 0
    assert "é" * 1_000 not in target.read_text()


@pytest.mark.parametrize(
    "line",
    [
        "gate {run} --policy {kept} --junit {kept}",
        "gate {run} --policy {policy} --model {kept}:net --junit {kept}",
        "compare {run} {kept} --report {kept}",
        "compare {kept}:a {kept}:b --data digits.npz --report {kept}",
        "audit {run} --weights {kept} --evidence {kept}",
        "audit {run} --data {kept} --evidence {kept}",
        "report {run} --reference {kept} --out {kept}",
        "report {run} {kept} --out {kept}",
        "export {kept} --format cohen --out {kept}",
    ],
)
def test_what_a_command_reads_is_not_replaced(smoothcert, run, tmp_path, line):
    (tmp_path / "policy.toml").write_text("inputs = 1")
    kept = tmp_path / "kept.tsv"
    write_results(open_run(run), kept)
    before = kept.read_bytes()
    answer = smoothcert(line.format(run=run, kept=kept, policy=tmp_path / "policy.toml"))
    assert answer.code == 2
    assert answer.err.endswith("would replace what is read: choose another file\n")
    assert kept.read_bytes() == before


def test_the_settings_of_a_csv_export_are_not_replaced(smoothcert, run, tmp_path):
    write_results(open_run(run), tmp_path / "q.csv")
    before = (tmp_path / "q.csv.json").read_bytes()
    answer = smoothcert(f"export {tmp_path}/q.csv --out {tmp_path}/q.csv.json")
    assert answer.code == 2
    assert (tmp_path / "q.csv.json").read_bytes() == before
    (tmp_path / "new.csv.json").mkdir()
    assert smoothcert(f"export {run} --out {tmp_path}/new.csv").code == 2
    assert not (tmp_path / "new.csv").exists()


def test_python_refuses_what_the_command_line_refuses(run):
    opened = open_run(run)
    with refused("output-is-a-run", path=run / "journal.sqlite"):
        write_results(opened, run / "journal.sqlite", "json")
    with refused("output-is-a-run"):
        write_report(opened, run / "journal.sqlite")
    chart = certified_accuracy([opened])
    (run / "figure.svg").symlink_to(run / "journal.sqlite")
    with refused("output-is-a-run"):
        save(chart, run / "figure", ["svg"])


def test_a_new_file_is_not_called_like_that_of_a_run(tmp_path):
    for name in ("journal.sqlite", "Journal.SQLite", "journal.sqlite-shm", ".lock"):
        with refused("output-is-a-run"):
            check_output(tmp_path / name)
    check_output(tmp_path / "journal.html")


def test_data_of_the_same_format_is_replaced(tmp_path):
    for content in (b"PAR1\0old", b"PAR1\0new"):
        write_output(tmp_path / "q.parquet", content)
    assert (tmp_path / "q.parquet").read_bytes() == b"PAR1\0new"
    with refused("output-of-another-format"):
        write_output(tmp_path / "q.parquet", b"\x89PNG\0")


def test_links_that_lead_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with refused("cannot-write"):
        write_output(tmp_path / "a", b"text")

"""Every command that reads a run survives damaged entries of its manifest with one sentence."""

import json
import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import fields

import numpy as np
import pytest
import torch
from tests.refusals import refused

from smoothcert.errors import SmoothcertError
from smoothcert.report import write_report
from smoothcert.report.evidence import write_evidence
from smoothcert.runs.formats import read_results, write_results
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.merge import merge
from smoothcert.runs.progress import Progress
from smoothcert.runs.run import open_run
from smoothcert.runs.table import table
from smoothcert.runs.words import summary
from smoothcert.tasks.attack import attack
from smoothcert.tasks.audit import audit
from smoothcert.tasks.certify import certify, forecast
from smoothcert.tasks.compare import compare
from smoothcert.tasks.explain import explain
from smoothcert.tasks.gate import gate

NESTED = [[[[[[[[[[[[[[[[[[[[{"deep": {"deeper": {}}}]]]]]]]]]]]]]]]]]]]]
DAMAGES = [
    None,
    True,
    0,
    -1,
    7,
    2.5,
    float("nan"),
    float("inf"),
    10**30,
    "",
    "text",
    [],
    ["text", None],
    [[1, 2]],
    [1, 1],
    {},
    {"name": "text"},
    {"name": "Gaussian", "sigma": "text"},
    {"first": 0, "last": 3, "step": 0},
    {"a": {"b": {"c": None}}},
    NESTED,
]
ENTRIES = [field.name for field in fields(Manifest)]


def _model(x):
    brightness = x.flatten(1).mean(1)
    return torch.stack([0.5 - brightness, brightness - 0.5], 1)


INPUTS = torch.linspace(0, 1, 96).reshape(6, 1, 4, 4)
LABELS = [0, 0, 0, 1, 1, 1]
SUBJECT = {"sigma": 0.25, "batch": 64, "dtype": "float32", "device": "cpu", "classes": 2}
QUIET = {"progress": Progress()}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run with a budget and with attacks."""
    folder = tmp_path_factory.mktemp("runs") / "recorded"
    data = (INPUTS, np.array(LABELS))
    certify(_model, data, budget=4_000, limit=6, out=folder, **SUBJECT, **QUIET)
    attack(folder, model=_model, data=data, attempts=1, steps=1, copies=2, limit=2)
    return folder


def _interrupt(folder):
    """Take the last certificate away, so that the run can be resumed."""
    with closing(sqlite3.connect(folder / "journal.sqlite")) as db, db:
        db.execute("DELETE FROM certificates WHERE id = 5")


def _commands(folder, out):
    data = (INPUTS, np.array(LABELS))
    here = {"model": _model, "data": data}
    yield lambda: table([folder]).render()
    yield lambda: summary(open_run(folder))
    yield lambda: write_report(folder, out / "report.html")
    yield lambda: write_evidence(folder, audit(folder, redraw=0), out / "evidence.html")
    yield lambda: audit(folder, redraw=1, **here)
    yield lambda: compare(folder, folder)
    yield lambda: gate(folder, {"inputs": 1, "dtype": "float32", "audit": 0})
    yield lambda: gate(folder, {"certified_accuracy": {"0.1": 10}})
    for format in ("cohen", "csv", "parquet", "json", "sok", "card"):
        yield lambda format=format: write_results(open_run(folder), out / format, format)
    yield lambda: _write_and_read(folder, out)
    yield lambda: explain(folder, [0], **here)
    yield lambda: merge([folder], out=out / "merged", partial=True)
    yield lambda: attack(folder, attempts=1, steps=1, copies=2, limit=3, **here)
    _interrupt(folder)
    yield lambda: forecast(_model, data, budget=4_000, out=folder, **SUBJECT)
    yield lambda: certify(_model, data, budget=4_000, out=folder, **SUBJECT, **QUIET)


def _write_and_read(folder, out):
    write_results(open_run(folder), out / "export.json")
    read_results(out / "export.json")


def _refusal(folder):
    """The error with which the run is refused as soon as it is opened; None if it can be read."""
    try:
        open_run(folder)
    except SmoothcertError as error:
        return error
    return None


def _survives(folder, out):
    """Run every command. Any other error than one for the user fails the test."""
    for number, command in enumerate(_commands(folder, out)):
        own = out / str(number)
        own.mkdir()
        with suppress(SmoothcertError):
            command()


def _replace_entry(folder, entry, value):
    with closing(sqlite3.connect(folder / "journal.sqlite")) as db, db:
        db.execute("UPDATE manifest SET value = ? WHERE key = ?", (json.dumps(value), entry))


@pytest.fixture
def damaged(recorded, tmp_path):
    """A copy of the run in which one entry of the manifest has another value."""

    def damage(entry, value):
        folder = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(recorded, folder)
        _replace_entry(folder, entry, value)
        return folder

    return damage


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_command_survives_every_damaged_entry(damaged, tmp_path, entry):
    for number, value in enumerate(DAMAGES):
        folder = damaged(entry, value)
        refusal = _refusal(folder)
        if refusal is not None:  # so does every command, because all read the run there
            assert refusal.fields["entry"] == entry
            continue
        out = tmp_path / f"out-{number}"
        out.mkdir()
        _survives(folder, out)


@pytest.mark.filterwarnings("ignore")
def test_an_undamaged_run_gets_through_all_commands(recorded, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(recorded, folder)
    for command in _commands(folder, tmp_path):
        command()
    assert open_run(folder).complete


@pytest.mark.parametrize(
    "entry",
    [
        "circumstances",
        "settings",
        "answers",
        "budget",
        "shard",
        "forwarded",
        "model",
        "weights",
        "spending",
    ],
)
def test_every_command_names_the_entry(damaged, tmp_path, entry):
    folder = damaged(entry, [[3]])
    for command in _commands(folder, tmp_path):
        with refused("unreadable-manifest", SmoothcertError, entry=entry):
            command()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", ["spending", "budget", "noise", "plan", "circumstances"])
def test_every_command_survives_damage_within_an_entry(damaged, recorded, tmp_path, entry):
    with Journal(recorded) as journal:
        record = journal.manifest().plain()[entry]
    for key in ("torch",) if entry == "circumstances" else record:
        for number, value in enumerate(DAMAGES):
            folder = damaged(entry, dict(record) | {key: value})
            if _refusal(folder) is not None:
                continue
            out = tmp_path / f"out-{key}-{number}"
            out.mkdir()
            _survives(folder, out)


CERTIFICATE = (
    "label prediction radius samples count counted missing seconds lower upper chosen proved "
    "looks plan"
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("column", CERTIFICATE.split())
def test_every_command_survives_a_damaged_certificate(recorded, tmp_path, column):
    values = [None, "text", -5, 2.5, 10**18, b"\xff", "[[1]]", "{}", '{"name": "Gaussian"}']
    values += ["null", '[[10, {"0": "x"}]]', '[[10, {"0": 11}]]', json.dumps(NESTED)]
    for number, value in enumerate(values):
        folder = tmp_path / f"run-{number}"
        shutil.copytree(recorded, folder)
        with (
            closing(sqlite3.connect(folder / "journal.sqlite")) as db,
            db,
            suppress(sqlite3.IntegrityError),
        ):
            db.execute(f"UPDATE certificates SET {column} = ? WHERE id = 0", (value,))
        out = tmp_path / f"out-{number}"
        out.mkdir()
        _survives(folder, out)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE manifest SET value = '5' WHERE key LIKE 'attack%'",
        "UPDATE manifest SET value = '{}' WHERE key LIKE 'attack%'",
        """UPDATE manifest SET value = '{"shape": "x"}' WHERE key LIKE 'attack%'""",
        "UPDATE manifest SET value = '{' WHERE key LIKE 'attack%'",
        "UPDATE attacks SET id = 999 WHERE id = 0",
        "UPDATE attacks SET distance = 'x' WHERE id = 0",
        "UPDATE attacks SET id = 'x' WHERE id = 0",
        "UPDATE certificates SET id = -7 WHERE id = 0",
    ],
)
def test_every_command_survives_damaged_attacks_and_ids(recorded, tmp_path, statement):
    folder = tmp_path / "run"
    shutil.copytree(recorded, folder)
    with closing(sqlite3.connect(folder / "journal.sqlite")) as db, db:
        db.execute(statement)
    _survives(folder, tmp_path)

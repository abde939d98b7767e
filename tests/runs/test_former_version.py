"""Runs and exports that version 0.1.0 wrote can be read, tabulated, exported, reported, audited and resumed."""

import json
import sqlite3

import numpy as np
import pytest
import torch

import smoothcert as sc
from smoothcert._registry import restore
from smoothcert.runs.journal import FILE
from smoothcert.runs.run import open_run
from smoothcert.tasks.audit import audit

SCHEMA = """
CREATE TABLE manifest (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE certificates (
    id INTEGER PRIMARY KEY,
    label INTEGER,
    prediction INTEGER,
    radius REAL NOT NULL,
    count INTEGER NOT NULL,
    counted INTEGER NOT NULL,
    looks TEXT NOT NULL,
    seconds REAL NOT NULL
);
"""
FIXED = {"name": "Fixed", "samples": 1000, "pilot": 100, "alpha": 0.001, "pilot_use": "fresh"}
ISS = FIXED | {"name": "InputSpecific", "decline": 0.05, "kind": "absolute", "grid": "exact"}
REUSE = ISS | {"pilot_use": "reuse", "grid": "paper"}
PLANS = {"fixed": FIXED, "iss": ISS, "reuse": REUSE, "together": {"name": "Together", "plans": [ISS, FIXED, REUSE]}}
DATA = [(x, int(x[0] > 0.5)) for x in np.random.default_rng(0).random((12, 3))]
pytestmark = pytest.mark.filterwarnings("ignore:the pilot is counted again")
COLUMNS = "id, label, prediction, radius, count, counted, looks, seconds"


def above_half(x):
    return torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1)


def certify(folder, plan, **settings):
    return sc.certify(
        above_half, DATA, noise=sc.Gaussian(0.25), plan=plan, out=folder, device="cpu", batch=500, **settings
    )


def now(plan):
    """The plan that version 0.1.0 described like this."""
    return restore(json.loads(json.dumps(plan)))


@pytest.fixture(params=PLANS)
def old(request, tmp_path):
    """A run of 8 inputs out of 12 in the form of version 0.1.0, and the run of all 12 as this version makes it."""
    plan = PLANS[request.param]
    new = certify(tmp_path / "new", now(plan))
    folder = tmp_path / "old"
    folder.mkdir()
    made, db = sqlite3.connect(new.path / FILE), sqlite3.connect(folder / FILE)
    manifest = {key: json.loads(value) for key, value in made.execute("SELECT key, value FROM manifest")}
    del manifest["fallback"], manifest["finished"]
    manifest |= {"plan": plan, "compiled": manifest["compile"], "forwarded": 5000}
    manifest["circumstances"]["smoothcert"] = "0.1.0"
    db.execute("PRAGMA journal_mode = WAL")
    db.executescript(SCHEMA)
    db.executemany("INSERT INTO manifest VALUES (?, ?)", [(k, json.dumps(v)) for k, v in manifest.items()])
    rows = made.execute(f"SELECT {COLUMNS} FROM certificates WHERE id < 8").fetchall()
    db.executemany("INSERT INTO certificates VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    db.commit()
    made.close()
    db.close()
    return open_run(folder), new


def plain(run):
    return [vars(c) | {"seconds": 0} for c in run.certificates()]


def test_it_is_read_as_if_this_version_had_written_it(old):
    run, new = old
    assert (run.plan, run.noise) == (new.plan, new.noise)
    assert plain(run) == plain(new)[:8]  # the proof is computed from the votes
    assert run.lower.tolist() == new.lower[:8].tolist()
    assert not run.complete
    assert (run.manifest.forwarded, run.manifest.fallback) == (5000, None)
    assert run.manifest.circumstances["smoothcert"] == "0.1.0"


def test_reading_it_changes_nothing(old):
    run, _ = old
    before = (run.path / FILE).read_bytes()
    list(run.certificates())
    audit(run.path, redraw=0)
    sc.compare([run]).render()
    assert (run.path / FILE).read_bytes() == before


def test_it_is_tabulated_beside_runs_of_this_version(old):
    run, new = old
    first, second = sc.compare([run, new]).rows
    assert (first.method, first.inputs, first.asked) == (second.method, 8, 12)
    assert run.shares_noise_with(new)


def test_it_is_exported(old, tmp_path):
    run, _ = old
    for format in ("csv", "json", "parquet"):
        sc.write_results(run, tmp_path / f"a.{format}", format)
        back = sc.read_results(tmp_path / f"a.{format}")
        assert back.plan == run.plan
        assert back.radius.tolist() == run.radius.tolist()
        assert back.lower.tolist() == run.lower.tolist()


def test_it_is_reported(old, tmp_path):
    run, new = old
    page = sc.write_report([run, new], tmp_path / "page.html")
    assert str(run.plan) in page.read_text()


def test_it_is_audited_by_its_votes_and_by_drawing_again(old):
    run, _ = old
    found = audit(run.path, redraw=8, model=above_half, data=DATA)
    assert (found.checked, found.asked, found.redrawn, found.findings) == (8, 12, 8, ())
    with sqlite3.connect(run.path / FILE) as db:
        db.execute("UPDATE certificates SET radius = radius * 1.01 WHERE prediction IS NOT NULL")
    db.close()
    assert len(audit(run.path, redraw=0).findings) == int((~run.abstained).sum()) > 0


def test_it_is_resumed_to_the_certificates_of_this_version(old):
    run, new = old
    resumed = certify(run.path, run.plan)
    assert resumed.complete
    assert plain(resumed) == plain(new)
    assert resumed.manifest.forwarded > 5000
    assert not audit(run.path, redraw=12, model=above_half, data=DATA).findings


def test_another_configuration_is_still_refused_in_its_folder(old):
    run, _ = old
    with pytest.raises(sc.InvalidInput, match="holds another run: it differs in seed"):
        certify(run.path, run.plan, seed=1)


def test_combined_plans_are_split_into_what_each_would_have_certified(old):
    run, new = old
    for before, after in zip(run.split(), new.split(), strict=True):
        assert before.plan == after.plan
        assert before.radius.tolist() == after.radius[:8].tolist()


@pytest.mark.parametrize("format", ["csv", "json"])
def test_an_export_without_proofs_is_read_with_unknown_bounds(old, tmp_path, format):
    """Version 0.1.0 exported nine columns."""
    run, _ = old
    if format == "json":
        exported = json.loads(sc.write_results(run, None, "json"))
        for row in exported["certificates"]:
            del row["lower"], row["upper"]
        exported["manifest"] |= {"compiled": exported["manifest"]["compile"]}
        del exported["manifest"]["fallback"]
        (tmp_path / "old.json").write_text(json.dumps(exported))
    else:
        settings = json.loads(sc.write_results(run, None, "json"))
        del settings["certificates"]
        rows = [line.split(",") for line in sc.write_results(run, None, "csv").decode().splitlines()]
        nine = [",".join([*row[:3], *row[4:10]]) for row in rows]  # without correct, lower and upper
        (tmp_path / "old.csv").write_text("\n".join([f"# {json.dumps(settings)}", *nine]) + "\n")
    back = sc.read_results(tmp_path / f"old.{format}")
    assert np.isnan(back.lower).all()
    assert np.isnan(back.upper).all()
    assert (back.noise, back.plan) == (run.noise, run.plan)
    for column in ("id", "label", "prediction", "radius", "samples", "count", "counted", "missing", "seconds"):
        assert getattr(back, column).tolist() == getattr(run, column).tolist()
    assert sc.compare([back]).render()
    assert json.loads(sc.write_results(back, None, "json"))["certificates"][0]["lower"] is None

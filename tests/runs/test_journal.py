import gc
import multiprocessing
import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.refusals import refused

from smoothcert import Progress, certify
from smoothcert._files import JOURNAL
from smoothcert.errors import InvalidInput, SmoothcertError
from smoothcert.noises import Gaussian
from smoothcert.plans import Certificate, Fixed, Look
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.run import open_run

PLAN, NOISE = Fixed(1000), Gaussian(0.5)


MANIFEST = Manifest(
    model="m",
    classes=10,
    data="d",
    data_hash="0",
    ids=(7,),
    noise=NOISE,
    plan=PLAN,
    seed=0,
    device="cpu",
    dtype="float32",
    compile="none",
)


def certificate(id, votes=900, label=3):
    looks = [Look(100, {3: 90, 7: 10}), Look(1000, {3: votes})]
    return Certificate.from_votes(looks, plan=PLAN, noise=NOISE, id=id, label=label, seconds=0.5)


def test_certificates_come_back_as_they_were_sorted_by_id(tmp_path):
    written = [certificate(5), certificate(2, votes=400, label=None), certificate(9, votes=1000)]
    with Journal(tmp_path, write=True) as journal:
        for one in written:
            journal.add(one, {})
        assert journal.ids() == {2, 5, 9}
        assert journal.certificate(9, MANIFEST) == written[2]
    with Journal(tmp_path) as journal:
        assert list(journal.certificates(MANIFEST)) == [
            written[1],
            written[0],
            written[2],
        ]


def test_a_transaction_that_cannot_begin_or_end_is_one_sentence(tmp_path):
    with Journal(tmp_path, write=True) as journal:
        journal._db.execute("PRAGMA busy_timeout = 0")
        other = sqlite3.connect(tmp_path / JOURNAL, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with (
            refused("database-failed", SmoothcertError, action="write to"),
            journal.transaction(),
        ):
            pytest.fail("somebody else writes")
        other.close()
        journal.add(certificate(5), {})


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user"
)
def test_a_colleague_without_write_access_can_read(tmp_path):
    with Journal(tmp_path, write=True) as journal:
        journal.add(certificate(5), {})
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)

    def read_as_nobody(answer):
        os.setuid(65534)
        with Journal(tmp_path) as journal:
            answer.send(journal.ids())

    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=read_as_nobody, args=(sender,))
    process.start()
    process.join(30)
    assert receiver.poll()
    assert receiver.recv() == {5}


def test_a_certificate_and_its_entries_are_written_together_or_not_at_all(tmp_path):
    with Journal(tmp_path, write=True) as journal:
        journal.write_manifest(MANIFEST.plain())
        journal.add(certificate(1), {"forwarded": 10})
        with refused("database-failed", SmoothcertError, action="write to"):
            journal.add(certificate(1), {"forwarded": 20})
        assert journal.manifest() == replace(MANIFEST, forwarded=10)
        with pytest.raises(TypeError):
            journal.add(certificate(2), {"forwarded": object()})
        assert journal.ids() == {1}
        journal.add(certificate(2), {"forwarded": 30})
    with Journal(tmp_path) as journal:
        assert (journal.manifest(), journal.ids()) == (replace(MANIFEST, forwarded=30), {1, 2})


def test_commits_are_flushed_once_a_moment_and_readers_are_let_in(tmp_path):
    with Journal(tmp_path, write=True) as journal:
        assert journal._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        journal.add(certificate(1), {})
        assert journal._db.execute("PRAGMA synchronous").fetchone() == (2,)  # every commit
        journal._flushed += 60
        with Journal(tmp_path) as reader:
            assert reader.ids() == {1}
            journal.add(certificate(2), {})
            assert reader.ids() == {1, 2}
        assert journal._db.execute("PRAGMA synchronous").fetchone() == (1,)  # checkpoints only


def test_votes_that_do_not_fit_the_stated_samples_are_named(tmp_path):
    changed(tmp_path, "UPDATE certificates SET samples = 5")
    with refused("unreadable-certificate", id=7):
        open_run(tmp_path)[7]


def test_a_reader_cannot_write(tmp_path):
    Journal(tmp_path, write=True).__exit__()
    with Journal(tmp_path) as journal, refused("database-failed", SmoothcertError):
        journal.add(certificate(1), {})


def test_what_is_no_run_is_one_sentence(tmp_path):
    with refused("not-a-run", reason="it has no journal.sqlite"):
        open_run(tmp_path)
    with refused("not-a-run", reason="it does not exist"):
        open_run(tmp_path / "none")
    (tmp_path / JOURNAL).write_text(
        "something else, and long enough to be taken for a database" * 20
    )
    with refused("database-failed", SmoothcertError):  # certificates are not safe
        open_run(tmp_path)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="asks Linux which files are open")
def test_a_journal_that_cannot_be_opened_is_not_left_open(tmp_path):
    (tmp_path / JOURNAL).touch()
    gc.disable()  # the garbage collector would close the file at some point
    try:
        with pytest.raises(SmoothcertError):
            Journal(tmp_path)
        assert not [
            fd
            for fd in os.listdir("/proc/self/fd")
            if JOURNAL in os.path.realpath(f"/proc/self/fd/{fd}")
        ]
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "made", [lambda path: Journal(path.parent, write=True).__exit__(), Path.touch]
)
def test_a_run_that_was_killed_before_it_began_is_one_sentence(tmp_path, made):
    made(tmp_path / JOURNAL)
    with refused("empty-run"):
        open_run(tmp_path)
    with Journal(tmp_path, write=True) as journal:
        journal.add(certificate(7), MANIFEST.plain())
    assert open_run(tmp_path).id.tolist() == [7]


def changed(folder, *statement):
    """A run with one certificate, in which somebody has changed a value."""
    with Journal(folder, write=True) as journal:
        journal.add(certificate(7), MANIFEST.plain())
    with sqlite3.connect(folder / JOURNAL) as db:
        db.execute(*statement)
    db.close()


def test_columns_and_entries_of_a_later_version_do_no_harm(tmp_path):
    changed(tmp_path, "ALTER TABLE certificates ADD COLUMN mood TEXT")
    with Journal(tmp_path, write=True) as journal:
        journal.add(certificate(8), {"mood": "good"})
    assert open_run(tmp_path).id.tolist() == [7, 8]


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE manifest SET value = '{' WHERE key = 'seed'", "the entry 'seed' of its manifest"),
        ("DELETE FROM manifest WHERE key IN ('plan', 'ids')", "its manifest has no ids, plan"),
        ("UPDATE manifest SET value = '5' WHERE key = 'plan'", "the entry 'plan' of its manifest"),
        (
            'UPDATE manifest SET value = \'{"name": "Gaussian", "mood": 1}\' WHERE key = \'noise\'',
            "another version",
        ),
        (
            "UPDATE certificates SET radius = 'far'",
            "a certificate cannot be read, and audit says which",
        ),
        ("UPDATE certificates SET label = 'cat'", "a certificate cannot be read"),
        (
            "PRAGMA user_version = 1",
            "was written by another version of smoothcert: read it with that version",
        ),
    ],
)
def test_a_damaged_run_is_one_sentence_with_its_file(tmp_path, statement, named):
    changed(tmp_path, statement)
    with pytest.raises(InvalidInput, match=rf"journal\.sqlite.*{named}"):
        open_run(tmp_path)


@pytest.mark.parametrize(
    "looks",
    ["", "[[1]]", "[[100, 5]]", '[[100, {"3": 101}]]', '[[100, {"x": 1}]]', '[[9, {"1": -1}]]'],
)
def test_damaged_votes_are_named_with_their_input(tmp_path, looks):
    changed(tmp_path, "UPDATE certificates SET looks = ?", (looks,))
    with (
        Journal(tmp_path) as journal,
        refused("unreadable-certificate", id=7),
    ):
        journal.certificate(7, MANIFEST)


def test_a_mistake_before_the_first_certificate_leaves_nothing_behind(tmp_path):
    def fails(x):
        raise ValueError("no such model")

    settings = {
        "noise": Gaussian(0.5),
        "classes": 2,
        "device": "cpu",
        "batch": 8,
        "progress": Progress(),
    }
    with pytest.raises(InvalidInput, match="no such model"):
        certify(fails, torch.zeros(2, 1, 4, 4), out=tmp_path / "a" / "run", **settings)
    assert list(tmp_path.iterdir()) == []

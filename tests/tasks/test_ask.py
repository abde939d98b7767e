"""`ask`: questions to the votes of a run on disk, its ledger, its exports, and what an audit makes of them."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refused

import smoothcert as sc
from smoothcert import AtRadii, Certificate, Fixed, Gaussian, Look, Price
from smoothcert.data.groups import read_levels
from smoothcert.plans.groups import Groups
from smoothcert.runs.formats import read_results, write_results
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.questions import question_of
from smoothcert.runs.run import open_run
from smoothcert.tasks.ask import ask
from smoothcert.tasks.audit import audit

VOTES = Path(__file__).parents[3] / "shared" / "logs" / "cifar10-votes-0.25.txt"
GROUPS = {"left": [0], "right": "1,2"}
LEVELS = {"side": GROUPS, "third": {"far": "2"}}


def run_of(folder, plan, votes, labels):
    """A run on disk with these votes (inputs, classes) in one look."""
    noise = Gaussian(0.25)
    classes = votes.shape[1]
    manifest = Manifest(
        model="simulated",
        classes=classes,
        data="simulated",
        data_hash="1" * 16,
        ids=tuple(range(len(votes))),
        noise=noise,
        plan=plan,
        seed=0,
        device="cpu",
        dtype="float32",
        compile="none",
        weights_hash="0" * 16,
        values=(0.0, 1.0),
    )
    folder.mkdir()
    with Journal(folder, write=True) as journal:
        journal.write_manifest(manifest.plain())
        with journal.transaction():
            for id, (row, label) in enumerate(zip(votes.tolist(), labels.tolist(), strict=True)):
                look = Look(sum(row), {c: n for c, n in enumerate(row) if n})
                certificate = Certificate.from_votes(
                    [look], plan=plan, noise=noise, id=id, label=label
                )
                journal.add(certificate, {})
    return open_run(folder)


@pytest.fixture
def run(tmp_path):
    """Twelve inputs of class 2 of 3 whose votes for it fall from all to half."""
    own = np.linspace(1000, 500, 12).astype(int)
    other = (1000 - own) * 9 // 10
    votes = np.stack([1000 - own - other, other, own], axis=1)
    plan = Fixed(1000, known_labels=True)
    return run_of(tmp_path / "run", plan, votes, np.full(12, 2))


@pytest.mark.skipif(not VOTES.exists(), reason="published votes are not here")
def test_the_published_votes_give_the_reference_values(tmp_path):
    table = np.loadtxt(VOTES, dtype=int)
    plan = Fixed(100_000, known_labels=True)
    run = run_of(tmp_path / "votes", plan, table[:, :10], table[:, 10])
    radii = [0, 0.25, 0.5, 0.75]

    def shares(answers):
        return np.round(100 * answers.certified_accuracy(radii), 1).tolist()

    assert shares(run) == [75.6, 60.0, 42.8, 25.8]
    assert shares(ask(run, top=2)) == [90.2, 74.8, 53.4, 35.0]
    assert shares(ask(run, top=3)) == [94.4, 81.0, 59.8, 39.0]
    assert shares(ask(run, top=5)) == [97.6, 88.2, 69.0, 44.2]
    levels = {
        "kind": {"vehicle": "0,1,8,9", "animal": "2-7"},
        "group": {"sky or sea": [0, 8], "road": [1, 9], "pet": [3, 5], "grazer": [4, 7]},
    }
    kind = ask(run, groups={"vehicle": "0,1,8,9", "animal": "2-7"})
    assert shares(kind) == [95.2, 90.8, 83.6, 71.0]
    assert shares(ask(run, groups=levels["group"])) == [83.0, 67.6, 53.0, 36.2]
    answers = ask(run, groups=levels, finest=True, radii=[0.5])
    shares_at = [100 * float(one.certified_accuracy([0.5])[0]) for one in answers]
    steps = -np.diff([100, *shares_at, 0])
    assert np.round(steps[::-1], 1).tolist() == [42.8, 10.2, 30.6, 16.4]


def test_answers_are_results_of_groups_that_stand_for_classes(run):
    side = ask(run, groups=GROUPS)
    assert side.label.tolist() == [1] * 12
    assert side.correct.all()
    assert np.all(side.radius >= run.radius)
    assert sum(side[5].looks[0].votes.values()) == 1000
    assert sc.table([run, side]).rows[1].values["question"] == "group: left, right"
    assert ask(run, top=2).radius.sum() > run.radius.sum()


def test_a_table_does_not_take_answers_to_other_questions_for_other_inputs(run):
    levels = sc.ask(run, groups=GROUPS, finest=True, radii=[0.25])
    [line] = [text for text in sc.table(levels).legend("*") if text.startswith("not to be")]
    assert "differ in the question" in line
    assert "inputs" not in line


def test_the_finest_answer_has_results_for_each_level(run):
    answers = ask(run, groups=LEVELS, finest=True)
    assert [one.name for one in answers] == ["run: side", "run: third", "run: class"]
    side, third, own = (one.radius for one in answers)
    assert np.all((side >= third) & (third >= own))
    assert {one.plan.alpha for one in answers} == {0.001 / 3}
    at_one = ask(run, groups=LEVELS, finest=True, radii=[0.1])
    assert {one.plan.alpha for one in at_one} == {0.001}
    assert at_one[0].decided_radii == (0.1,)
    assert set(at_one[0].radius.tolist()) <= {0.0, 0.1}


@pytest.mark.parametrize("ending", [".json", ".csv", ".parquet"])
def test_every_export_says_what_was_asked_and_at_which_alpha(run, tmp_path, ending):
    ask(run, top=2)
    [*_, own] = ask(run, groups=LEVELS, finest=True, radii=[0.1], alpha=0.01)
    write_results(own, tmp_path / f"answers{ending}")
    read = read_results(tmp_path / f"answers{ending}")
    assert read.decided_radii == (0.1,)
    assert np.array_equal(read.radius, own.radius)
    assert [entry["alpha"] for entry in read.manifest.questions] == [0.001, 0.01]
    assert "finest of side, third, class at 0.1: question 2" in question_of(read)
    assert "1 - 0.011" in question_of(read)


def test_a_format_that_cannot_say_what_was_asked_refuses_and_a_card_says_it(run):
    side = ask(run, groups=GROUPS)
    for format in ("cohen", "sok"):
        with refused("format-of-classes", format=format):
            write_results(side, format=format)
    assert "group: left, right" in write_results(side, format="card").decode()


def test_the_run_records_its_questions_and_the_same_one_stays_one(run):
    assert "question 1" in question_of(ask(run, top=2))
    second = question_of(ask(run, groups=GROUPS))
    assert "question 2" in second
    assert "it was also asked" in second or "also asked top 2" in second
    assert "question 1" in question_of(ask(run, top=2))
    again = open_run(run.path)
    assert [entry["top"] for entry in again.manifest.questions] == [2, 1]
    assert all(entry["asked"][:2] == "20" for entry in again.manifest.questions)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_gets_its_answer(run):
    for path in [*run.path.iterdir(), run.path]:
        path.chmod(path.stat().st_mode & 0o555)
    assert "its ledger was not kept" in question_of(ask(run, top=2))


def test_a_run_in_use_gets_its_answer_and_no_ledger(run):
    from smoothcert.runs.run import locked_journal

    code = (
        "import smoothcert as sc, sys; from smoothcert.runs.questions import question_of;"
        "print(question_of(sc.ask(sys.argv[1], top=2)))"
    )
    with locked_journal(run.path):
        done = subprocess.run(
            [sys.executable, "-c", code, run.path], capture_output=True, text=True, check=True
        )
    assert "its ledger was not kept" in done.stdout
    assert open_run(run.path).manifest.questions == []


def test_an_audit_checks_answers_and_ledger(run):
    ask(run, top=2)
    ask(run, groups=LEVELS, finest=True)
    honest = audit(run, redraw=0)
    assert honest.holds
    assert honest.questions == 2
    with Journal(run.path, write=True) as journal:
        answers = journal.entry("answers 2")
        answers["radius"][0][11] += 0.5
        journal.write_manifest({"answers 2": answers})
    assert [finding.id for finding in audit(run, redraw=0).findings] == [11]
    with Journal(run.path, write=True) as journal:
        journal.write_manifest({"answers 1": {"id": []}})
    assert any("missing or damaged" in f.reason for f in audit(run, redraw=0).findings)


@pytest.mark.parametrize(
    "damage",
    [
        {"prediction": [[2] * 12]},
        {"radius": []},
        {"radius": [[0.1] * 12, [0.1] * 12, [0.1] * 11]},
        {"prediction": [[2] * 13] * 3},
        {"id": [0]},
    ],
    ids=str,
)
def test_an_audit_finds_answers_of_another_length(run, damage):
    ask(run, groups=LEVELS, finest=True)
    with Journal(run.path, write=True) as journal:
        answers = journal.entry("answers 1")
        journal.write_manifest({"answers 1": answers | damage})
    [finding] = audit(run, redraw=0).findings
    assert "missing or damaged" in finding.reason


def test_an_audit_does_not_believe_a_question_at_alpha_0(run):
    ask(run, top=2)
    with Journal(run.path, write=True) as journal:
        [question] = journal.entry("questions")
        journal.write_manifest({"questions": [question | {"alpha": 0.0}]})
    with refused("not-an-alpha"):
        audit(run.path, redraw=0)


@pytest.mark.parametrize("top", [3, 10**9])
def test_an_audit_refuses_a_question_whose_answer_is_always_yes(run, top):
    ask(run, top=2)
    with Journal(run.path, write=True) as journal:
        [question] = journal.entry("questions")
        journal.write_manifest({"questions": [question | {"top": top}]})
    with refused("top-too-large"):
        audit(run.path, redraw=0)


def test_broken_answers_leave_the_run_readable(run):
    ask(run, top=2)
    with closing(sqlite3.connect(run.path / "journal.sqlite")) as db, db:
        db.execute("UPDATE manifest SET value = '[[[' WHERE key = 'answers 1'")
    assert open_run(run.path).radius.tolist() == run.radius.tolist()
    [finding] = audit(run, redraw=0).findings
    assert "missing or damaged" in finding.reason


def test_a_merged_run_begins_with_an_empty_ledger(run, tmp_path):
    ask(run, top=2)
    merged = sc.merge([run.path], out=tmp_path / "merged")
    assert merged.manifest.questions == []
    assert audit(merged, redraw=0).holds
    assert len(open_run(run.path).manifest.questions) == 1


@pytest.mark.parametrize(
    "plan",
    [
        AtRadii([0, 0.25, 0.5], 3000),
        AtRadii([0, 0.25, 0.5], 3000, known_labels=True),
        AtRadii([0, 0.25, 0.5], 3000, bound="runner-up"),
        Fixed(1000, pilot=100),
        sc.InputSpecific(3000, pilot=100),
    ],
    ids=str,
)
def test_audits_of_honest_answers_hold(on_disk, plan):
    run = on_disk("asked", plan, inputs=20)
    ask(run, top=2)
    ask(run, groups=GROUPS)
    ask(run, groups=LEVELS, finest=True, alpha=0.003)
    assert audit(run, redraw=0).findings == ()


def test_a_plan_that_stopped_after_its_votes_says_what_to_do(on_disk):
    run = on_disk("priced", Price(3000, price=1e-5), inputs=3)
    with refused("plan-answers-no-question"):
        ask(run, groups=GROUPS)


def test_a_radius_that_no_votes_prove_for_the_top_k_is_answered_by_no(on_disk):
    """Rivals of the top 2 have a smaller alpha, so 100 samples prove less than for the class."""
    run = on_disk("few", AtRadii([0.2, 0.75], 100, known_labels=True), inputs=5)
    with refused("too-few-samples", radius=0.75):
        replace(run.plan, top=2).for_noise(run.noise)
    assert set(ask(run, top=2).radius) <= {0, 0.2}
    assert 0.2 in ask(run, top=2).radius


def test_questions_that_make_no_sense_are_refused(run):
    with refused("no-question"):
        ask(run)
    with refused("top-too-large", top=3, answers=3):
        ask(run, top=3)
    with refused("several-levels"):
        ask(run, groups=LEVELS)
    with refused("only-for-levels"):
        ask(run, top=2, radii=[0.5])
    with refused("only-for-levels"):
        ask(run, finest=True)
    with refused("reserved-level", title="class"):  # its answers would be read as classes
        ask(run, groups={"class": {"pet": "0,1", "car": "2"}})
    with refused("reserved-level"):
        ask(run, groups={"class": {"pet": "0,1", "car": "2"}}, finest=True)
    with refused("unknown-class", name="cat"):
        ask(run, groups={"pet": ["cat"]})
    with refused("one-group"):
        ask(run, groups={"anything": "0-2"})
    with refused("unreadable-groups"):
        ask(run, groups='{"left":')
    with refused("no-radii"):
        ask(run, groups=LEVELS, finest=True, radii=[])
    with refused("not-one-run"):
        ask([run], top=2)


def test_groups_are_read_from_a_file_with_names_numbers_and_ranges(tmp_path):
    file = tmp_path / "groups.toml"
    file.write_text('[kind]\nthing = "0,1"\nanimal = ["cat", "3-4"]\n[pair]\npet = ["cat", 3]\n')
    names = ["car", "ship", "cat", "dog", "frog"]
    kind, pair = read_levels(str(file), 5, names)
    assert (kind.names, kind.of) == (("thing", "animal"), (0, 0, 1, 1, 1))
    assert (pair.names, pair.of) == (("pet", "car", "ship", "frog"), (1, 2, 0, 0, 3))
    assert read_levels(f"{file}:pair", 5, names) == [pair]
    assert read_levels(json.loads(pair.text), 5, None)[0] == pair
    assert Groups.of_members("class", {}, 2, ["crane", "crane"]).names == ("crane", "crane (1)")
    for text, code in [
        ("[a]\nx = [0, 1]\ny = [1]", "class-in-two-groups"),
        ("[a]\nx = [0, 1]\n[b]\ny = [1, 2]", "levels-not-nested"),
        ("[a]\nx = [9]", "unknown-class"),
        ("[a]\nx = []", "no-members"),
        ("[a]", "not-a-level"),
        ("x = ", "unreadable-groups"),
    ]:
        file.write_text(text)
        with refused(code):
            read_levels(str(file), 5, names)


def test_asking_loads_no_torch(run):
    code = (
        "import sys, smoothcert as sc; sc.ask(sys.argv[1], groups={'left': [0]}, finest=True);"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, run.path], check=True)


def test_groups_and_the_top_k_can_be_certified(tmp_path):
    def halves(x):  # three classes, the second and third divide the right half
        return (x[:, 0] > 0.5).long() + (x[:, 0] > 0.9).long()

    x = [[0.85, 0.0], [0.1, 0.0]]
    common = {"sigma": 0.25, "classes": 3, "device": "cpu", "batch": 500}
    plan = AtRadii([0, 0.25], 3000, known_labels=True)
    alone = sc.certify(halves, x, [1, 0], plan=plan, out=tmp_path / "classes", **common)
    side = sc.certify(halves, x, [1, 0], plan=plan, out=tmp_path / "side", groups=GROUPS, **common)
    assert (alone.radius[0], side.radius[0]) == (0.0, 0.25)
    assert side.samples.sum() < alone.samples.sum()
    assert side.correct.all()
    assert audit(side, model=halves, data=(np.array(x), np.array([1, 0]))).holds
    with refused("run-of-a-question"):
        ask(side, top=2)
    top = sc.certify(halves, x, [1, 0], radii=[0, 0.25], top=2, known_labels=True, **common)
    assert (alone.prediction[0], top.prediction[0]) == (-1, 1)
    with refused("top-too-large"):
        sc.certify(halves, x, [1, 0], radii=[0], top=2, groups=GROUPS, **common)

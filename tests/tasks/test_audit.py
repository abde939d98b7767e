import json
import math
import shutil
import sqlite3
import warnings
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from tests.pages import render
from tests.refusals import refused
from torch import nn

import smoothcert as sc
from smoothcert._files import JOURNAL
from smoothcert.plans import Case
from smoothcert.runs.journal import Journal
from smoothcert.runs.run import open_run
from smoothcert.runs.words import summary
from smoothcert.tasks.audit import audit, fault

DATA = [(x, int(x[0] > 0.5)) for x in np.random.default_rng(0).random((12, 3))]
PLAN = sc.InputSpecific(1000, decline=0.05)
PLAIN = sc.Fixed(100_000)


def above_half(x):
    return torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    settings = {"noise": sc.Gaussian(0.25), "plan": PLAN, "device": "cpu", "batch": 500}
    return sc.certify(above_half, DATA, out=tmp_path_factory.mktemp("made"), **settings).path


@pytest.fixture
def run(made, tmp_path):
    """A copy that the test may change."""
    return open_run(shutil.copytree(made, tmp_path, dirs_exist_ok=True))


def check(run, **settings):
    return audit(run.path, **({"redraw": 12, "model": above_half, "data": DATA} | settings))


def tamper(run, id, /, **columns):
    with sqlite3.connect(run.path / JOURNAL) as db:
        for name, value in columns.items():
            db.execute(f"UPDATE certificates SET {name} = ? WHERE id = ?", (value, id))
    db.close()


def certified(run):
    """An input that is certified for class 1."""
    return int(run.id[run.prediction == 1][0])


def test_a_good_run_holds(run):
    found = check(run)
    assert (found.checked, found.redrawn, found.findings) == (12, 12, ())


@pytest.mark.parametrize(
    "plan", [sc.Fixed(1000), sc.Fixed(200_000), sc.InputSpecific(), sc.Fixed(1000, alpha=0.2)]
)
@pytest.mark.parametrize("share", [0, 0.2, 0.5, 0.51, 0.7, 0.999, 1])
def test_certificates_as_votes_give_them_hold_by_the_other_route(plan, share):
    noise = sc.Gaussian(0.5)
    looks = []
    while more := Case(plan, noise, looks=looks).more:
        looks.append(sc.Look(more, {2: round(share * more)}))
    assert fault(sc.Certificate.from_votes(looks, plan=plan, noise=noise)) is None


@pytest.mark.parametrize("factor", [1 + 1e-6, 1.01, 2, 1e3, math.inf, -1, 0.99])
def test_a_radius_that_is_not_the_proved_one_is_found(run, factor):
    radius = float(run.radius[certified(run)])
    tamper(run, certified(run), radius=radius * factor)
    [finding] = check(run, redraw=0).findings
    assert finding.id == certified(run)
    assert "the radius" in finding.reason


def test_few_votes_prove_no_radius_however_large():
    honest = sc.Certificate.from_votes(
        [sc.Look(1000, {2: 999}), sc.Look(100_000, {2: 20_000})], plan=PLAIN, noise=sc.Gaussian(1)
    )
    almost_all_of_the_noise = max(
        r for r in np.arange(8, 8.5, 1e-6) if math.erfc(-r / math.sqrt(2)) < 2
    )
    for radius in (1e-6, 0.5, 4, almost_all_of_the_noise):
        assert "do not prove the radius" in fault(
            replace(honest, prediction=2, radius=float(radius))
        )


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"prediction": 0}, "its votes are for class 1, it states 0"),
        ({"prediction": None, "radius": 0}, "abstains though its votes prove a certificate"),
        ({"count": 990}, "it states 990 of"),
        ({"counted": 5}, "counted votes"),
        ({"looks": '[[100, {"1": 100}], [7, {"1": 7}]]', "samples": 107}, "the plan asks for"),
        ({"looks": '[[100, {"1": 100}]]', "samples": 100}, "the plan asks for"),
        ({"samples": 100}, "samples, 0 without a vote, it states 100 and 0"),
        ({"looks": '[[100, {"1": 170}]]'}, "cannot be read: votes must be counts"),
        ({"looks": "gone"}, "cannot be read"),
        ({"lower": 0.99}, "it states a lower bound of 0.99"),
        ({"lower": 0.6, "upper": 0.1}, "and an upper bound of 0.1 on others"),
        ({"lower": "low"}, "cannot be read"),
    ],
)
def test_what_the_votes_do_not_say_is_found_with_its_id(run, columns, reason):
    tamper(run, certified(run), **columns)
    found = check(run, redraw=0)
    assert [finding.id for finding in found.findings] == [certified(run)]
    assert reason in found.findings[0].reason
    assert found.checked == 12


def forge_votes(run, id):
    """Votes that agree with each other, with their bound and with their radius."""
    [honest] = [c for c in run.certificates() if c.id == id]
    pilot, rest = honest.looks
    better = sc.Look(rest.samples, {1: min(rest.votes[1] + 3, rest.samples)})
    forged = sc.Certificate.from_votes([pilot, better], plan=honest.plan, noise=honest.noise)
    looks = json.dumps([[look.samples, look.votes] for look in forged.looks])
    stated = {name: getattr(forged, name) for name in ("count", "radius", "missing")}
    tamper(run, id, looks=looks, lower=forged.proof.lower, **stated)


def test_votes_that_agree_with_each_other_but_not_with_the_noise_are_found(run):
    id = certified(run)
    forge_votes(run, id)
    assert check(run, redraw=0).findings == ()
    [finding] = check(run).findings
    assert (finding.id, finding.reason) == (id, "drawing it again gave other votes")


def test_units_that_the_inputs_do_not_have_are_found(run):
    with sqlite3.connect(run.path / JOURNAL) as db:
        db.execute("UPDATE manifest SET value = '[0.4, 0.5]' WHERE key = 'values'")
    db.close()
    [finding] = check(run).findings
    assert finding.reason.endswith("the run states [0.4, 0.5]")


def test_votes_that_depend_on_the_company_of_a_row_are_found(tmp_path, monkeypatch):
    """The check before a run would refuse this model. An audit notices it, too: it draws again in another company."""
    monkeypatch.setattr("smoothcert.smoothed.prepare.check_full_batch", lambda *given: None)

    def first_hundred(x):
        return torch.cat([above_half(x[:100]), torch.tensor([[0.0, 1.0]]).expand(len(x[100:]), 2)])

    run = sc.certify(
        first_hundred, DATA[:1], sigma=0.25, plan=PLAN, out=tmp_path, device="cpu", batch=500
    )
    [found] = check(run, model=first_hundred, data=DATA[:1]).findings
    assert found.reason == "drawing it again gave other votes"


@dataclass(frozen=True)
class Naive(sc.Plan):
    """Takes the share of votes for a bound."""

    name: ClassVar[str] = "naive"
    samples: int = 100
    alpha: float = 0.001
    pilot: int = 10
    known_labels: bool = False

    def request(self, state):
        return [self.pilot, self.samples, 0][state.look]

    def prove(self, state):
        share = np.asarray(state.count) / np.maximum(state.drawn, 1)
        return sc.Proof.from_bounds(state, share[()])

    def __str__(self):
        return "naive 100"


@pytest.mark.filterwarnings("ignore::smoothcert.errors.SmoothcertWarning")
@pytest.mark.parametrize(
    ("plan", "proved", "doubt"),
    [
        (PLAN, True, None),
        (sc.Fixed(200, pilot=100, pilot_use="reuse"), False, "the pilot is counted again"),
        (Naive(), False, "nothing proves that this plan keeps its alpha"),
    ],
    ids=str,
)
def test_whether_the_plan_keeps_its_alpha_is_told_by_audit_summary_table_and_page(
    plan, proved, doubt, tmp_path
):
    """All radii follow from the votes, as the plan says. That proves nothing if the plan breaks its alpha."""
    given = {
        "sigma": 0.25,
        "plan": plan,
        "out": tmp_path,
        "device": "cpu",
        "batch": 500,
        "progress": sc.Progress(),
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = sc.certify(above_half, DATA, **given)
    assert [str(w.message)[:20] for w in caught] == ([] if doubt is None else [doubt[:20]])
    found = check(run)
    assert found.findings == ()
    assert (found.holds, found.coverage.proved, found.coverage.exceeds) == (
        proved,
        proved,
        not proved,
    )
    together = "f these 12 inputs, at most 1 has a wrong certificate, with probability 0.99993"
    assert (together in summary(run)) == proved
    row = sc.table(run).rows[0]
    assert (row.rules["alpha_proved"], row.values["method"].endswith("alpha not proved")) == (
        proved,
        not proved,
    )
    card = sc.write_results(run, None, "card").decode()
    assert ("Each certificate is wrong with a probability of at most 0.001." in card) == proved
    assert (together in card) == (together in render(run)) == proved
    page = render(run)
    assert ("Each certificate is wrong with a probability of at most 0.001." in page) == proved
    assert doubt is None or f"with a probability of at most 0.001, but {doubt}" in page


def test_what_an_abstention_says_about_its_bound_is_checked_too():
    looks = [sc.Look(100, {2: 60, 1: 40}), sc.Look(1000, {2: 480, 1: 520})]
    honest = sc.Certificate.from_votes(looks, plan=sc.Fixed(1000), noise=sc.Gaussian(1))
    assert honest.abstained
    assert fault(honest) is None
    forged = replace(honest, proof=replace(honest.proof, lower=0.49))
    assert "it states a lower bound of 0.49" in fault(forged)


def test_a_certificate_that_rests_on_rivals_holds_and_its_bounds_are_checked():
    plan = sc.Fixed(10_000, bound="runner-up")
    looks = [sc.Look(100, {0: 50, 1: 30, 2: 20}), sc.Look(10_000, {0: 4_800, 1: 3_000, 2: 2_200})]
    honest = sc.Certificate.from_votes(looks, plan=plan, noise=sc.Gaussian(0.5))
    assert honest.prediction == 0
    assert fault(honest) is None
    assert "prove more" in fault(replace(honest, radius=honest.radius / 2))
    assert "do not prove" in fault(replace(honest, radius=honest.radius * 1.01))
    assert "it states a lower bound" in fault(
        replace(honest, proof=replace(honest.proof, upper=0.2))
    )
    assert "it states a lower bound" in fault(
        replace(honest, proof=replace(honest.proof, upper=None))
    )


def test_a_label_that_was_known_is_the_class_that_is_checked():
    plan = sc.Fixed(1000, known_labels=True)
    certificate = sc.Certificate.from_votes(
        [sc.Look(1000, {1: 900, 2: 100})], plan=plan, noise=sc.Gaussian(1), label=1
    )
    assert certificate.prediction == 1
    assert fault(certificate) is None
    assert "it states 900 of" in fault(replace(certificate, label=2))


def test_a_certificate_nobody_asked_for_is_found_and_does_not_stand_in_for_another(run):
    last = int(run.id[-1])
    tamper(run, last, id=last + 1000)
    gone, strange = check(run).findings
    assert (strange.id, strange.reason) == (last + 1000, "it is not one of the inputs of the run")
    assert (gone.id, gone.reason) == (
        last,
        "its certificate is missing, although the run is finished",
    )
    assert not open_run(run.path).complete


def test_inputs_that_can_be_read_are_not_left_out(run):
    """Whoever calls wrong inputs unreadable has a higher certified accuracy."""
    wrong = certified(run)
    ids = [id for id in range(12) if id != wrong]
    with Journal(run.path, write=True) as journal:
        journal.write_manifest({"ids": ids, "unreadable": [wrong]})
    with sqlite3.connect(run.path / JOURNAL) as db:
        db.execute("DELETE FROM certificates WHERE id = ?", (wrong,))
    db.close()
    [finding] = check(run).findings
    assert finding.id == wrong
    assert "can be read" in finding.reason


def test_a_run_that_is_not_complete_is_checked_as_far_as_it_is(run):
    with sqlite3.connect(run.path / JOURNAL) as db:
        db.execute("DELETE FROM certificates WHERE id = ?", (int(run.id[-1]),))
        db.execute("DELETE FROM manifest WHERE key = 'finished'")
    db.close()
    found = check(run)
    assert (found.checked, found.asked, found.findings) == (11, 12, ())


def test_nothing_to_check_is_not_all_well(run):
    with sqlite3.connect(run.path / JOURNAL) as db:
        db.execute("DELETE FROM certificates")
    db.close()
    with refused("no-certificates", run=run.path):
        check(run)


@pytest.mark.parametrize("redraw", [0, 1, 12])
def test_every_label_is_compared_with_the_data_also_where_nothing_is_drawn_again(run, redraw):
    tamper(run, certified(run), label=0)
    found = check(run, redraw=redraw)
    assert found.labels_checked
    [finding] = found.findings
    assert (finding.id, finding.reason) == (
        certified(run),
        "its label in the data is 1, it states 0",
    )


def test_labels_are_not_said_to_be_checked_without_the_data(run):
    tamper(run, certified(run), label=0)
    found = audit(run.path, redraw=0)
    assert (found.findings, found.labels_checked) == ((), False)


def test_falsified_labels_of_named_data_are_found_without_drawing_again(tmp_path):
    run = sc.certify(
        "fashion-cnn",
        "fashion-mnist",
        noise=sc.Gaussian(0.25),
        plan=sc.Fixed(100),
        limit=3,
        out=tmp_path,
    )
    for id in run.id.tolist():
        tamper(run, id, label=int(run.prediction[id]) if run.prediction[id] >= 0 else 3)
    wrong = {int(id) for id in run.id[run.label != np.where(run.prediction < 0, 3, run.prediction)]}
    tamper(run, 0, label=(int(run.label[0]) + 1) % 10)
    found = audit(run.path, redraw=0)
    assert {f.id for f in found.findings} == wrong | {0}


def test_other_weights_or_data_are_refused(tmp_path):
    torch.manual_seed(0)
    network = nn.Linear(3, 2)
    run = sc.certify(
        network, DATA, noise=sc.Gaussian(0.25), plan=PLAN, out=tmp_path, device="cpu", batch=500
    )
    assert check(run, model=network).findings == ()
    with refused("changed-since", part="data"):
        check(run, model=network, data=DATA[::-1])
    network.bias.data += 1e-6
    with refused("changed-since", part="weights"):
        check(run, model=network)


def test_data_that_is_gone_says_what_to_do(run):
    with refused("no-file", purpose="draw again"):
        check(run, data="nowhere.npz")


@pytest.mark.parametrize(
    "named", ["trap:go", "run.trap:go", "./trap.py:go", "builtins:breakpoint", "os:abort"]
)
@pytest.mark.parametrize("part", ["model", "denoiser"])
@pytest.mark.annexes
def test_code_that_a_run_names_is_not_executed(run, named, part, monkeypatch):
    (run.path / "trap.py").write_text("raise AssertionError('executed')\n")
    monkeypatch.chdir(run.path)
    value = named if part == "model" else {"name": named, "hash": "", "description": ""}
    with sqlite3.connect(JOURNAL) as db:
        db.execute(
            "INSERT OR REPLACE INTO manifest (key, value) VALUES (?, ?)", (part, json.dumps(value))
        )
    db.close()
    model = None if part == "model" else above_half
    with refused("code-of-the-user", purpose="draw again", part=part, name=named):
        check(run, model=model)
    with refused("code-of-the-user", purpose="explain", part=part, name=named):
        sc.explain(run.path, [0], model=model, data=DATA)


def test_a_setting_that_this_version_does_not_know_is_refused_and_none_is_given_twice(run):
    with Journal(run.path, write=True) as journal:
        journal.write_manifest({"settings": {"flux": 1}})
    with refused("unknown-setting", name="flux"):
        check(run)
    with Journal(run.path, write=True) as journal:
        journal.write_manifest({"settings": {"seed": 7}})
    assert check(run).findings == ()


def test_votes_are_not_drawn_again_by_another_form_of_the_classifier(run):
    with sqlite3.connect(run.path / JOURNAL) as db:
        db.execute("INSERT OR REPLACE INTO manifest (key, value) VALUES ('compile', '\"stages\"')")
    db.close()
    with refused("other-runtime", there="stages", here="none"):
        check(run)


def test_noise_of_another_version_of_the_drawing_is_not_mixed(run, tmp_path):
    again = sc.certify(
        above_half,
        DATA,
        noise=sc.Gaussian(0.25),
        plan=PLAN,
        out=tmp_path / "b",
        device="cpu",
        batch=500,
    )
    assert run.manifest.same_draws(again.manifest)
    with sqlite3.connect(run.path / JOURNAL) as db:
        db.execute("UPDATE manifest SET value = '1' WHERE key = 'drawing'")
    db.close()
    for attempt in (
        lambda: sc.certify(
            above_half,
            DATA,
            noise=sc.Gaussian(0.25),
            plan=PLAN,
            out=run.path,
            device="cpu",
            batch=500,
        ),
        lambda: sc.merge([run.path, again.path], out=tmp_path / "c"),
    ):
        with refused("other-configuration", names=["drawing"]):
            attempt()
    with refused("other-drawing"):
        check(run)
    assert not open_run(run.path).manifest.same_draws(again.manifest)
    assert not check(run, redraw=0).findings


@pytest.mark.parametrize("redraw", [0, 2])
def test_copies_that_a_run_does_not_name_are_found(tmp_path, redraw):
    data = [DATA[0], *DATA[:3], DATA[1]]
    settings = {"sigma": 0.1, "plan": sc.Fixed(100), "device": "cpu", "progress": sc.Progress()}
    sc.certify(above_half, data, out=tmp_path, **settings)
    assert not audit(tmp_path, redraw=redraw, model=above_half, data=data).findings
    with Journal(tmp_path, write=True) as journal:
        journal.write_manifest({"copies": [1]})
    [finding] = audit(tmp_path, redraw=redraw, model=above_half, data=data).findings
    assert (finding.id, finding.reason.split(",")[0]) == (4, "it is a copy of an earlier input")


@pytest.mark.annexes
def test_labels_in_memory_are_asked_for_and_can_be_given_again(tmp_path):
    labels = [1] * 500
    settings = {"noise": sc.Gaussian(0.25), "plan": sc.Fixed(100), "limit": 3, "device": "cpu"}
    run = sc.certify("fashion-cnn", "fashion-mnist", labels, out=tmp_path, **settings)
    for data in (None, "fashion-mnist"):
        with refused("data-in-memory"):
            audit(run, data=data)
    for data in (("fashion-mnist", labels), (sc.load_dataset("fashion-mnist"), np.array(labels))):
        found = audit(run, data=data)
        assert (found.findings, found.redrawn, found.labels_checked) == ((), 3, True)
    assert sc.explain(run, 0, data=("fashion-mnist", labels))
    with refused("changed-since", part="data"):
        audit(run, data=("fashion-mnist", [2] * 500))


def test_a_published_data_set_that_was_loaded_before_is_found_again_by_its_name(tmp_path):
    settings = {"noise": sc.Gaussian(0.25), "plan": sc.Fixed(100), "limit": 2, "device": "cpu"}
    run = sc.certify("fashion-cnn", sc.load_dataset("fashion-mnist"), out=tmp_path, **settings)
    assert audit(run).redrawn == 2


def test_the_module_in_memory_of_a_run_is_asked_for(tmp_path):
    network = nn.Sequential(nn.Linear(3, 2))
    run = sc.certify(
        network, DATA, noise=sc.Gaussian(0.25), plan=PLAN, out=tmp_path, device="cpu", batch=500
    )
    with refused("code-of-the-user", part="model"):
        check(run, model=None)
    assert not check(run, model=network).findings


def test_the_seed_chooses_what_is_drawn_again(run):
    forge_votes(run, certified(run))
    hits = [bool(check(run, redraw=6, seed=seed).findings) for seed in range(6)]
    assert hits == [bool(check(run, redraw=6, seed=seed).findings) for seed in range(6)]
    assert len(set(hits)) == 2


def test_a_certificate_without_counted_samples_proves_nothing(run):
    abstained = sc.Certificate.from_votes([sc.Look(100, {})], plan=PLAN, noise=sc.Gaussian(0.25))
    assert fault(abstained) is None
    assert (
        fault(replace(abstained, prediction=1, radius=0.1))
        == "its votes are for class None, it states 1"
    )


@pytest.mark.filterwarnings("ignore:.*values lie in")
@pytest.mark.parametrize("redraw", [0, 2])
def test_inputs_that_an_earlier_version_rounded_by_too_much_are_named(tmp_path, redraw):
    def above(x):
        return torch.stack([4000 - x.mean(1), x.mean(1) - 4000], 1)

    exact = np.full((2, 60_000), 4000.0)
    exact[1] += np.spacing(np.float32(4000)) / 2
    settings = {"noise": sc.Gaussian(0.25), "plan": sc.Fixed(200), "device": "cpu", "batch": 100}
    run = sc.certify(above, exact + 0.5, out=tmp_path, dtype="float64", **settings)
    with sqlite3.connect(run.path / JOURNAL) as db:  # version 1.0.0 would have run it in float32
        db.execute("UPDATE manifest SET value = '\"float32\"' WHERE key = 'dtype'")
    db.close()
    found = audit(run.path, redraw=redraw, model=above, data=exact + 0.5)
    named = [finding.id for finding in found.findings if "was rounded to float32" in finding.reason]
    assert named == [1]
    assert not found.holds
    assert found.redrawn == min(redraw, 1)

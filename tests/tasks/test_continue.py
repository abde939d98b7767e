"""A run that decides radii with the runner-up goes on with more samples, or with larger radii. Nothing is lost."""

import json
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.refusals import refused

import smoothcert as sc
from smoothcert._files import JOURNAL
from smoothcert._registry import describe, restore
from smoothcert.data import ArrayDataset
from smoothcert.executors import Job
from smoothcert.executors.worker import Worker
from smoothcert.plans import AtRadii, Case
from smoothcert.runs.merge import merge
from smoothcert.runs.progress import Progress
from smoothcert.runs.run import open_run
from smoothcert.tasks.audit import audit
from smoothcert.tasks.smoothed import Smoothed

NOISE = sc.Gaussian(0.5)
SHORT = AtRadii([0, 0.2], 300, bound="runner-up", known_labels=True)
LONGER = replace(SHORT, samples=2_000)
WIDER = replace(LONGER, radii=(0, 0.2, 0.4))
STAGES = replace(WIDER, earlier=((300, 2), (2_000, 2)))
DATA = [([d / 20, 0.5], 0) for d in range(20)]


def three_ways(x):
    return torch.where(x[:, 0] > 0.3, 0, torch.where(x[:, 1] > 0.5, 1, 2))


def certify(out, plan, data=DATA, **settings):
    return sc.certify(
        three_ways,
        data,
        noise=NOISE,
        plan=plan,
        classes=3,
        out=out,
        device="cpu",
        batch=100,
        **settings,
    )


def checked(run, redraw=0):
    return audit(run.path, model=three_ways, data=DATA, redraw=redraw).findings


def votes(run):
    return [(c.looks, c.proof) for c in run]


@pytest.mark.parametrize("known_labels", [True, False])
def test_a_run_goes_on_with_a_higher_ceiling_and_then_with_a_larger_radius(tmp_path, known_labels):
    short, longer, wider = (
        replace(p, known_labels=known_labels, pilot=0) for p in (SHORT, LONGER, WIDER)
    )
    first = certify(tmp_path / "run", short)
    second = certify(tmp_path / "run", longer)
    assert second.plan.earlier_plans == (short,)
    for before, after in zip(first, second, strict=True):
        assert after.looks[: len(before.looks)] == before.looks
        assert after.radius >= before.radius
        assert after.seconds >= before.seconds
    assert sum(second.samples) > sum(first.samples)
    third = certify(tmp_path / "run", wider)
    assert third.plan.earlier_plans == (short, second.plan)
    assert third.certified_accuracy([0.4])[0] > 0
    assert third.complete
    assert checked(third, redraw=20) == ()
    # Every input goes through all stages, so a new run with the same plan has the same votes.
    assert votes(certify(tmp_path / "new", third.plan)) == votes(third)
    again = certify(tmp_path / "run", wider)
    assert votes(again) == votes(third)
    assert again.manifest.finished == third.manifest.finished
    with refused("other-configuration", what="run", names=["plan.radii", "plan.samples"]):
        certify(tmp_path / "run", short)


def test_a_run_does_not_go_on_with_other_names_of_its_classes(tmp_path):
    x = np.array([x for x, _ in DATA], np.float32)
    y = np.array([label for _, label in DATA])

    def named(*names):
        return ArrayDataset(x, y, name="drawn", class_names=names)

    names = ("cat", "dog", "car")
    certify(tmp_path, SHORT, data=named(*names), limit=2)
    run = certify(tmp_path, SHORT, data=named(*names), limit=4)
    assert run.manifest.class_names == list(names)
    with refused("other-configuration") as error:
        certify(tmp_path, SHORT, data=named("cat", "car", "dog"), limit=6)
    assert "class_names" in error.value.fields["names"]
    pets = sc.ask(run, groups={"kind": {"pet": ["cat", "dog"], "car": ["car"]}})
    assert pets.groups.of == (0, 0, 1)  # by the names that the run recorded


def test_a_radius_that_enters_late_starts_with_nothing():
    """The votes before it entered do not count for it: as many unanimous votes are needed as if they were the first."""

    def unanimous(plan):
        case, total = Case(plan, NOISE, 0), 0
        while case.more:
            total += case.more
            case.add(sc.Look(case.more, {0: case.more}))
        return total

    early, late = (
        replace(WIDER, radii=(0.4,)),
        replace(WIDER, radii=(0.1, 0.4), earlier=((1_000, 1),)),
    )
    alone = unanimous(replace(WIDER, radii=(0.1,)))
    assert (
        unanimous(late) - alone >= (unanimous(early) - 60) / 2
    )  # it learns nothing anew, but proves anew
    assert unanimous(late) > unanimous(early)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            LONGER,
            replace(LONGER, radii=(0, 0.1, 0.2)),
            r"plan.radii \(there \[0.0, 0.2\], now \[0.0, 0.1, 0.2\]\)",
        ),
        (
            LONGER,
            replace(LONGER, radii=(0,)),
            "plan.radii.*this plan goes on with .* radii above its largest",
        ),
        (LONGER, SHORT, r"plan.samples \(there 2000, now 300\)"),
        (SHORT, replace(LONGER, alpha=0.01), "plan.alpha"),
        (SHORT, replace(LONGER, give_up=0.1), "plan"),
        (
            AtRadii([0, 0.2], 300, known_labels=True),
            AtRadii([0, 0.2], 2_000, known_labels=True),
            'only AtRadii.*bound="runner-up".* goes on',
        ),
        (
            sc.Fixed(300),
            sc.Fixed(600),
            'only AtRadii.*bound="runner-up".* goes on with more samples',
        ),
    ],
)
def test_anything_else_is_refused_and_loses_nothing(tmp_path, before, after, words):
    run = certify(tmp_path, before, limit=3)
    with pytest.raises(sc.InvalidInput, match=words):
        certify(tmp_path, after)
    assert votes(open_run(tmp_path)) == votes(run)
    assert open_run(tmp_path).plan == before


class Stop(Progress):
    def update(self, certificate, status):
        raise KeyboardInterrupt


def test_it_can_be_stopped_at_any_moment_and_tells_what_it_has_proved(tmp_path):
    first = certify(tmp_path, SHORT)
    with pytest.raises(KeyboardInterrupt):
        certify(tmp_path, LONGER, progress=Stop())
    stopped = open_run(tmp_path)
    assert not stopped.complete
    assert len(stopped) == len(first)
    assert {c.plan for c in stopped} == {SHORT, stopped.plan}
    assert checked(stopped, redraw=20) == ()
    finished = certify(tmp_path, LONGER)
    assert finished.complete
    assert {c.plan for c in finished} == {finished.plan}
    assert checked(finished) == ()


def test_inputs_that_come_later_go_through_all_stages(tmp_path):
    certify(tmp_path / "run", SHORT, limit=5)
    certify(tmp_path / "run", LONGER, limit=10)
    run = certify(tmp_path / "run", WIDER)
    assert votes(run) == votes(certify(tmp_path / "new", STAGES))
    assert checked(run, redraw=20) == ()


def test_a_part_of_the_inputs_can_go_on(tmp_path):
    certify(tmp_path, SHORT)
    part = certify(tmp_path, LONGER, limit=5)
    assert not part.complete
    assert sum(c.plan == part.plan for c in part) == 5
    assert checked(part) == ()


def test_the_audit_finds_a_certificate_that_was_left_behind(tmp_path):
    certify(tmp_path, SHORT)
    run = certify(tmp_path, LONGER)
    with sqlite3.connect(tmp_path / JOURNAL) as db:
        db.execute("UPDATE certificates SET plan = ? WHERE id = 3", [json.dumps(describe(SHORT))])
    assert [f.id for f in checked(run)] == [3]


def test_parts_that_went_on_are_merged(tmp_path):
    for number in (1, 2):
        for plan in (SHORT, LONGER):
            certify(tmp_path / str(number), plan, shard=(number, 2))
    merged = merge([tmp_path / "1", tmp_path / "2"], out=tmp_path / "all")
    assert votes(merged) == votes(certify(tmp_path / "new", replace(LONGER, earlier=((300, 2),))))
    assert checked(merged) == ()


def test_a_worker_goes_on_with_the_votes_that_it_is_sent():
    plan = replace(LONGER, earlier=((300, 2),))
    dataset = sc.load_dataset("fashion-mnist")
    smoothed = Smoothed("fashion-cnn", noise=sc.Gaussian(0.25), device="cpu", batch=100)
    subject = smoothed.bind(dataset, [0, 1, 4])
    found = []
    for job in (Job(subject, dataset, SHORT), Job(subject, dataset, plan)):
        job = replace(job, begun={c.id: c.looks for c in found})
        worker, found = Worker(job), []
        worker.start(subject.runtime, 1)
        report = worker.advance([0, 1, 4])
        while report.finished or len(found) < 3:
            found += report.finished
            report = worker.advance([])
    whole = Worker(Job(subject, dataset, plan))
    whole.start(subject.runtime, 1)
    at_once, report = [], whole.advance([0, 1, 4])
    while report.finished or len(at_once) < 3:
        at_once += report.finished
        report = whole.advance([])
    assert {c.id: c for c in found} == {c.id: c for c in at_once}


@pytest.mark.parametrize(
    "earlier", [((3_000, 2),), ((300, 4),), ((300, 0),), ((2_000, 2), (300, 2))]
)
def test_stages_that_shrink_are_damaged(earlier):
    with refused("stages-shrink"):
        replace(WIDER, earlier=earlier)
    assert restore(describe(STAGES)) == STAGES


def test_it_does_not_go_on_with_a_classifier_that_votes_otherwise(tmp_path):
    certify(tmp_path, SHORT)

    def other(x):
        return torch.where(x[:, 0] > 0.7, 0, 1)

    with refused("other-configuration", names=["model"]):
        sc.certify(
            other, DATA, noise=NOISE, plan=LONGER, classes=3, out=tmp_path, device="cpu", batch=100
        )

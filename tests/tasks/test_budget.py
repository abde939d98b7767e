"""A budget is never overdrawn, is used, and an interrupted run goes on as if nothing had happened."""

import json
import re
import shutil
import sqlite3
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.refusals import refused

import smoothcert as sc
from smoothcert._registry import describe
from smoothcert.plans import Case
from smoothcert.runs.journal import Journal
from smoothcert.runs.progress import Progress
from smoothcert.tasks.survey import Forecast

RNG = np.random.default_rng(0)
DATA = [(x, int(x[0] > 0.5)) for x in RNG.random((120, 4))]


def above_half(x):
    return torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1)


def certify(model=above_half, data=DATA, **settings):
    defaults = {"noise": sc.Gaussian(0.25), "device": "cpu", "dtype": "float32", "batch": 500}
    return sc.certify(model, data, **(defaults | settings))


def spent(run):
    return run.samples.sum() + run.manifest.spending["survey"]


class Stop(Progress):
    """Ends a run after some certificates."""

    def __init__(self, after):
        self.left = after

    def update(self, certificate, status):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.mark.parametrize("budget", [20_000, 200_000])
def test_a_budget_is_used_and_never_overdrawn(tmp_path, budget):
    run = certify(budget=budget, out=tmp_path)
    assert run.complete
    assert len(run) == 120
    assert 0.95 * budget <= spent(run) <= budget
    assert isinstance(run.plan, sc.Price)


def test_a_budget_buys_a_larger_average_radius_than_fixed_sampling_of_the_same_cost(tmp_path):
    budget = 120 * 2_000
    fixed = certify(plan=sc.Fixed(2_000, pilot=20), out=tmp_path / "fixed")
    assert certify(budget=budget, out=tmp_path / "budget").acr > fixed.acr


@pytest.mark.annexes
def test_runs_with_budgets_are_compared_by_the_ceiling_that_was_asked_for(tmp_path):
    few, many = (certify(budget=budget, out=tmp_path / str(budget)) for budget in (20_000, 60_000))
    assert few.plan.samples != many.plan.samples
    assert len(sc.compare(few, many, radius=0.1).a) == 120
    assert sc.table([few]).plain()["runs"][0]["method"] == "price 100,000, budget of 20,000 samples"
    other = certify(plan=sc.Fixed(1_000, pilot=20), out=tmp_path / "other")
    with refused("other-plan", name="samples", of_a=100_000, of_b=1_000):
        sc.compare(few, other, radius=0.1)


def test_the_forecast_of_a_price_is_the_budget_without_the_survey():
    expected = sc.forecast(
        above_half, DATA, noise=sc.Gaussian(0.25), device="cpu", dtype="float32", budget=20_000
    )
    assert 0.97 * 20_000 < expected.samples < 20_000
    assert "±0%" in str(expected)


def test_a_forecast_of_minutes_is_what_is_left_of_them(monkeypatch):
    clock = Clock(monkeypatch, lambda rows: 1_000)
    settings = {"noise": sc.Gaussian(0.25), "device": "cpu", "dtype": "float32", "batch": 100}
    expected = sc.forecast(clock.model, DATA, minutes=1, since=0.0, **settings)
    assert expected.seconds == pytest.approx(60, rel=0.25)


def test_the_survey_is_no_part_of_the_forecast_of_a_cheap_plan(tmp_path, capsys):
    run = certify(plan=sc.AtRadii([0], samples=1_000), budget=10**6, out=tmp_path)
    [(expected, error)] = re.findall(r"forecast: ([\d,]+) samples ±(\d+)%", capsys.readouterr().err)
    assert run.samples.sum() == pytest.approx(
        int(expected.replace(",", "")), rel=0.1 + int(error) / 100
    )


@pytest.mark.parametrize("plan", [sc.Fixed(), sc.InputSpecific(), sc.Price(50, price=0)])
def test_a_budget_shrinks_the_default_pilot(plan):
    run = certify(plan=plan, budget=120 * 200)
    assert {c.plan.pilot for c in run} == {25}
    with refused("budget-too-small"):
        certify(plan=sc.Fixed(pilot=900), budget=120 * 200)


def test_more_than_the_ceiling_cannot_be_spent():
    run = certify(plan=sc.Price(1_000, price=0), budget=10**7, limit=20)
    assert run.counted.max() == 1_000
    assert run.samples.max() <= 1_400


def test_an_interrupted_run_ends_with_the_same_certificates(tmp_path):
    whole = certify(budget=50_000, out=tmp_path / "whole")
    for after in (5, 40, 60):
        with pytest.raises(KeyboardInterrupt):
            certify(budget=50_000, out=tmp_path / "parts", progress=Stop(after))
    parts = certify(budget=50_000, out=tmp_path / "parts")
    assert list(map(strip, parts)) == list(map(strip, whole))
    assert len({c.plan for c in parts}) > 5


def strip(certificate):
    return certificate.id, certificate.looks, certificate.radius, certificate.plan


@pytest.mark.parametrize(
    "plan", [sc.AtRadii([0, 0.25], samples=4_000), sc.Fixed(4_000), sc.InputSpecific(4_000)]
)
def test_for_other_plans_a_budget_sets_the_ceiling(tmp_path, plan):
    budget = 60_000
    run = certify(plan=plan, budget=budget, out=tmp_path)
    assert 0.9 * budget <= spent(run) <= budget
    assert type(run.plan) is type(plan)
    assert {c.plan.samples for c in run} != {4_000}


def test_a_budget_that_is_too_small_is_refused_with_the_least_that_would_do(tmp_path):
    with refused("budget-too-small", inputs=120) as error:
        certify(budget=1_000, out=tmp_path)
    least = int(re.search(r"budget=(\d+)", str(error.value))[1])
    assert spent(certify(budget=least, out=tmp_path)) <= least


@pytest.mark.parametrize("plan", [sc.InputSpecific(100_000), sc.Fixed(100_000, alpha=1e-40)])
def test_the_least_that_would_do_is_not_refused_again(plan):
    """A larger budget has a larger survey, and may have a larger pilot."""
    data = [DATA[i % len(DATA)] for i in range(2_000)]
    with refused("budget-too-small", inputs=2_000) as error:
        certify(budget=10, data=data, plan=plan)
    least = int(re.search(r"budget=(\d+)", str(error.value))[1])
    assert len(certify(budget=least, data=data, plan=plan)) == 2_000


def test_the_audit_checks_the_plan_of_every_certificate(tmp_path):
    certify(budget=30_000, out=tmp_path, data="fashion-mnist", model="fashion-cnn", limit=20)
    assert not sc.audit(tmp_path, redraw=20).findings
    with sqlite3.connect(tmp_path / "journal.sqlite") as db:
        [(id, plan)] = db.execute(
            "SELECT id, plan FROM certificates WHERE prediction IS NOT NULL LIMIT 1"
        ).fetchall()
        changed = json.dumps(json.loads(plan) | {"alpha": 0.01})
        db.execute("UPDATE certificates SET plan = ? WHERE id = ?", (changed, id))
    assert [finding.id for finding in sc.audit(tmp_path, redraw=0).findings] == [id]


def test_a_run_with_a_budget_is_continued_only_with_the_same_budget_and_inputs(tmp_path):
    certify(budget=50_000, out=tmp_path, limit=50)
    with refused("other-configuration", names=["budget.samples"]):
        certify(budget=60_000, out=tmp_path, limit=50)
    with refused("budget-for-other-inputs", inputs=50):
        certify(budget=50_000, out=tmp_path, limit=60)
    with refused("other-configuration", names=["plan.alpha"]):
        certify(budget=50_000, plan=sc.Price(price=0, alpha=0.01), out=tmp_path, limit=50)


def test_a_budget_needs_a_plan_with_a_ceiling_of_its_own():
    with refused("no-ceiling"):
        certify(plan=sc.Combined((sc.InputSpecific(1_000), sc.Fixed(1_000))), budget=100_000)


def test_price_and_budget_exclude_one_another():
    with refused("price-and-budget"):
        certify(plan=sc.Price(price=1e-6), budget=50_000)
    with refused("two-budgets"):
        certify(minutes=1, budget=50_000)


class Clock:
    """A clock that goes on only while the model computes, at a speed that may change."""

    def __init__(self, monkeypatch, rows_per_second):
        self.now, self.rows, self.rows_per_second = 0.0, 0, rows_per_second
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def model(self, x):
        self.rows += len(x)
        self.now += len(x) / self.rows_per_second(self.rows)
        return above_half(x)


@pytest.mark.parametrize(
    ("minutes", "speed", "batch"), [(1.5, 1_000, 100), (1, 10_000, 500), (2, 500, 32)]
)
def test_minutes_are_kept_within_a_few_percent(monkeypatch, minutes, speed, batch):
    clock = Clock(monkeypatch, lambda rows: speed)
    results = certify(clock.model, minutes=minutes, since=-10.0, batch=batch)
    assert len(results) == 120
    assert clock.now + 10 == pytest.approx(60 * minutes, rel=0.05)  # ten seconds were over already


def test_minutes_become_samples_before_the_first_certificate(monkeypatch, tmp_path):
    clock = Clock(monkeypatch, lambda rows: 1_000)
    settings = {"minutes": 1.5, "since": 0.0, "batch": 100}
    whole = certify(clock.model, out=tmp_path / "whole", **settings)
    samples = whole.manifest.budget["samples"]
    assert 0.95 * samples <= spent(whole) <= samples
    assert not whole.manifest.timed
    clock = Clock(monkeypatch, lambda rows: 1_000)
    with pytest.raises(KeyboardInterrupt):
        certify(clock.model, out=tmp_path / "parts", progress=Stop(40), **settings)
    clock.rows_per_second = lambda rows: 10  # the machine has become slower
    with pytest.raises(KeyboardInterrupt):
        certify(clock.model, out=tmp_path / "parts", progress=Stop(40), **settings)
    with refused("other-configuration", names=["budget.samples", "budget.minutes"]):
        certify(clock.model, out=tmp_path / "parts", minutes=2, batch=100)
    parts = certify(clock.model, out=tmp_path / "parts", budget=samples, batch=100)
    assert list(map(strip, parts)) == list(map(strip, whole))


def test_only_version_1_goes_on_with_a_run_in_which_the_clock_decided(monkeypatch, tmp_path):
    clock = Clock(monkeypatch, lambda rows: 1_000)
    settings = {"minutes": 1.5, "since": 0.0, "batch": 100, "out": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        certify(clock.model, progress=Stop(100), **settings)
    as_version_1(tmp_path)
    assert len(sc.open_run(tmp_path)) == 100
    assert not sc.audit(tmp_path, redraw=0).findings
    for task in (certify, lambda model, **given: sc.forecast(model, DATA, **(SETTINGS | given))):
        with refused("budget-of-version-1"):
            task(clock.model, **settings)


def test_a_finished_run_of_version_1_with_minutes_is_complete(monkeypatch, tmp_path):
    clock = Clock(monkeypatch, lambda rows: 1_000)
    settings = {"minutes": 1.5, "since": 0.0, "batch": 100, "out": tmp_path}
    certify(clock.model, **settings)
    as_version_1(tmp_path)
    assert certify(clock.model, **settings).complete


def as_version_1(folder):
    """Make a run with minutes look as version 1.0 wrote it."""
    with sqlite3.connect(folder / "journal.sqlite") as db:
        [[budget]] = db.execute("SELECT value FROM manifest WHERE key = 'budget'").fetchall()
        changed = json.dumps(json.loads(budget) | {"samples": None})
        db.execute("UPDATE manifest SET value = ? WHERE key = 'budget'", (changed,))
    db.close()


@pytest.mark.parametrize(
    "settings",
    [{"plan": sc.InputSpecific(20_000)}, {"budget": 10**6}],
    ids=["input-specific", "budget"],
)
def test_a_forecast_is_close_to_what_the_run_takes(settings):
    settings |= {"noise": sc.Gaussian(0.25), "device": "cpu", "dtype": "float32", "batch": 500}
    expected = sc.forecast(above_half, DATA, **settings)
    took = sc.certify(above_half, DATA, **settings).samples.sum()
    assert took == pytest.approx(expected.samples, rel=max(0.15, expected.error))
    assert expected.error < 0.3


SETTINGS = {"sigma": 0.25, "device": "cpu", "dtype": "float32", "batch": 500}


def test_a_forecast_takes_all_arguments_of_certify(tmp_path):
    settings = SETTINGS | {"plan": sc.Fixed(500)}
    expected = sc.forecast(above_half, DATA, out=tmp_path / "run", progress=Progress(), **settings)
    assert expected.samples == sc.forecast(above_half, DATA, **settings).samples
    assert not (tmp_path / "run").exists()


def test_a_forecast_of_a_begun_run_is_about_the_rest(tmp_path):
    settings = SETTINGS | {"plan": sc.Fixed(500, pilot=100), "out": tmp_path}
    sc.certify(above_half, DATA, limit=90, **settings)
    assert sc.forecast(above_half, DATA, **settings).samples == 30 * 600
    assert str(sc.forecast(above_half, DATA, limit=90, **settings)) == "nothing is left to certify"
    with refused("other-configuration", names=["seed"]):
        sc.forecast(above_half, DATA, **settings, seed=3)


def test_a_forecast_of_an_interrupted_budget_is_what_is_left_of_it(tmp_path):
    settings = SETTINGS | {"budget": 50_000, "out": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        sc.certify(above_half, DATA, progress=Stop(60), **settings)
    done = sc.open_run(tmp_path)
    assert sc.forecast(above_half, DATA, **settings).samples == 50_000 - spent(done)
    assert len(sc.open_run(tmp_path)) == len(done)


@pytest.mark.parametrize("task", [sc.certify, sc.forecast])
def test_a_shard_has_no_budget_of_its_own(task):
    with refused("budget-of-shard"):
        task(above_half, DATA, sigma=0.25, device="cpu", budget=10**6, shard="1/2")


def falsify(folder, id, **settings):
    """Give a certificate another plan, with all that this plan proves from its votes."""
    run = sc.open_run(folder)
    before = run[id]
    plan = replace(before.plan, **settings)
    looks = []
    left = sum((look for look in before.looks[1:]), sc.Look(0, {}))
    case = Case(plan, run.noise, before.label)
    case.add(before.looks[0])
    looks.append(before.looks[0])
    while case.more:
        share = case.more / left.samples
        look = sc.Look(case.more, {c: int(share * count) for c, count in left.votes.items()})
        case.add(look)
        looks.append(look)
    forged = sc.Certificate.from_case(case, looks, id=id)
    with Journal(folder, write=True) as journal:
        journal.add(forged, {}, own_plan=True)


@pytest.fixture(scope="module")
def spent_budget(tmp_path_factory):
    return certify(budget=50_000, out=tmp_path_factory.mktemp("budget")).path


@pytest.mark.parametrize("settings", [{"price": 1e-9}, {"samples": 500}, {"price": 0.0}])
def test_an_audit_derives_the_plan_of_every_block_again(spent_budget, tmp_path, settings):
    """Whoever chooses price or ceiling after the votes can break alpha many times over."""
    shutil.copytree(spent_budget, tmp_path, dirs_exist_ok=True)
    certified = [c.id for c in sc.open_run(tmp_path) if c.prediction is not None]
    falsify(tmp_path, certified[-1], **settings)
    findings = sc.audit(tmp_path, redraw=0, data=DATA).findings
    assert certified[-1] in [finding.id for finding in findings]
    assert any("the budget gives Price(" in finding.reason for finding in findings)


def test_the_plans_of_one_block_cannot_be_chosen_together(spent_budget, tmp_path):
    """The later blocks then have other plans than the rest of the budget gives."""
    shutil.copytree(spent_budget, tmp_path, dirs_exist_ok=True)
    run = sc.open_run(tmp_path)
    first = [c for c in run if c.plan == run.plan]
    for certificate in first:
        falsify(tmp_path, certificate.id, price=run.plan.price / 2)
    with Journal(tmp_path, write=True) as journal:
        journal.write_manifest({"plan": describe(sc.open_run(tmp_path)[first[0].id].plan)})
    findings = sc.audit(tmp_path, redraw=0, data=DATA).findings
    assert {c.id for c in first} <= {finding.id for finding in findings}


@pytest.mark.parametrize(
    "plan", [None, sc.Fixed(4_000), sc.Price(price=0, bound="runner-up"), sc.AtRadii([0.1])]
)
def test_an_honest_budget_passes_its_audit_also_when_interrupted(tmp_path, plan):
    for after in (7, 40):
        with pytest.raises(KeyboardInterrupt):
            certify(plan=plan, budget=50_000, out=tmp_path, progress=Stop(after))
        check_honest(tmp_path, redraw=3)
    certify(plan=plan, budget=50_000, out=tmp_path)
    check_honest(tmp_path, redraw=120)


def check_honest(folder, **settings):
    found = sc.audit(folder, model=above_half, data=DATA, **settings)
    assert found.findings == ()
    assert found.plans_checked


def test_an_honest_budget_of_minutes_passes_its_audit(monkeypatch, tmp_path):
    clock = Clock(monkeypatch, lambda rows: 1_000)
    certify(clock.model, minutes=1, since=0.0, batch=100, out=tmp_path)
    found = sc.audit(tmp_path, model=clock.model, data=DATA)
    assert found.findings == ()
    assert found.plans_checked


def test_an_input_that_was_left_out_does_not_change_the_order_of_the_others(tmp_path):
    data = Unreadable(DATA)
    with refused("unreadable-input"):
        certify(data=data, budget=50_000, out=tmp_path)
    [missing] = sc.open_run(tmp_path).manifest.unreadable
    ids = [id for id in range(120) if id != missing]
    assert len(certify(data=data, budget=50_000, out=tmp_path, ids=ids)) == 119
    with Journal(tmp_path, write=True) as journal:
        journal.write_manifest({"circumstances": {"smoothcert": "2.0.0"}})
    found = sc.audit(tmp_path, model=above_half, data=data)
    assert {finding.reason for finding in found.findings} <= {"it is not one of the inputs"}
    assert found.plans_checked


class Unreadable(list):
    """A data set in which one input cannot be read when its turn comes."""

    def __getitem__(self, id):
        if id == 77:
            raise OSError("cannot be read")
        return super().__getitem__(id)


def test_votes_of_the_survey_are_drawn_again_as_well(spent_budget, tmp_path):
    shutil.copytree(spent_budget, tmp_path, dirs_exist_ok=True)
    spending = sc.open_run(tmp_path).manifest.spending
    id, count, samples = spending["votes"][0]
    changed = [[id, samples - count, samples], *map(list, spending["votes"][1:])]
    with Journal(tmp_path, write=True) as journal:
        journal.write_manifest({"spending": {**spending, "votes": changed}})
    found = sc.audit(tmp_path, redraw=120, model=above_half, data=DATA)
    reason = "drawing it again gave other votes in the survey of the budget"
    assert [finding.id for finding in found.findings if finding.reason == reason] == [id]


def test_of_minutes_of_version_1_an_audit_says_that_plans_cannot_be_derived(spent_budget, tmp_path):
    shutil.copytree(spent_budget, tmp_path, dirs_exist_ok=True)
    budget = sc.open_run(tmp_path).manifest.budget
    with Journal(tmp_path, write=True) as journal:
        journal.write_manifest({"budget": {**budget, "samples": None, "minutes": 1.0}})
    found = sc.audit(tmp_path, redraw=0, data=DATA)
    assert found.holds
    assert not found.plans_checked
    assert not found.keeps_alpha


def test_a_survey_of_the_first_runs_of_version_1_is_read_and_not_gone_on_with(tmp_path):
    """It told how many inputs had which votes."""
    settings = SETTINGS | {"budget": 50_000, "out": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        sc.certify(above_half, DATA, progress=Stop(60), **settings)
    spending = sc.open_run(tmp_path).manifest.spending
    with Journal(tmp_path, write=True) as journal:
        journal.write_manifest({"spending": {**spending, "votes": [[16, 16, 4]]}})
    assert len(sc.open_run(tmp_path)) >= 60
    found = sc.audit(tmp_path, redraw=2, model=above_half, data=DATA)
    assert found.holds
    assert not found.plans_checked
    with refused("budget-of-version-1"):
        sc.certify(above_half, DATA, **settings)


@pytest.mark.parametrize("samples", [3_000, 49_000, 10**7])
def test_a_budget_that_was_changed_afterwards_is_found(spent_budget, tmp_path, samples):
    shutil.copytree(spent_budget, tmp_path, dirs_exist_ok=True)
    budget = sc.open_run(tmp_path).manifest.budget
    with Journal(tmp_path, write=True) as journal:
        journal.write_manifest({"budget": {**budget, "samples": samples}})
    assert sc.audit(tmp_path, redraw=0, data=DATA).findings


def test_a_budget_without_the_record_of_its_spending_is_found(spent_budget, tmp_path):
    shutil.copytree(spent_budget, tmp_path, dirs_exist_ok=True)
    with Journal(tmp_path, write=True) as journal:
        journal.write_manifest({"spending": None})
    assert len(sc.audit(tmp_path, redraw=0, data=DATA).findings) == 120


def test_minutes_of_a_forecast_have_no_exponent():
    assert "30.6 h" in str(Forecast(10, 1.1e8, 0.1, rate=1_000))


def test_a_forecast_without_an_error_is_exact():
    assert "600,600 samples ±0% (100,100 per input)" in str(Forecast(6, 600_600, 0, rate=1_000))

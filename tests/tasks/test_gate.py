import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from tests.refusals import refused

import smoothcert as sc
from smoothcert.errors import InvalidInput
from smoothcert.plans import Fixed, InputSpecific
from smoothcert.runs.journal import Journal
from smoothcert.statistics.comparison import difference_interval
from smoothcert.tasks.compare import compare
from smoothcert.tasks.gate import Gate, gate, policy_for


@pytest.fixture(scope="module")
def run(on_disk):
    """40 inputs, a third of them certified at 0.25."""
    return on_disk("fixed", Fixed(1_000))


@pytest.fixture
def policy(tmp_path):
    def write(text):
        (tmp_path / "policy.toml").write_text(text)
        return tmp_path / "policy.toml"

    return write


@pytest.mark.parametrize(
    ("text", "outcome", "reason"),
    [
        ("inputs = 40", "passes", "40 inputs"),
        ("inputs = 41", "undecided", "40 inputs"),
        ("alpha = 0.001", "passes", "does the plan keep it: yes"),
        ("alpha = 0.0001", "fails", "alpha 0.001"),
        ('dtype = "float16"', "fails", "float32"),
        ('dtype = ["float32", "float64"]', "passes", "float32"),
        ("audit = 0", "passes", "40 certificates checked"),
        ('[certified_accuracy]\n"0.25" = 20', "passes", "shown: at least"),
        ('[certified_accuracy]\n"0.25" = 90', "fails", "shown: at least"),
        ('[certified_accuracy]\n"0.25" = 35', "undecided", "inputs would decide such a share"),
    ],
)
def test_each_rule_passes_fails_or_stays_undecided(run, policy, text, outcome, reason):
    found = gate(run.path, policy(text))
    [rule] = found.rules
    assert found.outcome == rule.outcome == outcome
    assert reason in rule.reason


def test_the_bad_radius_of_a_table_is_named(run):
    with refused("no-thresholds", value='"0,5" = 60'):
        gate(run.path, {"certified_accuracy": {"0.25": 75, "0,5": 60}})


def test_two_percentages_at_one_radius_are_two_rules(run, policy):
    text = '[certified_accuracy]\n"0.25" = 90\n"0.250" = 10'
    assert [rule.outcome for rule in gate(run, policy(text)).rules] == ["fails", "passes"]


def test_one_failure_outweighs_what_is_undecided(run):
    assert gate(run, {"inputs": 41, "alpha": 0.001}).outcome == "undecided"
    assert gate(run.path, {"inputs": 41, "alpha": 0.0001}).outcome == "fails"


def test_a_plan_that_is_not_sound_fails(on_disk):
    reused = on_disk("reused", InputSpecific(1_000, kind="relative", pilot_use="reuse"))
    [rule] = gate(reused.path, {"alpha": 0.05}).rules
    assert (rule.outcome, rule.reason) == ("fails", "alpha 0.001; does the plan keep it: no")


def test_a_run_is_held_against_a_baseline(run, on_disk, policy):
    worse = on_disk("worse", Fixed(1_000), most=0.6)
    against = f'[baseline]\nrun = "{run.path}"\nmargin = 10\nradius = 0.25'
    assert gate(worse.path, policy(against)).outcome == "fails"
    assert gate(run.path, policy(against)).outcome == "passes"
    assert (
        gate(run.path, policy(against.replace("margin = 10", "margin = 1"))).outcome == "undecided"
    )
    assert gate(run.path, policy(against), baseline=worse.path).outcome == "passes"
    assert "its own baseline" in gate(run.path, policy(against)).rules[-1].reason
    assert "its own baseline" not in gate(worse.path, policy(against)).rules[-1].reason


def test_so_many_inputs_as_an_undecided_baseline_names_decide_it(run):
    """The run certifies what its baseline certifies, so a difference as here is none."""
    [rule] = gate(run.path, {"baseline": {"run": run.path, "margin": 1, "radius": 0.25}}).rules
    assert rule.outcome == "undecided"
    needed = int(re.search(r"about ([\d,]+) other inputs", rule.reason)[1].replace(",", ""))
    assert difference_interval(0, 0, needed, alpha=0.05).low > -0.01
    assert difference_interval(0, 0, needed - 1, alpha=0.05).low <= -0.01


def test_a_run_passes_the_margin_of_its_first_policy(run, policy):
    text = policy_for(run).replace("audit = 5", "audit = 0")
    text = text.replace("# [baseline]", "[baseline]").replace("# margin", "margin")
    found = gate(run.path, policy(text + f'\nrun = "{run.path}"\n'))
    assert found.outcome == "passes"
    assert any("points below" in rule.name for rule in found.rules)


def test_only_a_run_that_passes_is_to_be_deployed(run):
    assert gate(run, {"inputs": 40}).guaranteed
    undecided = gate(run, {"inputs": 41})
    assert not undecided.guaranteed
    assert b"system-out" not in undecided.junit()


def test_a_baseline_that_no_rule_asks_for_is_refused(run):
    with refused("no-baseline-rule", baseline="runs/released"):
        gate(run.path, {"inputs": 40}, baseline="runs/released")


@pytest.mark.parametrize(
    ("mark", "code"),
    [
        ({"until_clear": True}, "ended-when-clear"),
        (
            {"budget": {"samples": None, "minutes": 2, "ceiling": 1_000, "pilot": 100}},
            "timed-run",
        ),
    ],
)
def test_inputs_that_are_no_random_sample_prove_no_share(on_disk, run, mark, code):
    marked = on_disk("marked", Fixed(1_000))
    with Journal(marked.path, write=True) as journal:
        journal.write_manifest(mark)
    with refused(code, run=marked.path):
        gate(marked.path, {"certified_accuracy": {"0.25": 20}})
    assert gate(marked.path, {"inputs": 40}).outcome == "passes"


def test_nothing_is_known_about_alpha_where_the_clock_decided_about_plans(on_disk):
    marked = on_disk("marked", Fixed(1_000))
    assert gate(marked.path, {"alpha": 0.001}).outcome == "passes"
    budget = {"samples": None, "minutes": 2, "ceiling": 1_000, "pilot": 100}
    with Journal(marked.path, write=True) as journal:
        journal.write_manifest({"budget": budget})
    assert gate(marked.path, {"alpha": 0.001}).outcome == "fails"


def test_a_budget_makes_intervals_over_inputs_rough(on_disk, run):
    rough = (
        "later inputs got the samples that earlier ones left, so intervals over inputs are rough"
    )
    marked = on_disk("marked", Fixed(1_000))
    budget = {"samples": 40_000, "minutes": None, "ceiling": 1_000, "pilot": 100}
    with Journal(marked.path, write=True) as journal:
        journal.write_manifest({"budget": budget})
    assert f"marked had a budget: {rough}." in compare(run, marked.path).notes
    versus = {"run": run.path, "margin": 10, "radius": 0.25}
    for rule in ({"certified_accuracy": {"0.25": 20}}, {"baseline": versus}):
        [checked] = gate(marked.path, rule).rules
        assert rough in checked.reason
        [checked] = gate(run.path, rule).rules
        assert rough not in checked.reason


def test_junit_has_a_case_for_every_rule(run):
    found = gate(run.path, {"inputs": 41, "alpha": 0.0001, "dtype": "float32"})
    suite = ElementTree.fromstring(found.junit())
    assert [suite.get(key) for key in ("tests", "failures", "errors")] == ["3", "1", "1"]
    assert [[child.tag for child in case] for case in suite.iter("testcase")] == [
        ["error"],
        ["failure"],
        [],
    ]


@pytest.mark.parametrize(
    ("text", "code", "fields"),
    [
        ("", "empty-policy", {}),
        ("confidence = 0.9", "empty-policy", {}),
        ("inputs 40", "not-toml", {}),
        ("input = 40", "unknown-rule", {"name": "input"}),
        ('[certified_accuracy]\n"0.25" = 0.75', "not-between", {"value": 0.75}),
        ('[certified_accuracy]\n"-1" = 60', "not-at-least", {}),
        ("inputs = 0.5", "not-whole", {"name": "inputs"}),
        ("alpha = 2", "not-an-alpha", {"name": "alpha"}),
        ("[certified_accuracy]\n0.5 = 60", "no-thresholds", {}),
        ('[certified_accuracy]\n"0.5" = 60\n"0.25" = 101', "not-between", {}),
        ('baseline = "runs/old"', "not-a-baseline", {"value": "runs/old"}),
        ('[baseline]\nrun = "runs/old"\nmargin = 0', "not-between", {}),
        ('[baseline]\nrun = "runs/old"\nmargin = 1', "no-such-results", {}),
    ],
)
def test_a_bad_policy_is_refused(run, policy, text, code, fields):
    with refused(code, **fields):
        gate(run.path, policy(text))


def test_a_policy_that_is_no_file_is_refused(run, tmp_path):
    with refused("unreadable-file", path=tmp_path):
        gate(run.path, tmp_path)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[certified_accuracy]", "no-thresholds"),
        ('[certified_accuracy]\n# "0.25" = 90', "no-thresholds"),
        ("certified_accuracy = []", "no-thresholds"),
        ("certified_accuracy = 60", "no-thresholds"),
        ('inputs = 40\n[certified_accuracy]\n"a" = 90', "no-thresholds"),
        ("inputs = 40\ncertified_accuracy = {}", "no-thresholds"),
        ("confidence = 0.05\ninputs = 40", "not-a-confidence"),
        ("confidence = 0.5\ninputs = 40", "not-a-confidence"),
        ("confidence = nan\ninputs = 40", "not-a-confidence"),
        ("confidence = 1\ninputs = 40", "not-a-confidence"),
        ("confidence = 95\ninputs = 40", "not-a-confidence"),
        ("alpha = 0.999", "not-an-alpha"),
        ("alpha = 0.5", "not-an-alpha"),
        ("alpha = nan", "not-an-alpha"),
        ("alpha = true", "not-an-alpha"),
        ('[baseline]\nrun = "RUN"\nmargin = 1\nradius = []', "no-radii"),
        ('[baseline]\nrun = "RUN"\nmargin = 1\nradius = 9', "nothing-to-compare"),
        ('[baseline]\nrun = "RUN"\nmargin = 1\nradius = [0, 9]', "nothing-to-compare"),
    ],
)
def test_a_policy_that_checks_nothing_or_proves_nothing_is_refused(run, policy, text, code):
    with refused(code):
        gate(run.path, policy(text.replace("RUN", str(run.path))))


@pytest.mark.parametrize(
    "text",
    [
        "inputs = 0",
        "inputs = -1",
        '[certified_accuracy]\n"0.25" = 0',
        '[certified_accuracy]\n"0.25" = -5',
        '[certified_accuracy]\n"0.25" = nan',
        '[certified_accuracy]\n"nan" = 60',
        '[certified_accuracy]\n"inf" = 60',
        '[certified_accuracy]\n"0.25" = true',
        '[certified_acuracy]\n"0.25" = 60',
        '[baseline]\nrun = "RUN"\nmargin = 100',
        '[baseline]\nrun = "RUN"\nmargin = nan',
        '[baseline]\nrun = "RUN"\nmargin = 1\nradius = [nan]',
        '[baseline]\nrun = "RUN"\nmargin = 1\nradii = 0.25',
    ],
)
def test_a_threshold_that_every_run_would_pass_is_refused(run, policy, text):
    with pytest.raises(InvalidInput):
        gate(run.path, policy(text.replace("RUN", str(run.path))))


def test_a_run_without_certificates_passes_no_gate(on_disk):
    empty = on_disk("empty", Fixed(1_000), inputs=0)
    for policy in ({"dtype": "float32"}, {"alpha": 0.001}, {"audit": 0}):
        with refused("no-certificates", run=empty.path):
            gate(empty.path, policy)


def test_without_rules_nothing_passes():
    assert Gate("run", (), "").outcome == "undecided"


def test_what_the_confidence_was_meant_to_be_is_said(run):
    with refused("not-a-confidence", name="confidence", value=0.05) as raised:
        gate(run.path, {"inputs": 40, "confidence": 0.05})
    assert str(raised.value).endswith("got 0.05: for an alpha of 0.05, write 0.95")


def test_copies_of_an_input_count_once(tmp_path):
    def model(x):
        return torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1)

    inputs = np.concatenate([np.full((400, 2), 0.1), [[0.2, 0.3], [0.9, 0.3]]])
    settings = {"sigma": 0.1, "plan": Fixed(200), "device": "cpu", "progress": sc.Progress()}
    run = sc.certify(model, (inputs, np.zeros(402, int)), **settings, out=tmp_path)
    assert run.manifest.copies == tuple(range(1, 400))
    checked = gate(run, {"inputs": 4, "certified_accuracy": {0.1: 60}})
    assert checked.outcome == "undecided"
    assert checked.rules[0].reason == "3 inputs, and 399 copies, which do not count"
    assert "66.7% of 3 inputs" in checked.rules[1].reason


def test_copies_do_not_decide_a_comparison(tmp_path):
    """One input that A certifies and B does not is no evidence, however often it is repeated."""

    def model(limit):
        return lambda x: torch.stack([limit - x[:, 0], x[:, 0] - limit], 1)

    data = (np.full((40, 2), 0.62), np.ones(40, int))
    settings = {"sigma": 0.25, "plan": Fixed(200), "device": "cpu", "progress": sc.Progress()}
    a, b = (sc.certify(model(t), data, **settings, out=tmp_path / str(t)) for t in (0.5, 0.2))
    found = compare(a, b, radius=0.2)
    assert found.verdict == "undecided"
    assert any("39 inputs repeat others" in note for note in found.notes)
    assert not any(cell.best for row in sc.table([a, b], radii=[0.2]).cells for cell in row[-4:])
    assert sc.recommend([a, b]).inputs == 1


def test_a_first_policy_has_comments_and_the_run_passes_it(run, policy):
    text = policy_for(run)
    assert text.count("\n#") > 5
    found = gate(run.path, policy(text.replace("audit = 5", "audit = 0")))
    assert found.outcome == "passes"
    assert {rule.name.split()[0] for rule in found.rules} >= {"certified", "alpha", "number"}


def test_a_first_policy_without_labels_has_no_certified_accuracy(tmp_path, policy):
    settings = {"sigma": 0.25, "plan": Fixed(200), "device": "cpu", "progress": sc.Progress()}
    out = tmp_path / "unlabelled"
    sc.certify(
        lambda x: torch.cat([0.5 - x, x - 0.5], 1), np.full((20, 1), 0.9), **settings, out=out
    )
    found = gate(out, policy(policy_for(out).replace("audit = 5", "audit = 0")))
    assert found.outcome == "passes"

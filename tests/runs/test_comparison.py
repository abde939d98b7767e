import re
from dataclasses import replace

import numpy as np
import pytest
from tests.refusals import refused

from smoothcert.noises import Gaussian
from smoothcert.plans import AtRadii, Fixed
from smoothcert.runs.comparison import compare_runs
from smoothcert.runs.formats import read_results, write_results
from smoothcert.statistics.comparison import difference_interval


@pytest.fixture
def pair(fixed_run, altered):
    """A, and a B that loses the given number of the inputs that A certifies and wins none."""

    def make(lost, **changes):
        largest = np.argsort(-fixed_run.radius)[:lost]
        radius = np.where(np.isin(np.arange(len(fixed_run)), largest), 0.01, fixed_run.radius)
        return fixed_run, altered(fixed_run, name="other", radius=radius, **changes)

    return make


def test_pairs_are_counted_and_listed(pair):
    a, b = pair(9)
    [d] = compare_runs(a, b, radius=0.25).differences
    lost = np.sort(a.id[np.argsort(-a.radius)[:9]])
    assert (d.only_a, d.only_b, d.inputs) == (tuple(lost.tolist()), (), 60)
    assert d.shares == (a.certified_accuracy([0.25])[0], b.certified_accuracy([0.25])[0])
    assert d.difference == -9 / 60
    assert d.interval == difference_interval(9, 0, 60, alpha=0.05)


@pytest.mark.parametrize(
    ("lost", "margin", "verdict", "sentence"),
    [
        (
            9,
            0,
            "worse",
            r"^other certifies less than fixed at 0\.25: -15\.0 points, 95% interval -2\d\.\d to -5\.\d\.$",
        ),
        (9, 5, "worse", r"^other certifies less than fixed at 0\.25, by more than 5 points: "),
        (9, 30, "not worse", r"^other certifies at most 30 points less than fixed at 0\.25: "),
        (
            9,
            10,
            "undecided",
            r"^Whether other loses more than 10 points against fixed at 0\.25 cannot be told: ",
        ),
        (
            3,
            0,
            "undecided",
            r"cannot be told apart at 0\.25: .* with 60 inputs, only differences above 1\d\.?\d* points",
        ),
        (
            0,
            10,
            "not worse",
            r"^other certifies at most 10 points less than fixed at 0\.25: \+0\.0 points",
        ),
    ],
)
def test_the_verdict_is_one_sentence(pair, lost, margin, verdict, sentence):
    [d] = compare_runs(*pair(lost), radius=0.25, margin=margin).differences
    assert d.verdict == verdict
    assert re.search(sentence, d.sentence), d.sentence


def test_more_is_less_the_other_way_round(pair):
    a, b = pair(9)
    [d] = compare_runs(b, a, radius=0.25).differences
    assert (d.verdict, d.sentence.split(":")[0]) == (
        "better",
        "fixed certifies more than other at 0.25",
    )


def test_several_radii_share_the_error(pair):
    found = compare_runs(*pair(9), radius=[0.5, 0.25])
    assert [d.radius for d in found.differences] == [0.25, 0.5]
    assert found.differences[0].interval == difference_interval(9, 0, 60, alpha=0.025)
    assert "hold at all 2 radii together" in found.scope
    assert found.verdict == "worse"


def test_average_and_curve_are_compared_where_radii_are_measured(pair):
    found = compare_runs(*pair(20), radius=0.25)
    assert "other has the smaller average certified radius" in repr(found)
    assert "On the whole curve, fixed certifies more from " in repr(found)
    assert (
        compare_runs(*pair(0), radius=0.25).average is None
    )  # alike everywhere: nothing to say about other inputs


def test_the_interval_of_the_average_is_exact_where_the_largest_radius_is_known(pair, tmp_path):
    a, b = pair(20)
    found = compare_runs(a, b, radius=0.25)
    assert found.average_is_exact
    assert ", interval of the difference" in found.average_sentence
    write_results(b, tmp_path / "log.tsv")
    found = compare_runs(a, tmp_path / "log.tsv", radius=0.25)
    assert not found.average_is_exact
    assert ", approximate interval of the difference" in found.average_sentence


def test_a_gain_that_is_small_everywhere_shows_nothing_about_rare_losses(fixed_run, altered):
    gains = altered(fixed_run, name="gains", radius=fixed_run.radius + 0.01)
    low, high = compare_runs(fixed_run, gains, radius=0.25).average
    assert low < 0 < 0.01 < high


def test_only_common_inputs_are_compared(fixed_run, altered):
    fewer = altered(
        fixed_run, name="fewer", manifest=None, **{n: c[5:] for n, c in fixed_run.columns.items()}
    )
    found = compare_runs(fixed_run, fewer, radius=0.25)
    assert len(found.a) == len(found.b) == 55
    assert "Of 60 and 55 inputs, only the 55 that both have are compared." in found.notes


def test_another_plan_is_told(fixed_run, iss_run):
    assert "The plans differ" in compare_runs(iss_run, fixed_run, radius=0.25).notes[0]


def test_a_log_is_compared_as_if_its_settings_were_the_same(fixed_run, tmp_path):
    write_results(fixed_run, tmp_path / "log.tsv")
    assert (
        "A published log does not tell"
        in compare_runs(fixed_run, tmp_path / "log.tsv", radius=0.25).notes[0]
    )
    assert "log and fixed" in repr(
        compare_runs(read_results(tmp_path / "log.tsv"), fixed_run, radius=0.25)
    )


@pytest.mark.parametrize(
    ("change", "code", "fields"),
    [
        (
            {"plan": Fixed(10_000, alpha=0.01)},
            "other-plan",
            {"name": "alpha", "of_a": 0.001, "of_b": 0.01},
        ),
        (
            {"plan": Fixed(1_000)},
            "other-plan",
            {"name": "samples", "of_a": 10_000, "of_b": 1_000},
        ),
        (
            {"plan": Fixed(10_000, bound="runner-up")},
            "other-plan",
            {"name": "bound", "of_a": "binary", "of_b": "runner-up"},
        ),
        ({"label": np.ones(60, int)}, "other-label", {"id": 0}),
        ({"id": np.arange(60) + 1_000}, "no-common-input", {}),
        ({"label": np.full(60, -1)}, "no-labels", {}),
    ],
)
def test_what_cannot_be_compared_is_refused(pair, change, code, fields):
    with refused(code, **fields):
        compare_runs(*pair(1, **change), radius=0.25)


def test_smoothed_classifiers_with_other_noise_are_compared_as_they_are(pair):
    compare_runs(*pair(1, noise=Gaussian(0.25)), radius=0.25)


def test_runs_on_different_data_are_refused_with_the_names_of_both(fixed_run, altered):
    other = altered(
        fixed_run,
        name="other",
        manifest=replace(fixed_run.manifest, data="other.npz", data_hash="other"),
    )
    with refused("other-data", data_a=fixed_run.manifest.data, data_b="other.npz"):
        compare_runs(fixed_run, other, radius=0.25)


def test_an_unfinished_run_is_refused(fixed_run, altered):
    partial = altered(fixed_run, manifest=replace(fixed_run.manifest, ids=tuple(range(0, 700, 10))))
    with refused("not-finished"):
        compare_runs(fixed_run, partial, radius=0.25)


def test_only_radii_that_both_decide_are_compared(simulate):
    a, b = (
        simulate("a", AtRadii([0, 0.25], samples=1_000)),
        simulate("b", AtRadii([0.25, 0.5], samples=1_000), seed=1),
    )
    assert [d.radius for d in compare_runs(a, b).differences] == [0.25]
    with refused("undecided-radius", radius=0.5, radii="0.25"):
        compare_runs(a, b, radius=0.5)

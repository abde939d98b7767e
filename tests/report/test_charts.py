import numpy as np
import pytest

from smoothcert.noises import Translation
from smoothcert.plans import Price
from smoothcert.plans.expected import expected
from smoothcert.report import charts
from smoothcert.report.wording import outcomes
from smoothcert.runs.formats import read_results, write_results
from smoothcert.statistics.sample_map import SampleMap

BUILDERS = [
    charts.certified_accuracy,
    charts.trade_off,
    charts.radius_against_samples,
    charts.samples,
    charts.probabilities,
    charts.sample_maps,
]


def shown(chart):
    return [layer.series for layer in chart.layers]


def test_the_curve_is_the_certified_accuracy_with_its_band(iss_run):
    [line] = charts.certified_accuracy([iss_run]).layers
    band = iss_run.certified_accuracy_band(line.x)
    assert line.y.tolist() == iss_run.certified_accuracy(line.x).tolist()
    assert (line.low.tolist(), line.high.tolist()) == (band.low.tolist(), band.high.tolist())


def test_the_curve_claims_only_what_the_noise_certifies(iss_run, altered):
    moved = altered(iss_run, noise=Translation(2))
    words = "no circular shift by whole pixels that is shorter than r pixels can alter it"
    assert words in charts.certified_accuracy([moved]).caption


def test_the_curve_of_decided_radii_has_a_point_at_each_of_them(deciding_run, iss_run):
    chart = charts.certified_accuracy([deciding_run])
    [line] = chart.layers
    for radius in deciding_run.decided_radii:
        expected = np.mean(deciding_run.correct & (deciding_run.radius >= radius))
        assert line.y[line.x == radius].tolist() == [expected]
    assert chart.caption.endswith("The curve is known only at the radii that were asked for.")
    assert "asked for (deciding)." in charts.certified_accuracy([iss_run, deciding_run]).caption


def test_an_acr_over_chosen_radii_is_marked(deciding_run, iss_run):
    assert charts.trade_off([deciding_run]).caption.endswith(
        "ACR counts only the radii that were asked for."
    )
    assert "ACR counts" not in charts.trade_off([iss_run]).caption


def test_a_sample_map_is_what_the_plan_follows(iss_run):
    [line] = charts.sample_maps([iss_run]).layers
    psi = SampleMap(iss_run.noise, samples=10_000)
    assert line.y.tolist() == psi(line.x).tolist()
    assert "expectation" not in charts.sample_maps([iss_run]).caption


def test_every_adaptive_plan_has_a_sample_map(doubling_run, iss_run, fixed_run):
    chart = charts.sample_maps([doubling_run, fixed_run])
    [line] = chart.layers
    assert line.series == "doubling"
    assert (
        line.y.tolist() == expected(doubling_run.plan, doubling_run.noise, line.x).samples.tolist()
    )
    assert line.y[0] == pytest.approx(800, rel=0.01)
    assert line.y[-1] == 100
    words = "Where the number depends on chance, the curve shows its expectation."
    assert words in chart.caption


def test_the_histogram_counts_every_input(iss_run, fixed_run):
    for bars, run in zip(
        charts.samples([iss_run, fixed_run]).layers, (iss_run, fixed_run), strict=True
    ):
        assert round(bars.y.sum() * len(run)) == len(run)


def test_the_curve_of_p_counts_inputs_that_are_correct_above_it(iss_run, altered):
    [line] = charts.probabilities([iss_run]).layers
    by_hand = [np.mean(iss_run.correct & (iss_run.count > p * iss_run.counted)) for p in line.x]
    assert line.y.tolist() == by_hand
    assert np.all(line.low <= line.y)
    assert np.all(line.y <= line.high)
    [line] = charts.probabilities([altered(iss_run, label=np.full(len(iss_run), -1))]).layers
    assert line.y.tolist() == [np.mean(iss_run.count > p * iss_run.counted) for p in line.x]


def test_a_radius_is_never_drawn_larger_than_it_is(iss_run):
    [points] = charts.radius_against_samples([iss_run]).layers
    assert np.all(points.y <= iss_run.radius)
    assert points.outcome.tolist() == outcomes(iss_run).tolist()
    assert set(points.outcome) == {"correct", "wrong", "abstained"}


def test_inputs_with_known_labels_are_not_certified_instead_of_abstained(doubling_run):
    [points] = charts.radius_against_samples([doubling_run]).layers
    assert set(points.outcome) == {"correct", "not certified"}


def test_the_curve_ends_at_the_largest_radius_that_was_decided(deciding_run, iss_run):
    longer, shorter = charts.certified_accuracy([iss_run, deciding_run]).layers
    assert shorter.x.max() == max(deciding_run.decided_radii)
    assert longer.x.max() > shorter.x.max()


def test_a_single_run_has_no_chart_of_what_the_radius_costs(iss_run, fixed_run):
    assert "trade-off" not in [chart.id for chart in charts.charts([iss_run])]
    assert "trade-off" in [chart.id for chart in charts.charts([iss_run, fixed_run])]


def test_large_runs_are_thinned_out(iss_run, fixed_run, monkeypatch):
    full = charts.radius_against_samples([iss_run, fixed_run])
    monkeypatch.setattr(charts, "POINTS", 30)
    thin = charts.radius_against_samples([iss_run, fixed_run])
    assert [len(layer.x) for layer in full.layers] == [60, 60]
    assert [len(layer.x) for layer in thin.layers] == [15, 15]
    assert "15 inputs are shown" in thin.caption
    assert "are shown" not in full.caption


@pytest.mark.parametrize(
    "build", [charts.certified_accuracy, charts.trade_off, charts.radius_against_samples]
)
def test_an_axis_of_radii_names_the_norm(build, iss_run, l1_run, altered):
    def title(*runs):
        chart = build(runs)
        return (chart.x if build is charts.certified_accuracy else chart.y).title

    log = altered(iss_run, name="log", noise=None, plan=None, manifest=None)
    assert title(iss_run).endswith("(l2)")
    assert title(l1_run).endswith("(l1)")
    assert "(" not in title(log)
    assert title(iss_run, log).endswith("(l2 where known)")
    assert title(iss_run, l1_run).endswith("(l2 or l1)")
    assert "different norms, which cannot be compared." in build([iss_run, l1_run]).caption


@pytest.mark.parametrize("build", BUILDERS)
def test_runs_keep_their_colour_in_every_chart(build, iss_run, fixed_run):
    assert build([fixed_run, iss_run]).series == ("fixed", "iss")


@pytest.mark.parametrize("build", BUILDERS)
def test_nothing_to_show_is_a_chart_without_layers(build):
    assert build([]).layers == ()


def test_a_published_log_has_no_charts_of_samples(iss_run, tmp_path):
    write_results(iss_run, tmp_path / "log.tsv", "cohen")
    assert [chart.id for chart in charts.charts([read_results(tmp_path / "log.tsv")])] == [
        "certified-accuracy"
    ]


def test_what_needs_labels_is_not_shown_without_them(iss_run, fixed_run, altered):
    without = altered(iss_run, name="without", label=np.full(len(iss_run), -1))
    assert shown(charts.certified_accuracy([without, fixed_run])) == ["fixed"]
    assert shown(charts.trade_off([without, fixed_run])) == ["fixed"]
    left = [chart.id for chart in charts.charts([without])]
    assert left == ["probabilities", "radius-against-samples", "samples", "sample-map"]


def test_shares_of_votes_after_early_stopping_are_said_to_be_too_large_or_too_small(
    deciding_run, iss_run, altered
):
    words = "p is too large on average for certified inputs"
    assert words in charts.probabilities([deciding_run]).caption
    assert words not in charts.probabilities([iss_run]).caption
    priced = altered(iss_run, name="priced", plan=Price(10_000, price=1e-5))
    caption = charts.probabilities([deciding_run, priced]).caption
    assert f"{words} ({deciding_run.name})." in caption
    assert "p is too small on average for inputs with few samples (priced)." in caption

"""The chart of boundaries, and of inputs on their way to them."""

import json

import numpy as np
import pytest

from smoothcert.plans import AtRadii, Combined, Fixed
from smoothcert.report.chart import Axis, Chart, Line, Points
from smoothcert.report.charts import boundaries, charts
from smoothcert.report.vega import spec
from smoothcert.runs.formats import read_results, write_results


def parts(chart):
    """Boundaries by their labels, paths by their series, and the marks at the ends of paths."""
    lines = [layer for layer in chart.layers if isinstance(layer, Line)]
    limits = {line.label: line for line in lines if line.label}
    paths = {line.series: line for line in lines if not line.label}
    return limits, paths, [layer for layer in chart.layers if isinstance(layer, Points)]


def test_a_boundary_is_the_share_of_votes_that_proves_its_radius(radii_run):
    [chart] = boundaries([radii_run])
    limits, _, _ = parts(chart)
    assert list(limits) == ["radius 0", "radius 0.25", "radius 0.75"]
    tables = radii_run.plan.tables(radii_run.noise)
    for line, needed in zip(limits.values(), tables.needed, strict=True):
        possible = needed <= np.array(tables.looks)
        assert line.x.tolist() == np.array(tables.looks)[possible].tolist()
        assert line.y.tolist() == (needed / np.array(tables.looks))[possible].tolist()
    assert not np.all(tables.needed[2] <= tables.looks)  # at first, no votes prove the largest radius


def test_paths_are_the_votes_of_telling_inputs_at_each_look(radii_run):
    [chart] = boundaries([radii_run])
    _, paths, ends = parts(chart)
    examples = {name.partition(" (")[0]: int(name.partition("(")[2].rstrip(")")) for name in paths}
    assert {"fast proof", "close call", "given up"} <= set(examples)
    for (name, line), end in zip(paths.items(), ends, strict=True):
        looks = radii_run[int(name.partition("(")[2].rstrip(")"))].looks
        drawn = np.cumsum([look.samples for look in looks])
        assert line.x.tolist() == drawn.tolist()
        assert line.y.tolist() == (np.cumsum([look.votes.get(0, 0) for look in looks]) / drawn).tolist()
        assert (end.series, end.x.tolist(), end.y.tolist()) == (name, [line.x[-1]], [line.y[-1]])
    proved = radii_run.radius == 0.75
    assert radii_run[examples["fast proof"]].counted == radii_run.counted[proved].min()
    below_ceiling = proved & (radii_run.counted < 3_000)
    assert radii_run[examples["close call"]].counted == radii_run.counted[below_ceiling].max()
    assert radii_run[examples["given up"]].radius < 0.75
    assert radii_run[examples["given up"]].counted < 3_000


def test_an_input_at_the_ceiling_is_shown_as_such(on_disk):
    run = on_disk("short", AtRadii([0, 0.25, 0.5], samples=200, known_labels=True))
    [name] = [name for name in parts(boundaries([run])[0])[1] if name.startswith("at the ceiling")]
    assert run[int(name.partition("(")[2].rstrip(")"))].counted == 200


def test_a_pilot_and_the_draws_of_other_plans_are_no_part_of_a_path(on_disk):
    plan = AtRadii([0, 0.25, 0.5], samples=1_000)
    alone, first, second = (
        on_disk(f"run-{i}", p, inputs=20)
        for i, p in enumerate((plan, Combined((plan, Fixed(500))), Combined((Fixed(500), plan))))
    )
    [chart], [same] = boundaries([alone]), boundaries([first])
    assert parts(chart)[1].keys() == parts(same)[1].keys()
    for line, other in zip(parts(chart)[1].values(), parts(same)[1].values(), strict=True):
        assert line.x[0] == 60
        assert (line.x.tolist(), line.y.tolist()) == (other.x.tolist(), other.y.tolist())
    assert boundaries([second]) == []  # its certificates are those of fixed sampling


def test_an_export_has_boundaries_alone(radii_run, tmp_path):
    write_results(radii_run, tmp_path / "radii.json", "json")
    [chart] = boundaries([read_results(tmp_path / "radii.json")])
    limits, paths, ends = parts(chart)
    assert (len(limits), paths, ends) == (3, {}, [])
    assert "Coloured" not in chart.caption
    json.dumps(spec(chart), allow_nan=False)


def test_only_sequential_plans_have_the_chart_one_for_each_run(radii_run, iss_run, fixed_run, altered):
    assert boundaries([iss_run, fixed_run]) == []
    assert [chart.id for chart in charts([iss_run, radii_run])][-1] == "boundaries"
    made = boundaries([radii_run, iss_run, altered(radii_run, name="again")])
    assert [chart.id for chart in made] == ["boundaries-1", "boundaries-2"]
    assert [chart.title.partition(": ")[2] for chart in made] == ["radii", "again"]


def test_of_many_boundaries_some_are_shown(altered, radii_run):
    many = altered(radii_run, plan=AtRadii(np.arange(12) / 20, samples=3_000, known_labels=True))
    [chart] = boundaries([many])
    limits, _, _ = parts(chart)
    assert next(iter(limits)) == "radius 0"
    assert list(limits)[-1] == "radius 0.55"
    assert f"Of 12 boundaries, {len(limits)} are shown." in chart.caption


@pytest.mark.parametrize("power", [1.0, 5.0])
def test_labels_stand_beside_their_lines_and_not_on_each_other(power):
    x = np.array([1.0, 2.0])
    ends = (0.5, 0.99, 1.0, 0.995)
    lines = tuple(Line("", x, np.array([1.0, end]), label=f"to {end}") for end in ends)
    chart = Chart("ends", "Ends", (), Axis("x"), Axis("y", "percent", zero=False, power=power), lines)
    places = chart.label_places()
    assert [line.label for line, _ in places] == ["to 1.0", "to 0.995", "to 0.99", "to 0.5"]
    heights = np.array([place for _, place in places])
    assert heights[0] == 1.0
    assert heights[3] == pytest.approx(0.5)
    assert np.all(-np.diff(heights**power) >= 0.06 * (1 - 0.5**power))


def test_ticks_of_a_scale_with_a_power_are_apart():
    ticks = np.array(Axis("share", "percent", power=6.0).ticks(0.5, 1.0))
    assert ticks[0] == 1
    assert np.all(np.diff(ticks) < 0)
    assert np.all(-np.diff(ticks**6) >= 0.08 * (1 - 0.5**6))
    assert len(ticks) >= 5


def test_boundaries_are_grey_and_named(radii_run):
    [chart] = boundaries([radii_run])
    made = spec(chart)
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert made["encoding"]["color"]["condition"] == {"test": "datum.label", "value": "var(--soft)"}
    assert made["encoding"]["color"]["legend"] == {"values": list(chart.series)}
    rows = made["layer"][0]["data"]["values"]
    assert {row["run"] for row in rows if row.get("label")} == {"radius 0", "radius 0.25", "radius 0.75"}
    assert {row["run"] for row in rows if not row.get("label")} == set(chart.series)
    assert {row["text"] for row in made["layer"][-1]["data"]["values"]} == {"radius 0", "radius 0.25", "radius 0.75"}

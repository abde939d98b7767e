import json

import numpy as np

from smoothcert.report.chart import Axis, Chart, Line
from smoothcert.report.charts import certified_accuracy, charts, radius_against_samples
from smoothcert.report.vega import spec


def test_a_specification_is_plain_json_with_every_mark(iss_run, fixed_run):
    for chart in charts([iss_run, fixed_run]):
        made = spec(chart)
        assert json.loads(json.dumps(made, allow_nan=False)) == made
        assert made["description"] == f"{chart.title}. {chart.caption}"
        rows = [row for group in made["layer"] for row in group["data"]["values"]]
        assert {row["run"] for row in rows} == {layer.series for layer in chart.layers}


def test_a_value_that_is_drawn_is_not_written_twice(iss_run):
    [group] = spec(radius_against_samples([iss_run]))["layer"]
    assert set(group["data"]["values"][0]) == {"run", "x", "y", "outcome", "input", "p"}
    tooltip = group["layer"][0]["encoding"]["tooltip"]["value"]["expr"]
    assert '"samples spent": (datum.datum || datum)["x"] == null' in tooltip
    assert '"outcome": (datum.datum || datum)["outcome"]' in tooltip


def test_a_shape_means_the_same_outcome_in_every_page(iss_run, doubling_run):
    [group] = spec(radius_against_samples([iss_run, doubling_run]))["layer"]
    scale = group["layer"][0]["encoding"]["shape"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == {
        "correct": "circle",
        "wrong": "cross",
        "abstained": "diamond",
        "not certified": "triangle-up",
    }


def test_a_legend_is_only_there_where_runs_have_to_be_told_apart(iss_run, fixed_run):
    assert spec(certified_accuracy([iss_run]))["encoding"]["color"]["legend"] is None
    assert spec(certified_accuracy([iss_run, fixed_run]))["encoding"]["color"]["legend"] == {
        "values": ["iss", "fixed"]
    }


def test_several_lines_of_one_run_stay_separate():
    x = np.array([0.0, 1.0])
    lines = tuple(Line("run", x, y) for y in (x, 2 * x))
    [group] = spec(Chart("paths", "Paths", ("run",), Axis("samples"), Axis("votes"), lines))[
        "layer"
    ]
    assert [row["line"] for row in group["data"]["values"]] == [0, 0, 1, 1]
    assert group["layer"][0]["encoding"]["detail"] == {"field": "line"}

"""Charts as Vega-Lite specifications for the page and for figures, in the looks of `styles.json`.

Colours of the page are variables of its style sheet, so that dark mode and print need no second
drawing. Those of figures are the ones of Okabe and Ito, which readers with any kind of colour
vision can distinguish, in an order that also prints well in grey.

We write the specifications as dictionaries. With Altair, the same functions have 10% more tokens
and need its packages as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any, Literal

import numpy as np

from smoothcert.report.chart import OUTCOMES, Axis, Bars, Chart, Layer, Line, Points, Values

Spec = dict[str, Any]

STYLES: dict[Literal["page", "paper"], Spec] = json.loads(
    files(__package__).joinpath("styles.json").read_text()
)
"""The configurations of Vega-Lite for the page and for a paper."""

_SHAPES = dict(zip(OUTCOMES, ("circle", "cross", "diamond", "triangle-up", "square"), strict=True))
_DASHES = ([1, 0], [5, 2], [5, 2, 1, 2], [1, 2])
_LEGEND_LETTERS = 62
"""Letters that fit beside each other in a printed legend."""
_SYMBOL_LETTERS = 7
"""How many letters a symbol of a legend takes the room of."""
_TICKS_OF_POWER = [0, 0.5, 0.8, 0.9, 0.95, 1]
_TICKS_OF_LOG = [digit * 10**exponent for exponent in range(10) for digit in (1, 2, 5)]
_FORMATS = {"number": ".4f", "percent": ".1%", "count": ",.0f"}
_TICK_LABELS: dict[str, Spec] = {
    "number": {},
    "percent": {"format": "%"},
    # As a format for all ticks, "~s" would write 0k and 0.5k.
    "count": {"labelExpr": "format(datum.value, '~s')"},
}


def spec(chart: Chart, *, printed: bool = False) -> Spec:
    """A chart as a Vega-Lite specification, one colour per run.

    Args:
        chart: The chart.
        printed: Whether lines also differ in their dashes, as for print in grey. Nothing reacts to
            a pointer then.
    """
    return {
        "description": f"{chart.title}. {chart.caption}",
        "width": "container",
        "height": 260,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "encoding": {"color": _colour(chart, printed)},
        "layer": list(_layers(chart, printed)),
    }


def _layers(chart: Chart, printed: bool) -> Iterator[Spec]:
    """Bars below lines, and lines below points. Layers of the same kind share their data."""
    bars = [layer for layer in chart.layers if isinstance(layer, Bars)]
    if bars:
        yield _bars(bars, chart)
    lines = [layer for layer in chart.layers if isinstance(layer, Line)]
    if lines:
        yield _lines(lines, chart, printed)
    points = [layer for layer in chart.layers if isinstance(layer, Points)]
    for hollow in (False, True):
        marks = [layer for layer in points if layer.hollow is hollow]
        if marks:
            yield _points(marks, chart)


def _colour(chart: Chart, printed: bool) -> Spec:
    """The colour of each run. There is a legend only if the chart shows several runs."""
    drawn = {layer.series for layer in chart.layers}
    names = [name for name in chart.series if name in drawn]
    legend: Spec | None = None
    if len(names) > 1:
        legend = {"values": names}
        if printed:
            longest = max(map(len, names))
            legend["columns"] = max(1, _LEGEND_LETTERS // (_SYMBOL_LETTERS + longest))
            if any(isinstance(layer, Line) for layer in chart.layers):  # the dashes are shown
                legend |= {"symbolType": "stroke", "symbolSize": 250}
    return {
        "field": "run",
        "type": "nominal",
        "scale": {"domain": list(chart.series)},
        "legend": legend,
    }


def _lines(lines: Sequence[Line], chart: Chart, printed: bool) -> Spec:
    rows = [row | {"line": number} for number, line in enumerate(lines) for row in _rows(line)]
    # Lines of one run must not be joined.
    encoding = _axes(chart) | {"detail": {"field": "line"}}
    curve = {"interpolate": "step-before" if lines[0].step else "linear"}
    layers: list[Spec] = []
    if any(line.low is not None for line in lines):
        layers.append({"mark": {"type": "area"} | curve, "encoding": encoding | _band(chart)})
    if printed:
        dashes = [_DASHES[i % len(_DASHES)] for i in range(len(chart.series))]
        scale = {"domain": list(chart.series), "range": dashes}
        encoding["strokeDash"] = {"field": "run", "scale": scale}
    layers.append({"mark": {"type": "line"} | curve, "encoding": encoding})
    if not printed:
        layers.append(_hover_points(lines[0], chart))
    return {"data": {"values": rows}, "layer": layers}


def _points(points: Sequence[Points], chart: Chart) -> Spec:
    rows = [row for layer in points for row in _rows(layer)]
    axes = _axes(chart, padding=8, nice=False)  # with padding, no mark is cut off
    encoding = axes | {"tooltip": _tooltip(points[0], chart)}
    mark = {"type": "point", "filled": not points[0].hollow}
    layers: list[Spec] = []
    if any(layer.low is not None for layer in points):
        layers.append({"mark": "rule", "encoding": axes | _band(chart)})
    if points[0].outcome is not None:
        mark = {"type": "point", "style": "outcome"}
        encoding["shape"] = _shape(rows)
    layers.append({"mark": mark, "encoding": encoding})
    return {"data": {"values": rows}, "layer": layers}


def _bars(bars: Sequence[Bars], chart: Chart) -> Spec:
    x = {
        "field": "x",
        "type": "ordinal",
        "title": chart.x.title,
        "sort": None,
        "axis": {"labelAngle": 0},
        "scale": {"paddingInner": 0.01, "paddingOuter": 0},
    }
    band = _band(chart)
    band["y"]["scale"] = {"domain": [0, 1]}
    rows = [row for layer in bars for row in _rows(layer)]
    encoding = {"x": x, "tooltip": _tooltip(bars[0], chart)} | band
    return {"data": {"values": rows}, "mark": "bar", "encoding": encoding}


def _band(chart: Chart) -> Spec:
    return {"y": _axis("y", chart) | {"field": "low"}, "y2": {"field": "high"}}


def _shape(rows: Sequence[Spec]) -> Spec:
    """The shape of each outcome that occurs."""
    occurring = {row["outcome"] for row in rows}
    shapes = {outcome: shape for outcome, shape in _SHAPES.items() if outcome in occurring}
    return {
        "field": "outcome",
        "scale": {"domain": list(shapes), "range": list(shapes.values())},
        "legend": {"orient": "bottom"},
    }


def _hover_points(line: Line, chart: Chart) -> Spec:
    """Points that are visible, with their values, only under the pointer."""
    select = {"type": "point", "on": "pointerover", "nearest": True, "clear": "pointerout"}
    selected = {"param": "hover", "empty": False, "value": 1}
    opacity = {"condition": selected, "value": 0}
    return {
        "params": [{"name": "hover", "select": select}],
        "mark": {"type": "point", "filled": True, "size": 70},
        "encoding": _axes(chart) | {"opacity": opacity, "tooltip": _tooltip(line, chart)},
    }


def _axes(chart: Chart, **scale: Any) -> Spec:
    return {"x": _axis("x", chart, **scale), "y": _axis("y", chart)}


def _axis(field: Literal["x", "y"], chart: Chart, **scale: Any) -> Spec:
    axis: Axis = getattr(chart, field)
    options = dict(_TICK_LABELS[axis.kind])
    if not axis.zero:
        scale["zero"] = False
    if axis.power != 1:
        options["values"] = _TICKS_OF_POWER
        scale |= {"type": "pow", "exponent": axis.power, "nice": False}
    elif axis.log:
        options["values"] = _TICKS_OF_LOG
        scale |= {"type": "log", "nice": False}
    return {
        "field": field,
        "type": "quantitative",
        "title": axis.title,
        "axis": options,
        "scale": scale,
    }


def _rows(layer: Layer) -> Iterator[Spec]:
    """One row per mark, with everything that is drawn or shown."""
    drawn = {name: values for name, values in vars(layer).items() if isinstance(values, np.ndarray)}
    fields = {name: _plain(values) for name, values in (drawn | dict(layer.columns)).items()}
    for values in zip(*fields.values(), strict=True):
        yield {"run": layer.series} | dict(zip(fields, values, strict=True))


def _tooltip(layer: Layer, chart: Chart) -> Spec:
    """The values under the pointer, as an expression.

    For the nearest point, Vega-Lite gives every point a cell that holds the point's row as "datum".
    Its own tooltips do not find texts there, and show 0 for a missing number.
    """
    y_format = _FORMATS[chart.y.kind]
    shown = {"run": ("run", "")}
    shown[_without_norm(chart.x.title)] = ("x", _FORMATS[chart.x.kind])
    shown[_without_norm(chart.y.title)] = ("y", y_format)
    if layer.low is not None:
        shown |= {"band from": ("low", y_format), "to": ("high", y_format)}
    for title, values in layer.columns.items():
        shown[title] = (title, ".4f" if values.dtype.kind == "f" else "")
    entries = []
    for title, (field, format) in shown.items():
        value = f"(datum.datum || datum)[{json.dumps(field)}]"
        if format:
            value = f"{value} == null ? '-' : format({value}, '{format}')"
        entries.append(f"{json.dumps(title)}: {value}")
    return {"value": {"expr": f"{{{', '.join(entries)}}}"}}


def _without_norm(title: str) -> str:
    return title.partition(" (")[0]


def _plain(values: Values) -> list[Any]:
    """Plain numbers, short enough for a page. A number that is not finite becomes null."""
    if values.dtype.kind != "f":
        plain: list[Any] = values.tolist()
        return plain
    return [round(value, 5) if np.isfinite(value) else None for value in values.tolist()]

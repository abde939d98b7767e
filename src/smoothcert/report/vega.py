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
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

import numpy as np

from smoothcert.report.chart import OUTCOMES, Axis, Bars, Chart, Layer, Line, Points, Values

Spec = dict[str, Any]

SERIES = 6
"""Colours of the style sheet; they repeat for more runs than that."""

_SHAPES = dict(zip(OUTCOMES, ("circle", "cross", "diamond", "triangle-up", "square"), strict=True))
_DASHES = ([1, 0], [5, 2], [5, 2, 1, 2], [1, 2])
_LETTER_WIDTH = 0.45  # of its height, on average
_SYMBOL_WIDTH = 25  # points, in print
_LEGEND_WIDTH = 225  # points, in print
_TICKS_OF_POWER = [0, 0.5, 0.8, 0.9, 0.95, 1]
_TICKS_OF_LOG = [digit * 10**exponent for exponent in range(10) for digit in (1, 2, 5)]
_LABEL_GAP = 0.065  # the least distance between two labels
_FORMATS = {"number": ".4f", "percent": ".1%", "count": ",.0f"}
_TICK_LABELS: dict[str, Spec] = {
    "number": {},
    "percent": {"format": "%"},
    # As a format for all ticks, "~s" would write 0k and 0.5k.
    "count": {"labelExpr": "format(datum.value, '~s')"},
}


@dataclass(frozen=True)
class Style:
    """How charts look.

    Args:
        config: The configuration of Vega-Lite: fonts, colours, widths of lines.
        grey: The colour of lines that belong to no run.
        text: The size of text.
        mark: The area of a mark.
        printed: Whether lines also differ in their dashes, as for print in grey. Nothing reacts to
            a pointer then.
    """

    config: Spec
    grey: str
    text: float
    mark: float
    printed: bool = False


_STYLES = json.loads(files(__package__).joinpath("styles.json").read_text())
PAGE = Style(**_STYLES["page"])
PAPER = Style(**_STYLES["paper"])


def spec(chart: Chart, style: Style = PAGE) -> Spec:
    """A chart as a Vega-Lite specification, one colour per run."""
    drawn: Spec = {
        "description": f"{chart.title}. {chart.caption}",
        "width": "container",
        "height": 260,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "encoding": {"color": _colour(chart, style)},
        "layer": list(_layers(chart, style)),
    }
    places = label_places(chart)
    if places:
        drawn["layer"].append(_labels(places, chart, style))
        longest = max(len(line.label) for line, _ in places)
        room = 8 + _LETTER_WIDTH * style.text * longest
        drawn["padding"] = {"left": 5, "top": 5, "bottom": 5, "right": room}
    return drawn


def _layers(chart: Chart, style: Style) -> Iterator[Spec]:
    """Bars below lines, and lines below points. Layers of the same kind share their data."""
    bars = [layer for layer in chart.layers if isinstance(layer, Bars)]
    if bars:
        yield _bars(bars, chart)
    lines = [layer for layer in chart.layers if isinstance(layer, Line)]
    points = [layer for layer in chart.layers if isinstance(layer, Points)]
    for step in (False, True):
        alike = [line for line in lines if line.step is step]
        if alike:
            yield _lines(alike, chart, style)
    for hollow in (False, True):
        marks = [layer for layer in points if layer.hollow is hollow]
        if marks:
            yield _points(marks, chart, style)


def _colour(chart: Chart, style: Style) -> Spec:
    """The colour of each run. There is a legend only if the chart shows several runs."""
    drawn = {layer.series for layer in chart.layers}
    names = [name for name in chart.series if name in drawn]
    return {
        "field": "run",
        "type": "nominal",
        "scale": {"domain": list(chart.series)},
        "legend": _legend(names, chart, style) if len(names) > 1 else None,
        "condition": {"test": "datum.label", "value": style.grey},
    }


def _legend(names: Sequence[str], chart: Chart, style: Style) -> Spec:
    """The names of runs; in print, in as many columns as fit, and with the dashes of lines."""
    legend: Spec = {"values": names}
    if not style.printed:
        return legend
    widths = [_SYMBOL_WIDTH + _LETTER_WIDTH * style.text * len(name) for name in names]
    legend["columns"] = max(1, int(_LEGEND_WIDTH / max(widths)))
    if any(isinstance(layer, Line) and layer.series for layer in chart.layers):
        legend |= {"symbolType": "stroke", "symbolSize": 250}
    return legend


def _lines(lines: Sequence[Line], chart: Chart, style: Style) -> Spec:
    rows = []
    for number, line in enumerate(lines):
        label = {"run": line.label, "label": True} if line.label else {}
        rows += [row | label | {"line": number} for row in _rows(line)]
    of_runs = any(line.series for line in lines)
    # Lines of one run must not be joined.
    encoding = _axes(chart) | {"detail": {"field": "line"}}
    curve = {"interpolate": "step-before" if lines[0].step else "linear"}
    layers: list[Spec] = []
    if any(line.low is not None for line in lines):
        area = {"type": "area", "opacity": 0.15} | curve
        layers.append({"mark": area, "encoding": encoding | _band(chart)})
    if style.printed:
        encoding["strokeDash"] = _dash(chart)
    layers.append({"mark": {"type": "line"} | curve, "encoding": encoding})
    if of_runs and not style.printed:
        layers.append(_hover_points(lines[0], chart))
    return {"data": {"values": rows}, "layer": layers}


def _points(points: Sequence[Points], chart: Chart, style: Style) -> Spec:
    rows = [row for layer in points for row in _rows(layer)]
    axes = _axes(chart, padding=8, nice=False)  # with padding, no mark is cut off
    encoding = axes | {"tooltip": _tooltip(points[0], chart)}
    mark: Spec = {"type": "point", "filled": not points[0].hollow, "size": style.mark, "opacity": 1}
    layers: list[Spec] = []
    if any(layer.low is not None for layer in points):
        layers.append({"mark": {"type": "rule", "opacity": 0.4}, "encoding": axes | _band(chart)})
    if points[0].outcome is not None:
        mark = {"type": "point", "size": style.mark / 4, "opacity": 0.6}
        encoding["shape"] = _shape(rows, style)
    layers.append({"mark": mark, "encoding": encoding})
    return {"data": {"values": rows}, "layer": layers}


def _bars(bars: Sequence[Bars], chart: Chart) -> Spec:
    x = {"field": "x", "type": "ordinal", "title": chart.x.title, "sort": None}
    place = {"axis": {"labelAngle": 0}, "scale": {"paddingInner": 0.01, "paddingOuter": 0}}
    y = _axis("y", chart) | {"field": "low", "scale": {"domain": [0, 1]}}
    shown = {"x": x | place, "y": y, "y2": {"field": "high"}, "tooltip": _tooltip(bars[0], chart)}
    rows = [row for layer in bars for row in _rows(layer)]
    return {"data": {"values": rows}, "mark": {"type": "bar"}, "encoding": shown}


def _band(chart: Chart) -> Spec:
    return {"y": _axis("y", chart) | {"field": "low"}, "y2": {"field": "high"}}


def _shape(rows: Sequence[Spec], style: Style) -> Spec:
    """The shape of each outcome that occurs."""
    occurring = {row["outcome"] for row in rows}
    shapes = {outcome: shape for outcome, shape in _SHAPES.items() if outcome in occurring}
    return {
        "field": "outcome",
        "scale": {"domain": list(shapes), "range": list(shapes.values())},
        "legend": {"orient": "bottom", "columns": 4 if style.printed else 2},
    }


def label_places(chart: Chart) -> list[tuple[Line, float]]:
    """Lines with a label, and the height at which it is written.

    That is beside the end of the line, or lower, so that no label is written over another.
    """
    low, high = chart.extent("y")
    named = [layer for layer in chart.layers if isinstance(layer, Line) and layer.label]
    highest = np.inf
    places = []
    for line in sorted(named, key=lambda line: -float(line.y[-1])):
        place = min(float(line.y[-1]), highest)
        places.append((line, place))
        highest = place - _LABEL_GAP * (high - low)
    return places


def _labels(places: Sequence[tuple[Line, float]], chart: Chart, style: Style) -> Spec:
    """The names of lines, to the right of their ends."""
    rows = [
        {"x": _plain(line.x)[-1], "y": round(place, 5), "text": line.label}
        for line, place in places
    ]
    return {
        "data": {"values": rows},
        "mark": {"type": "text", "align": "left", "dx": 6},
        "encoding": _axes(chart) | {"text": {"field": "text"}, "color": {"value": style.grey}},
    }


def _dash(chart: Chart) -> Spec:
    dashes = [_DASHES[i % len(_DASHES)] for i in range(len(chart.series))]
    return {
        "field": "run",
        "scale": {"domain": list(chart.series), "range": dashes},
        "condition": {"test": "datum.label", "value": _DASHES[0]},
    }


def _hover_points(line: Line, chart: Chart) -> Spec:
    """Points that are visible, with their values, only under the pointer."""
    name = "hover_step" if line.step else "hover"
    select = {"type": "point", "on": "pointerover", "nearest": True, "clear": "pointerout"}
    selected = {"param": name, "empty": False, "value": 1}
    opacity = {"condition": selected, "value": 0}
    return {
        "params": [{"name": name, "select": select}],
        "mark": {"type": "point", "filled": True, "size": 70},
        "encoding": _axes(chart) | {"opacity": opacity, "tooltip": _tooltip(line, chart)},
    }


def _axes(chart: Chart, **x_scale: Any) -> Spec:
    return {"x": _axis("x", chart, **x_scale), "y": _axis("y", chart)}


def _axis(field: Literal["x", "y"], chart: Chart, **scale: Any) -> Spec:
    axis: Axis = getattr(chart, field)
    options: Spec = {"tickCount": 6} | _TICK_LABELS[axis.kind]
    if axis.power != 1:
        options["values"] = _TICKS_OF_POWER
        scale |= {"type": "pow", "exponent": axis.power, "zero": axis.zero, "nice": False}
    elif axis.log:
        options["values"] = _TICKS_OF_LOG
        scale |= {"type": "log", "nice": False}
        options["labelSeparation"] = 6
    elif not axis.zero:
        scale["zero"] = False
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
    x_title = chart.x.title.partition(" (")[0]  # without norm and scale
    y_title = chart.y.title.partition(" (")[0]
    y_format = _FORMATS[chart.y.kind]
    fields = {
        "run": ("run", ""),
        x_title: ("x", _FORMATS[chart.x.kind]),
        y_title: ("y", y_format),
    }
    if layer.low is not None:
        fields |= {"band from": ("low", y_format), "to": ("high", y_format)}
    for title, values in layer.columns.items():
        fields[title] = (title, ".4f" if values.dtype.kind == "f" else "")
    entries = []
    for title, (name, format) in fields.items():
        value = f"(datum.datum || datum)[{json.dumps(name)}]"
        if format:
            value = f"{value} == null ? '-' : format({value}, {json.dumps(format)})"
        entries.append(f"{json.dumps(title)}: {value}")
    return {"value": {"expr": f"{{{', '.join(entries)}}}"}}


def _plain(values: Values) -> list[Any]:
    """Plain numbers, short enough for a page. A number that is not finite becomes null."""
    if values.dtype.kind != "f":
        plain: list[Any] = values.tolist()
        return plain
    return [round(value, 5) if np.isfinite(value) else None for value in values.tolist()]

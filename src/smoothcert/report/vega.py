"""What a chart is, and charts as Vega-Lite specifications for the page and for figures. `charts` computes the numbers.

`styles.json` says how they look.

Colours of the page are variables of its style sheet, so that dark mode and print need no second drawing. Those of
figures are the ones of Okabe and Ito, which can be told apart with every kind of colour vision, in an order that also
prints well in grey.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Spec = dict[str, Any]
Values: TypeAlias = NDArray[Any]

OUTCOMES = ("correct", "wrong", "abstained", "not certified", "no label")
"""What can become of an input. Each outcome has its own shape in charts."""

SERIES = 6
"""Colours of the style sheet; they repeat for more runs than that."""

_SHAPES = dict(zip(OUTCOMES, ("circle", "cross", "diamond", "triangle-up", "square"), strict=True))
_DASHES = ([1, 0], [5, 2], [5, 2, 1, 2], [1, 2])
_LETTER_WIDTH = 0.45  # of its height, on average
_SYMBOL_WIDTH, _LEGEND_WIDTH = 25, 225  # points, in print
_ROUND_SHARES = (1, 0.99, 0.98, 0.97, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0)
_TICK_GAP = 0.08  # the least distance between two ticks, as a share of the length of an axis
_LABEL_GAP = 0.065  # that between two labels
_FORMATS = {"number": ".4f", "percent": ".1%", "count": ",.0f"}
_TICKS: dict[str, Spec] = {
    "number": {},
    "percent": {"format": "%"},
    "count": {
        "labelExpr": "format(datum.value, '~s')"
    },  # as a format for all ticks, it would write 0k and 0.5k
}


@dataclass(frozen=True)
class Axis:
    """One axis.

    Args:
        title: What it shows.
        kind: How its numbers are written: as they are, as percentages, or as counts ("5k").
        log: Whether the scale is logarithmic.
        zero: Whether the scale includes 0.
        power: A value stands where this power of it would: a power above 1 spreads out shares near 1.
    """

    title: str
    kind: Literal["number", "percent", "count"] = "number"
    log: bool = False
    zero: bool = True
    power: float = 1.0


@dataclass(frozen=True, eq=False)
class Layer:
    """What is drawn about one run.

    Args:
        series: The run. Several layers may belong to one run.
        x: Positions.
        y: The values there.
        low: The lower ends of a band around the values.
        high: The upper ends of this band.
        columns: What a reader sees when pointing at a value, besides its position: one array for each title.
    """

    series: str
    x: Values
    y: Values
    low: Values | None = None
    high: Values | None = None
    columns: Mapping[str, Values] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Line(Layer):
    """A curve, with its band as an area.

    Args:
        step: Whether each value holds from the previous x on. A decreasing curve then never shows too much.
        label: The name of a line that belongs to no run, such as a boundary; `series` is empty then. The line is grey
            and has its name beside its right end.
    """

    step: bool = False
    label: str = ""


def histogram(series: str, edges: Values, y: Values) -> Line:
    """A histogram as a curve with steps: the heights `y` of bins between `edges`."""
    return Line(series, np.append(edges, edges[-1]), np.concatenate([[0.0], y, [0.0]]), step=True)


@dataclass(frozen=True, eq=False)
class Points(Layer):
    """Marks, with their bands as vertical lines.

    Args:
        outcome: The outcome of each, one of `OUTCOMES`, which decides its shape; None for marks that are no inputs.
        inputs: How many inputs each stands for, which decides its size; None for one each.
        hollow: Whether only their outlines are drawn, to tell them from other marks of the same run.
    """

    outcome: Values | None = None
    inputs: Values | None = None
    hollow: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart and the text around it.

    Args:
        id: Its name in the page and the name of its file.
        title: Its heading.
        series: The runs in the order of their colours, also those that this chart does not show.
        x: The horizontal axis.
        y: The vertical axis.
        layers: What is drawn; empty if the runs have no numbers for this chart.
        caption: The sentences below it.
    """

    id: str
    title: str
    series: tuple[str, ...]
    x: Axis
    y: Axis
    layers: tuple[Layer, ...]
    caption: str = ""


@dataclass(frozen=True)
class Style:
    """How charts look.

    Args:
        config: The configuration of Vega-Lite: fonts, colours, widths of lines.
        grey: The colour of lines that belong to no run.
        text: The size of text.
        mark: The area of a mark.
        printed: Whether lines differ in their dashes, too, as for print in grey. Nothing reacts to a pointer then.
    """

    config: Spec
    grey: str
    text: float
    mark: float
    printed: bool = False


PAGE, PAPER = (
    Style(**style)
    for style in json.loads(files(__package__).joinpath("styles.json").read_text()).values()
)


def spec(chart: Chart, style: Style = PAGE) -> Spec:
    """A chart as a Vega-Lite specification, one colour per run. It has a legend only if it shows several runs."""
    present = [name for name in chart.series if any(layer.series == name for layer in chart.layers)]
    by_run: Spec = {
        "field": "run",
        "type": "nominal",
        "scale": {"domain": list(chart.series)},
        "legend": _legend(present, chart, style) if len(present) > 1 else None,
    }
    layers = []
    for step in (False, True):
        if lines := [
            layer for layer in chart.layers if isinstance(layer, Line) and layer.step is step
        ]:
            layers.append(_lines(lines, chart, style))
    for hollow in (False, True):
        if points := [
            layer for layer in chart.layers if isinstance(layer, Points) and layer.hollow is hollow
        ]:
            layers.append(_points(points, chart, style))
    labelled: Spec = {}
    if labels := label_places(chart):
        layers.append(_labels(labels, chart, style))
        by_run["condition"] = {"test": "datum.label", "value": style.grey}
        room = 8 + _LETTER_WIDTH * style.text * max(len(line.label) for line, _ in labels)
        labelled["padding"] = {"left": 5, "top": 5, "bottom": 5, "right": room}
    return {
        **labelled,
        "description": f"{chart.title}. {chart.caption}",
        "width": "container",
        "height": 260,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "encoding": {"color": by_run},
        "layer": layers,
    }


def _legend(names: Sequence[str], chart: Chart, style: Style) -> Spec:
    """The names of runs; in print, in as many columns as there is room for, and with the dashes of their lines."""
    if not style.printed:
        return {"values": names}
    widths = [_SYMBOL_WIDTH + _LETTER_WIDTH * style.text * len(name) for name in names]
    columns = (
        len(names) if sum(widths) < _LEGEND_WIDTH else max(1, int(_LEGEND_WIDTH / max(widths)))
    )
    lines = any(isinstance(layer, Line) and not layer.label for layer in chart.layers)
    return {"values": names, "columns": columns} | (
        {"symbolType": "stroke", "symbolSize": 250} if lines else {}
    )


def _lines(lines: Sequence[Line], chart: Chart, style: Style) -> Spec:
    several = len(lines) > len(
        {line.series for line in lines}
    )  # lines of one run, which must not be joined
    rows = [
        row
        | ({"line": i} if several else {})
        | ({"run": line.label, "label": True} if line.label else {})
        for i, line in enumerate(lines)
        for row in _rows(line)
    ]
    x, y = _axis("x", chart), _axis("y", chart)
    curve = {"interpolate": "step-before" if lines[0].step else "linear"}
    each = {"x": x} | ({"detail": {"field": "line"}} if several else {})
    dash = (
        {"strokeDash": _dash(chart)} if style.printed and any(line.series for line in lines) else {}
    )
    layers: list[Spec] = [{"mark": {"type": "line"} | curve, "encoding": each | {"y": y} | dash}]
    if any(line.low is not None for line in lines):
        band = each | {"y": y | {"field": "low"}, "y2": {"field": "high"}}
        layers.insert(0, {"mark": {"type": "area", "opacity": 0.15} | curve, "encoding": band})
    if any(line.series for line in lines) and not style.printed:
        layers.append(_hover_points(x, y, lines[0], chart))
    return {"data": {"values": rows}, "layer": layers}


def _points(points: Sequence[Points], chart: Chart, style: Style) -> Spec:
    rows = [row for layer in points for row in _rows(layer)]
    x, y = (
        _axis("x", chart, padding=8, nice=False),
        _axis("y", chart),
    )  # with room, so that no mark is cut off
    encoding: Spec = {"x": x, "y": y, "tooltip": _tooltip(points[0], chart)}
    mark: Spec = {"type": "point", "filled": not points[0].hollow, "size": style.mark, "opacity": 1}
    present = [
        outcome for outcome in OUTCOMES if any(row.get("outcome") == outcome for row in rows)
    ]
    if present:
        small = style.mark / 4
        mark = {"type": "point", "size": small, "opacity": 0.6}
        if any(layer.inputs is not None for layer in points):
            rows = [{"inputs": 1} | row for row in rows]
            largest = max(row["inputs"] for row in rows)
            sizes = {
                "domain": [1, max(largest, 2)],
                "range": [small, small if largest == 1 else 25 * small],
            }
            encoding["size"] = {
                "field": "inputs",
                "type": "quantitative",
                "scale": sizes,
                "legend": None,
            }
        encoding["shape"] = {
            "field": "outcome",
            "scale": {"domain": present, "range": [_SHAPES[outcome] for outcome in present]},
            "legend": {"orient": "bottom", "columns": 4 if style.printed else 2},
        }
    layers: list[Spec] = [{"mark": mark, "encoding": encoding}]
    if any(layer.low is not None for layer in points):
        ends = {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}}
        layers.insert(0, {"mark": {"type": "rule", "opacity": 0.4}, "encoding": ends})
    return {"data": {"values": rows}, "layer": layers}


def label_places(chart: Chart) -> list[tuple[Line, float]]:
    """Lines with a label, and the height at which it is written: beside the end of the line, none over another."""
    low, high = _extent(chart, "y")
    named = [layer for layer in chart.layers if isinstance(layer, Line) and layer.label]
    highest, places = np.inf, []
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
    encoding = {
        "x": _axis("x", chart),
        "y": _axis("y", chart),
        "text": {"field": "text"},
        "color": {"value": style.grey},
    }
    return {
        "data": {"values": rows},
        "mark": {"type": "text", "align": "left", "dx": 6},
        "encoding": encoding,
    }


def _dash(chart: Chart) -> Spec:
    dashes = [_DASHES[i % len(_DASHES)] for i in range(len(chart.series))]
    solid = {"test": "datum.label", "value": _DASHES[0]}
    return {
        "field": "run",
        "scale": {"domain": list(chart.series), "range": dashes},
        "condition": solid,
    }


def _hover_points(x: Spec, y: Spec, line: Line, chart: Chart) -> Spec:
    """Points that show, with their values, only under the pointer."""
    name = "hover_step" if line.step else "hover"
    return {
        "params": [
            {
                "name": name,
                "select": {
                    "type": "point",
                    "on": "pointerover",
                    "nearest": True,
                    "clear": "pointerout",
                },
            }
        ],
        "mark": {"type": "point", "filled": True, "size": 70},
        "encoding": {
            "x": x,
            "y": y,
            "opacity": {"condition": {"param": name, "empty": False, "value": 1}, "value": 0},
            "tooltip": _tooltip(line, chart),
        },
    }


def _axis(field: Literal["x", "y"], chart: Chart, **scale: Any) -> Spec:
    axis = chart.x if field == "x" else chart.y
    shown: Spec = {"tickCount": 6} | _TICKS[axis.kind]
    if (axis.log or axis.power != 1) and len(values := ticks(axis, *_extent(chart, field))) > 1:
        shown |= {"values": values, "tickCount": len(values)}
    if axis.power != 1:
        scale |= {"type": "pow", "exponent": axis.power, "zero": axis.zero, "nice": False}
    elif axis.log:
        scale |= {"type": "log", "nice": False}
        shown["labelSeparation"] = 6
    elif not axis.zero:
        scale["zero"] = False
    return {
        "field": field,
        "type": "quantitative",
        "title": axis.title,
        "axis": shown,
        "scale": scale,
    }


def ticks(axis: Axis, low: float, high: float) -> list[float]:
    """Where a scale with a logarithm or a power has its ticks: at round values that are not too close together."""
    if axis.log:
        digits = (1, 3) if high > 50 * low else (1, 2, 5)
        powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
        return [
            tick
            for power in powers.tolist()
            for digit in digits
            if low <= (tick := digit * power) <= high
        ]
    chosen: list[float] = []
    for tick in (share for share in _ROUND_SHARES if low <= share <= high):
        room = chosen[-1] ** axis.power - tick**axis.power if chosen else np.inf
        if room >= _TICK_GAP * (high**axis.power - low**axis.power):
            chosen.append(tick)
    return chosen


def _extent(chart: Chart, field: Literal["x", "y"]) -> tuple[float, float]:
    """The smallest and the largest value of all layers on an axis."""
    values = np.concatenate([getattr(layer, field) for layer in chart.layers] or [np.zeros(1)])
    return float(np.min(values)), float(np.max(values))


def _rows(layer: Layer) -> Iterator[Spec]:
    """One row per mark, with everything that is drawn or shown."""
    drawn = {name: values for name, values in vars(layer).items() if isinstance(values, np.ndarray)}
    fields = {name: _plain(values) for name, values in (drawn | dict(layer.columns)).items()}
    for values in zip(*fields.values(), strict=True):
        yield {"run": layer.series} | dict(zip(fields, values, strict=True))


def _tooltip(layer: Layer, chart: Chart) -> Spec:
    """The values under the pointer, as an expression.

    For the nearest point, Vega-Lite gives every point a cell that holds the point's row as "datum".
    """
    x, y = _FORMATS[chart.x.kind], _FORMATS[chart.y.kind]
    x_title, y_title = (
        axis.title.partition(" (")[0] for axis in (chart.x, chart.y)
    )  # without norm and scale
    fields = {"run": ("run", ""), x_title: ("x", x), y_title: ("y", y)}
    if layer.low is not None:
        fields |= {"band from": ("low", y), "to": ("high", y)}
    fields |= {
        title: (title, ".4f" if values.dtype.kind == "f" else "")
        for title, values in layer.columns.items()
    }
    shown = []
    for title, (name, format) in fields.items():
        value = f"(datum.datum || datum)[{json.dumps(name)}]"
        if format:
            value = f"{value} == null ? '-' : format({value}, {json.dumps(format)})"
        shown.append(f"{json.dumps(title)}: {value}")
    return {"value": {"expr": f"{{{', '.join(shown)}}}"}}


def _plain(values: Values) -> list[Any]:
    """Plain numbers, short enough for a page; Vega wants null where there is none."""
    return [
        (round(value, 5) if np.isfinite(value) else None) if isinstance(value, float) else value
        for value in values.tolist()
    ]

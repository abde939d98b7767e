"""The charts of the page, as Vega-Lite specifications. Every number in them comes from `Results` and `metrics`.

Colours are variables of the page's style sheet, so that dark mode and print need no second drawing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from smoothcert.statistics.metrics import distribution, round_down
from smoothcert.plans import InputSpecific
from smoothcert.runs.results import Results

Spec = dict[str, Any]

POINTS = 6_000
"""In the scatter plot, over all runs; more are thinned out evenly."""
SERIES = 6
"""Colours; they repeat for more runs than that."""

_SHAPES = {"correct": "circle", "wrong": "cross", "abstained": "diamond", "no label": "square"}

CONFIG: Spec = {
    "background": "transparent",
    "font": "system-ui, 'Segoe UI', Roboto, sans-serif",
    "axis": {
        "labelColor": "var(--soft)",
        "titleColor": "var(--soft)",
        "titleFontWeight": "normal",
        "gridColor": "var(--line)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelFontSize": 12,
        "titleFontSize": 12,
    },
    "legend": {
        "orient": "top",
        "columns": 2,
        "title": None,
        "labelColor": "var(--ink)",
        "labelFontSize": 12,
        "labelLimit": 130,
        "symbolStrokeWidth": 2,
        "symbolOpacity": 1,
    },
    "view": {"stroke": "transparent"},
    "range": {"category": [f"var(--series-{i + 1})" for i in range(SERIES)]},
    "text": {"color": "var(--ink)"},
}


@dataclass(frozen=True)
class Chart:
    """A specification with what stands around it on the page."""

    id: str
    title: str
    caption: str
    spec: Spec


def charts(results: Sequence[Results]) -> list[Chart]:
    """All charts that these results have numbers for."""
    labelled = [r for r in results if r.labelled]
    made = (
        _accuracy_curves(results, labelled),
        _trade_off(results, labelled),
        _radius_against_samples(results),
        _samples_spent(results),
        _distribution_of_p(results),
        _sample_maps(results),
    )
    return [chart for chart in made if chart is not None]


def _accuracy_curves(results: Sequence[Results], labelled: Sequence[Results]) -> Chart | None:
    if not labelled:
        return None
    radii = np.linspace(0, max(max(float(r.radius.max(initial=0)) for r in labelled), 0.01) * 1.02, 121)
    rows = []
    for r in labelled:
        band = r.certified_accuracy_band(radii)
        for radius, share, low, high in zip(radii, r.certified_accuracy(radii), band.low, band.high, strict=True):
            rows.append(_row(run=r.name, radius=radius, share=share, low=low, high=high))
    tooltip = [
        _text("run"),
        _number("radius", ".3f"),
        _number("share", ".1%", "certified accuracy"),
        _number("low", ".1%", "95% band from"),
        _number("high", ".1%", "to"),
    ]
    x = _axis("radius", "radius r (l2)")
    y = _axis("share", "share proved correct beyond r", format="%")
    spec = _spec(
        results,
        rows,
        f"Certified accuracy against the radius for {_names(labelled)}: "
        + "; ".join(f"{r.name} starts at {float(r.certified_accuracy([0])[0]):.1%}" for r in labelled)
        + ".",
        [
            {
                "mark": {"type": "area", "opacity": 0.15},
                "encoding": {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}},
            },
            {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"x": x, "y": y}},
            _hover_points(x, y, tooltip),
        ],
    )
    return Chart(
        "accuracy",
        "Certified accuracy",
        "The share of inputs that are answered correctly, and provably so under any change up to the radius. "
        "Bands: 95% Clopper-Pearson, the inputs being a sample.",
        spec,
    )


def _trade_off(results: Sequence[Results], labelled: Sequence[Results]) -> Chart | None:
    rows = [
        _row(run=r.name, method=str(r.plan), samples=r.average_samples, acr=r.acr, low=r.acr_band.low)
        | _row(high=r.acr_band.high)
        for r in labelled
        if r.average_samples is not None and r.acr_band is not None
    ]
    if not rows:
        return None
    x = _axis("samples", "average samples per input", format="~s", scale={"zero": False, "padding": 30})
    y = _axis("acr", "ACR", scale={"zero": False})
    tooltip = [
        _text("run"),
        _text("method"),
        _number("samples", ",.0f", "average samples"),
        _number("acr", ".4f", "ACR"),
        _number("low", ".3f", "95% band from"),
        _number("high", ".3f", "to"),
    ]
    spec = _spec(
        results,
        rows,
        "Average certified radius against average samples: "
        + "; ".join(f"{row['run']} {round_down(row['acr'])} at {row['samples']:,.0f}" for row in rows)
        + ".",
        [
            {
                "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.4},
                "encoding": {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
                "encoding": {"x": x, "y": y, "tooltip": tooltip},
            },
        ],
    )
    return Chart(
        "tradeoff",
        "What the radius costs",
        "Average certified radius (ACR) against forward passes per input: up and to the left is better. "
        "Lines: 95% band over inputs, shared by runs on the same inputs.",
        spec,
    )


def _radius_against_samples(results: Sequence[Results]) -> Chart | None:
    rows = []
    most = POINTS // len(results)
    for r in results:
        p, outcome = r.p, np.select([r.abstained, r.correct, r.wrong], ["abstained", "correct", "wrong"], "no label")
        for i in np.unique(np.linspace(0, len(r) - 1, min(len(r), most)).astype(int)):
            if r.samples[i]:
                rows.append(
                    _row(run=r.name, id=r.id[i], samples=r.samples[i], outcome=outcome[i], p=p[i])
                    | {"radius": float(round_down(float(r.radius[i]), 4))}
                )
    if not rows:
        return None
    shapes = {outcome: shape for outcome, shape in _SHAPES.items() if any(row["outcome"] == outcome for row in rows)}
    x = _axis("samples", "samples spent (log scale)", format="~s", scale={"type": "log", "nice": False, "padding": 8})
    tooltip = [
        _text("run"),
        _number("id", "d", "input"),
        _number("samples", ",d"),
        _number("radius", ".4f"),
        _number("p", ".4f"),
        _text("outcome"),
    ]
    encoding = {
        "x": x,
        "y": _axis("radius", "radius"),
        "shape": {
            "field": "outcome",
            "scale": {"domain": list(shapes), "range": list(shapes.values())},
            "legend": {"orient": "bottom", "columns": 4},
        },
        "tooltip": tooltip,
    }
    spec = _spec(
        results,
        rows,
        f"Radius of each input against the samples it got, for {_names(results)}. "
        f"Samples range from {min(row['samples'] for row in rows):,} to {max(row['samples'] for row in rows):,}.",
        [{"mark": {"type": "point", "size": 28, "opacity": 0.6}, "encoding": encoding}],
    )
    thinned = f" Of larger runs {most:,} inputs are shown." if any(len(r) > most for r in results) else ""
    return Chart(
        "scatter",
        "Radius against samples spent",
        "Each mark is one input. Input-specific sampling spends where radius is to be had." + thinned,
        spec,
    )


def _samples_spent(results: Sequence[Results]) -> Chart | None:
    known = [r for r in results if r.average_samples is not None]
    if not known:
        return None
    low, high = min(r.samples.min() for r in known), max(r.samples.max() for r in known)
    edges = np.geomspace(max(low, 1) * 0.999, high * 1.001, 25)
    x = _axis("left", "samples spent (log scale)", format="~s", scale={"type": "log", "nice": False})
    return Chart(
        "samples",
        "Samples per input",
        "How many forward passes inputs needed.",
        _histogram(results, known, "samples", edges, x, ",.0f", "Distribution of the samples that inputs got"),
    )


def _distribution_of_p(results: Sequence[Results]) -> Chart | None:
    known = [r for r in results if np.any(r.counted)]
    if not known:
        return None
    lowest = min(float(np.nanmin(r.p)) for r in known)
    edges = np.linspace(0, 1, 51)
    edges = edges[max(np.searchsorted(edges, lowest, side="right") - 1, 0) :]
    x = _axis("left", "share of votes for the class (p)", scale={"zero": False})
    return Chart(
        "probability",
        "How sure the votes are",
        "The share of noisy copies that voted for the predicted class. At 0.5 or below there is nothing to certify.",
        _histogram(results, known, "p", edges, x, ".2f", "Distribution of the share of votes for the class"),
    )


def _sample_maps(results: Sequence[Results]) -> Chart | None:
    used = [r for r in results if isinstance(r.plan, InputSpecific) and r.noise is not None]
    if not used:
        return None
    p = np.concatenate([np.linspace(0.5, 0.995, 100), 1 - np.geomspace(4e-3, 1e-5, 30), [1.0]])
    rows = []
    for r in used:
        assert isinstance(r.plan, InputSpecific)
        assert r.noise is not None
        needed = r.plan.sample_map(r.noise)(p)
        rows += [_row(run=r.name, p=q, samples=n) for q, n in zip(p, needed, strict=True)]
    x = _axis("p", "p, the class's share of votes", scale={"zero": False})
    y = _axis("samples", "samples needed", format="~s")
    tooltip = [_text("run"), _number("p", ".5f"), _number("samples", ",d")]
    spec = _spec(
        results,
        rows,
        "Sample map: samples needed against p for "
        + "; ".join(f"{r.name} ({str(r.plan)}, {r.noise})" for r in used)
        + ". It is steepest towards p = 1.",
        [
            {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"x": x, "y": y}},
            _hover_points(x, y, tooltip),
        ],
    )
    return Chart("map", "The sample map in use", "How many samples an input needs, given how sure its votes are.", spec)


def _histogram(
    results: Sequence[Results],
    known: Sequence[Results],
    column: str,
    edges: np.ndarray[Any, Any],
    x: Spec,
    format: str,
    described: str,
) -> Spec:
    rows = []
    for place, r in enumerate(known):
        share = distribution(getattr(r, column), edges)
        # The bars of a bin stand side by side, in parts of equal width on the scale of x.
        left, right = (_between(edges, (place + side) / len(known), x) for side in (0, 1))
        for i in np.flatnonzero(share):
            rows.append(
                _row(run=r.name, low=edges[i], high=edges[i + 1], inputs=round(share[i] * len(r)), share=share[i])
                | _row(left=left[i], right=right[i])
            )
    encoding = {
        "x": x,
        "x2": {"field": "right"},
        "y": _axis("share", "share of inputs", format="%") | {"stack": None},
        "y2": {"datum": 0},
        "tooltip": [
            _text("run"),
            _number("low", format, "from"),
            _number("high", format, "to"),
            _number("inputs", ",d"),
            _number("share", ".1%"),
        ],
    }
    middle = "; ".join(f"{r.name}: median {np.nanmedian(getattr(r, column)):{format}}" for r in known)
    return _spec(
        results,
        rows,
        f"{described}. {middle}.",
        [{"mark": {"type": "bar", "binSpacing": 0.5}, "encoding": encoding}],
    )


def _between(edges: np.ndarray[Any, Any], part: float, x: Spec) -> np.ndarray[Any, Any]:
    low, high = edges[:-1], edges[1:]
    return np.asarray(low * (high / low) ** part if x["scale"].get("type") == "log" else low + (high - low) * part)


def _spec(results: Sequence[Results], rows: list[Spec], description: str, layers: list[Spec]) -> Spec:
    """Layers over the same rows, one colour per run; a legend only where there is something to tell apart."""
    names = list(dict.fromkeys(r.name for r in results))
    present = [name for name in names if any(row["run"] == name for row in rows)]
    color: Spec = {
        "field": "run",
        "type": "nominal",
        "scale": {"domain": names},
        "legend": {"values": present} if len(present) > 1 else None,
    }
    return {
        "description": description,
        "width": "container",
        "height": 260,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": rows},
        "encoding": {"color": color},
        "layer": layers,
    }


def _hover_points(x: Spec, y: Spec, tooltip: list[Spec]) -> Spec:
    """Points that show, with their values, only under the pointer."""
    return {
        "params": [
            {"name": "hover", "select": {"type": "point", "on": "pointerover", "nearest": True, "clear": "pointerout"}}
        ],
        "mark": {"type": "point", "filled": True, "size": 70},
        "encoding": {
            "x": x,
            "y": y,
            "opacity": {"condition": {"param": "hover", "empty": False, "value": 1}, "value": 0},
            "tooltip": tooltip,
        },
    }


def _axis(field: str, title: str, *, format: str | None = None, scale: Mapping[str, Any] | None = None) -> Spec:
    axis: Spec = {"tickCount": 6} | ({"format": format} if format else {})
    return {"field": field, "type": "quantitative", "title": title, "axis": axis, "scale": dict(scale or {})}


def _text(field: str) -> Spec:
    return {"field": field, "type": "nominal"}


def _number(field: str, format: str, title: str | None = None) -> Spec:
    return {"field": field, "type": "quantitative", "format": format, "title": title or field}


def _row(**values: Any) -> Spec:
    """Plain numbers, short enough for a page; Vega wants null where there is none."""
    row = {}
    for name, value in values.items():
        if isinstance(value, (float, np.floating)):
            value = round(float(value), 6) if np.isfinite(value) else None
        row[name] = value.item() if isinstance(value, np.generic) else value
    return row


def _names(results: Sequence[Results]) -> str:
    return ", ".join(r.name for r in results)

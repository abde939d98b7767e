"""The page about a comparison: every claim in plain words, and pictures of the inputs where only one is certified."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from smoothcert.report.chart import Axis, Chart, Line
from smoothcert.report.charts import certified_accuracy
from smoothcert.report.page import dataset_of, fill
from smoothcert.report.thumbnails import picture_of
from smoothcert.report.wording import in_norm
from smoothcert.runs.comparison import Comparison, Curve, Difference

if TYPE_CHECKING:
    from smoothcert.data import Dataset

_PICTURES = 24
"""Pictures of inputs that only one of the two certifies, at one radius."""


def render_comparison(comparison: Comparison, dataset: Dataset | None = None) -> str:
    """The page as text."""
    runs = [comparison.a, comparison.b]
    dataset = dataset_of(runs) if dataset is None else dataset
    names = list(dataset.class_names or ()) if dataset else []
    pictures = {
        id: picture_of(dataset[id][0])
        for d in comparison.differences
        for id in (*d.only_a[:_PICTURES], *d.only_b[:_PICTURES])
        if dataset is not None
    }
    labels = dict(zip(comparison.a.id.tolist(), comparison.a.label.tolist(), strict=True))
    charts = [certified_accuracy(runs), _difference(comparison, comparison.curve)] if comparison.curve else []
    return fill(
        "compared.html",
        charts,
        runs,
        {},
        comparison=comparison,
        pictures=pictures,
        most=_PICTURES,
        class_of={id: names[label] if label < len(names) else f"class {label}" for id, label in labels.items()},
        strip=_strip,
    )


def _strip(d: Difference) -> dict[str, float]:
    """Where the interval, the difference and the margin stand on a line with 0 in its middle, in percent."""
    scale = 45 / max(abs(d.interval.low), abs(d.interval.high), d.margin)
    places = {"low": d.interval.low, "high": d.interval.high, "difference": d.difference, "margin": -d.margin}
    return {name: 50 + scale * value for name, value in places.items()}


def _difference(comparison: Comparison, curve: Curve) -> Chart:
    a, b = comparison.a.name, comparison.b.name
    low, high = (np.clip(curve.difference + side * curve.band, -1, 1) for side in (-1, 1))
    zero = Line("", curve.radii, 0 * curve.radii, label="alike")
    line = Line(b, curve.radii, curve.difference, low, high, step=True)
    return Chart(
        "difference",
        f"Certified accuracy of {b} minus that of {a}",
        (a, b),
        Axis(f"radius r{in_norm([comparison.a, comparison.b])}"),
        Axis("difference", "percent"),
        (line, zero),
        f"Above 0, {b} certifies more. Where the band leaves out 0, the difference is more than chance, for the whole "
        f"curve together, at {100 * comparison.differences[0].confidence:g}%.",
    )

"""What a chart is, apart from how it is drawn: axes, lines and points with their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Values: TypeAlias = NDArray[Any]

OUTCOMES = ("correct", "wrong", "abstained", "not certified", "no label")
"""What can become of an input. Each outcome has its own shape in charts."""


@dataclass(frozen=True)
class Axis:
    """One axis.

    Args:
        title: What it shows.
        kind: How its numbers are written: as they are, as percentages, or as counts ("5k").
        log: Whether the scale is logarithmic.
        zero: Whether the scale includes 0.
        power: A value stands where this power of it would. A power above 1 spreads out shares
            near 1.
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
        series: The run, or what else its colour stands for. Several layers may share one.
        x: Positions.
        y: The values there.
        low: The lower ends of a band around the values.
        high: The upper ends of this band.
        columns: What a reader sees when pointing at a value, besides its position: one array for
            each title.
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
        step: Whether each value holds from the previous x on. A decreasing curve then never shows
            too much. All lines of a chart agree in this.
    """

    step: bool = False


def histogram(series: str, edges: Values, y: Values) -> Line:
    """A histogram as a curve with steps: the heights `y` of bins between `edges`."""
    return Line(series, np.append(edges, edges[-1]), np.concatenate([[0.0], y, [0.0]]), step=True)


@dataclass(frozen=True, eq=False)
class Bars(Layer):
    """Parts of one band: a bar at each x, from `low` to `high`."""


@dataclass(frozen=True, eq=False)
class Points(Layer):
    """Marks, with their bands as vertical lines.

    Args:
        outcome: The outcome of each, one of `OUTCOMES`, which decides its shape; None for marks
            that are no inputs.
        hollow: Whether only their outlines are drawn, to distinguish them from other marks of the
            same run.
    """

    outcome: Values | None = None
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

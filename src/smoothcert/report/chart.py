"""What a chart is, without a word on how it is drawn. `charts` computes the numbers, `vega.spec` draws them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Values: TypeAlias = NDArray[Any]

OUTCOMES = ("correct", "wrong", "abstained", "not certified", "no label")
"""What can become of an input. Each outcome has its own shape in charts."""

_ROUND_SHARES = (1, 0.99, 0.98, 0.97, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0)
_TICK_GAP = 0.08
_LABEL_GAP = 0.065
"""The least distance between two labels, or two ticks, as a share of the height of a chart."""


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

    def ticks(self, low: float, high: float) -> list[float]:
        """Where a scale with a logarithm or a power has its ticks: at round values that are not too close together."""
        if self.log:
            digits = (1, 3) if high > 50 * low else (1, 2, 5)
            powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
            return [tick for power in powers.tolist() for digit in digits if low <= (tick := digit * power) <= high]
        chosen: list[float] = []
        for tick in (share for share in _ROUND_SHARES if low <= share <= high):
            room = chosen[-1] ** self.power - tick**self.power if chosen else np.inf
            if room >= _TICK_GAP * (high**self.power - low**self.power):
                chosen.append(tick)
        return chosen


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

    def label_places(self) -> list[tuple[Line, float]]:
        """Lines with a label, and the height at which it is written: beside the end of the line, none over another."""
        low, high = self.extent("y")
        named = [layer for layer in self.layers if isinstance(layer, Line) and layer.label]
        highest, places = np.inf, []
        for line in sorted(named, key=lambda line: -float(line.y[-1])):
            place = min(float(line.y[-1]), highest)
            places.append((line, place))
            highest = place - _LABEL_GAP * (high - low)
        return places

    def extent(self, axis: Literal["x", "y"]) -> tuple[float, float]:
        """The smallest and the largest value of all layers on an axis."""
        values = np.concatenate([getattr(layer, axis) for layer in self.layers] or [np.zeros(1)])
        return float(np.min(values)), float(np.max(values))

"""What a chart is, without a word on how it is drawn.

`charts` computes the numbers. `vega.spec` draws a chart in the page, `figures.plot` as a figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

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
    """

    title: str
    kind: Literal["number", "percent", "count"] = "number"
    log: bool = False
    zero: bool = True


@dataclass(frozen=True, eq=False)
class Column:
    """Values that a reader sees when pointing at a mark.

    Args:
        title: What the values are. It is unique within a layer.
        values: One value per mark. Where a layer draws the same array, it is stored only once.
        format: A format that Python and D3 both understand, as in ",.0f"; empty for text.
    """

    title: str
    values: Values
    format: str = ""


@dataclass(frozen=True, eq=False)
class Line:
    """A curve, with a band around it where `low` and `high` are given.

    Args:
        series: The run that it belongs to. Several lines may belong to one run.
        x: Where the curve is known.
        y: Its values there.
        low: The lower end of the band.
        high: The upper end of the band.
        step: Whether each value holds from the previous x on. A decreasing curve then never shows too much.
        columns: What a reader sees when pointing at it.
    """

    series: str
    x: Values
    y: Values
    low: Values | None = None
    high: Values | None = None
    step: bool = False
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, eq=False)
class Points:
    """Marks, with a vertical line through each where `low` and `high` are given.

    Args:
        series: The run that they belong to.
        x: Their positions.
        y: Their positions.
        low: The lower ends of the vertical lines.
        high: The upper ends of the vertical lines.
        outcome: The outcome of each, one of `OUTCOMES`, which decides its shape; None for marks that are no inputs.
        columns: What a reader sees when pointing at one.
    """

    series: str
    x: Values
    y: Values
    low: Values | None = None
    high: Values | None = None
    outcome: Values | None = None
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, eq=False)
class Bars:
    """A histogram.

    Args:
        series: The run that it belongs to.
        edges: The edges of the bins, one more than there are bins.
        y: The height of each bar.
        columns: What a reader sees when pointing at a bar.
    """

    series: str
    edges: Values
    y: Values
    columns: tuple[Column, ...] = ()


Layer: TypeAlias = Line | Points | Bars


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
        description: The chart in words, for readers who cannot see it.
    """

    id: str
    title: str
    series: tuple[str, ...]
    x: Axis
    y: Axis
    layers: tuple[Layer, ...]
    caption: str = ""
    description: str = ""

"""The curve of certified accuracy on axes of matplotlib, beside whatever else is drawn there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from smoothcert.errors import MissingExtra
from smoothcert.report.chart import Line
from smoothcert.report.charts import certified_accuracy
from smoothcert.runs.collect import Source, collect

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


def plot(
    results: Source | Sequence[Source], ax: Axes | None = None, *, bands: bool = True
) -> tuple[Figure | SubFigure, Axes]:
    """Draw certified accuracy against the radius, one curve per run that has labels.

    Args:
        results: Runs and other results, or their folders and files.
        ax: Where to draw. Default: a new figure.
        bands: Whether to draw the 95% bands.

    Returns:
        The figure and its axes.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise MissingExtra("plot", "plot") from None
    chart = certified_accuracy(collect(results))
    if ax is None:
        _, ax = plt.subplots()
    for line in chart.layers:
        assert isinstance(line, Line)
        [drawn] = ax.step(line.x, line.y, where="pre", label=(line.series or line.label).replace("$", r"\$"))
        if bands and line.low is not None and line.high is not None:
            ax.fill_between(line.x, line.low, line.high, step="pre", color=drawn.get_color(), alpha=0.15, linewidth=0)
    ax.set(xlabel=chart.x.title, ylabel=chart.y.title, xlim=(0, None), ylim=(0, None))
    ax.legend()
    return ax.figure, ax

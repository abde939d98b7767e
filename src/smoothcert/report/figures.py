"""Charts as figures for a paper, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smoothcert.errors import InvalidInput
from smoothcert.report.chart import OUTCOMES, Axis, Chart, Line, Points, Values
from smoothcert.report.charts import charts
from smoothcert.runs.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Plot = tuple["Figure", "Axes"]

# The colours of Okabe and Ito can be told apart with every kind of colour vision. This order also prints well in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINES = ("-", "--", "-.", ":")
STYLE: dict[Any, Any] = {
    "figure.figsize": (3.4, 2.4),
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "pdf.fonttype": 42,  # text stays text, also in SVG
    "svg.fonttype": "none",
    "svg.hashsalt": "smoothcert",  # the same figure is the same file
}

_MARKERS = dict(zip(OUTCOMES, ("o", "X", "D", "^", "s"), strict=True))
_GREY = "#555555"


def plot(chart: Chart, ax: Axes | None = None) -> Plot:
    """Draw a chart.

    Returns:
        The figure and its axes.
    """
    fig, ax = _axes(ax)
    labelled: set[str] = set()
    for layer in chart.layers:
        if isinstance(layer, Line) and layer.label:
            ax.plot(layer.x, layer.y, color=_GREY, linewidth=0.8)
            continue
        place = chart.series.index(layer.series)
        colour, line_style = COLOURS[place % len(COLOURS)], LINES[place % len(LINES)]
        label = None if layer.series in labelled else _plain(layer.series)
        labelled.add(layer.series)
        if isinstance(layer, Line):
            _draw_line(ax, layer, colour, line_style, label)
        elif isinstance(layer, Points):
            _draw_points(ax, layer, colour, label)
        else:
            ax.stairs(layer.y, layer.edges, color=colour, linestyle=line_style, linewidth=1.3, label=label)
    _set_axis(ax, "x", chart.x)
    _set_axis(ax, "y", chart.y)
    for line, height in chart.label_places():
        ax.annotate(
            _plain(line.label),
            (line.x[-1], height),
            (3, -1),
            textcoords="offset points",
            va="baseline",
            fontsize="small",
            color=_GREY,
            annotation_clip=False,
        )
    if labelled:
        ax.legend(handles=[*ax.get_legend_handles_labels()[0], *_outcome_handles(chart)])
    return fig, ax


def save_figures(results: Sequence[Results], folder: str | Path) -> list[Path]:
    """Write every chart that these runs have numbers for as PDF, SVG and PNG.

    Returns:
        The files.
    """
    with paper_style():
        return [path for chart in charts(results) for path in save(plot(chart)[0], Path(folder) / chart.id)]


def save(fig: Figure, path: Path, formats: Sequence[str] = ("pdf", "svg", "png")) -> list[Path]:
    """Write a figure once per format, without a date, and close it.

    Returns:
        The files.
    """
    import matplotlib.pyplot as plt

    paths = [path.with_name(f"{path.name}.{format}") for format in formats]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for format, target in zip(formats, paths, strict=True):
            undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(format)
            fig.savefig(target, metadata=undated)
    except OSError as error:
        raise InvalidInput(f"cannot write figures into {path.parent}: {error.strerror or error}") from None
    finally:
        plt.close(fig)
    return paths


@contextmanager
def paper_style() -> Iterator[None]:
    """Figures that are drawn inside fit one column of a paper."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        yield


def _axes(ax: Axes | None) -> Plot:
    if ax is None:
        import matplotlib.pyplot as plt

        fig, ax = plt.subplots()
        return fig, ax
    return ax.get_figure(root=True), ax  # type: ignore[return-value]


def _draw_line(ax: Axes, line: Line, colour: str, style: str, label: str | None) -> None:
    ax.plot(
        line.x,
        line.y,
        color=colour,
        linestyle=style,
        drawstyle="steps-pre" if line.step else "default",
        label=label,
    )
    if line.low is not None and line.high is not None:
        step: Any = "pre" if line.step else None
        ax.fill_between(line.x, line.low, line.high, step=step, color=colour, alpha=0.15, linewidth=0)


def _draw_points(ax: Axes, points: Points, colour: str, label: str | None) -> None:
    if points.outcome is None:
        ax.margins(x=0.1)
        if points.low is not None and points.high is not None:
            ax.plot([points.x, points.x], [points.low, points.high], "-", color=colour, alpha=0.4)
        ax.plot(points.x, points.y, "o", color=colour, label=label)
        return
    for outcome in OUTCOMES:
        chosen = points.outcome == outcome
        if np.any(chosen):
            marker, place = _MARKERS[outcome], (points.x[chosen], points.y[chosen])
            size = 9 if points.inputs is None else 9 + 120 * (points.inputs[chosen] - 1) / points.inputs.max()
            ax.scatter(*place, s=size, color=colour, alpha=0.5, linewidths=0, marker=marker, clip_on=False)
    ax.plot([], [], "o", markersize=4, color=colour, label=label)  # for the legend alone


def _outcome_handles(chart: Chart) -> list[Any]:
    """Entries of the legend that explain the shapes; none if all marks have the same shape."""
    from matplotlib.lines import Line2D

    found = {
        o for layer in chart.layers if isinstance(layer, Points) and layer.outcome is not None for o in layer.outcome
    }
    shapes = [(outcome, marker) for outcome, marker in _MARKERS.items() if outcome in found]
    if len(shapes) < 2:
        return []
    return [Line2D([], [], linestyle="", marker=m, color=_GREY, markersize=4, label=o) for o, m in shapes]


def _set_axis(ax: Axes, which: str, axis: Axis) -> None:
    from matplotlib.ticker import EngFormatter, FixedLocator, LogLocator, NullLocator, PercentFormatter

    ticks = ax.xaxis if which == "x" else ax.yaxis
    ax.set(**{f"{which}label": _plain(axis.title)})
    if axis.log:
        ax.set(**{f"{which}scale": "log"})
        low, high = ax.get_xlim() if which == "x" else ax.get_ylim()
        ticks.set_major_locator(LogLocator(subs=(1.0, 3.0) if high > 50 * low else (1.0, 2.0, 5.0)))
        ticks.set_minor_locator(NullLocator())
    elif axis.power != 1:
        set_scale = ax.set_xscale if which == "x" else ax.set_yscale
        set_scale("function", functions=(_to_the(axis.power), _to_the(1 / axis.power)))
        low, high = ax.get_xlim() if which == "x" else ax.get_ylim()
        ticks.set_major_locator(FixedLocator(axis.ticks(low, high)))
    elif axis.zero:
        ax.set(**{f"{which}lim": (0, None)})
    if axis.kind == "percent":
        ticks.set_major_formatter(PercentFormatter(1.0, decimals=None))
    elif axis.kind == "count":
        ticks.set_major_formatter(EngFormatter(sep=""))  # 5000 is 5k


def _to_the(power: float) -> Callable[[Values], Values]:
    return lambda values: np.asarray(np.maximum(values, 0) ** power)


def _plain(text: str) -> str:
    """Text as it is: no formula between dollar signs."""
    return text.replace("$", r"\$")

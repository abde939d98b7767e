"""Charts outside of the page: as files for a paper, and one curve on axes of matplotlib."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from smoothcert._files import write_output
from smoothcert.errors import needs
from smoothcert.report.chart import Chart, Line
from smoothcert.report.charts import certified_accuracy, charts
from smoothcert.report.vega import STYLES, Spec, spec
from smoothcert.runs.formats import Source, collect

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

FORMATS = ("pdf", "svg", "png")
_SIZE = {"width": 245, "height": 173}  # points: one column of a paper
_PANEL_SIZE = {"width": 150, "height": 105}  # points
_DOTS_PER_INCH = 200


def save_figures(results: Source | Sequence[Source], folder: str | Path) -> list[Path]:
    """Write every chart that these runs have numbers for as PDF, SVG and PNG.

    Returns:
        The files.
    """
    paths = []
    for chart in charts(collect(results)):
        paths += save(chart, Path(folder) / chart.id)
    return paths


def save(
    chart: Chart | Sequence[Chart], path: str | Path, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Write a chart, or several side by side, once per format.

    The same charts always give the same files.

    Args:
        chart: The chart, which fits one column of a paper, or the charts, which get their titles.
        path: The file without its ending.
        formats: Its endings, of "pdf", "svg" and "png".

    Returns:
        The files.
    """
    drawing = _column(chart) if isinstance(chart, Chart) else _panels(chart)
    text = json.dumps(drawing | {"config": STYLES["paper"]})
    paths = []
    for format in formats:
        target = Path(f"{path}.{format}")
        write_output(target, _rendered(text, format))
        paths.append(target)
    return paths


def _column(chart: Chart) -> Spec:
    """A chart that fits one column of a paper."""
    return spec(chart, printed=True) | _SIZE | {"autosize": {"type": "fit", "contains": "padding"}}


def _panels(panels: Sequence[Chart]) -> Spec:
    """Charts in rows, each with its own legend. Vega-Lite cannot fit several into a width."""
    drawn = [
        spec(panel, printed=True) | _PANEL_SIZE | {"autosize": "pad", "title": panel.title}
        for panel in panels
    ]
    scales = dict.fromkeys(("color", "strokeDash", "shape", "size"), "independent")
    return {"concat": drawn, "columns": 2 if len(panels) == 4 else 3, "resolve": {"scale": scales}}


def _rendered(drawing: str, format: str) -> bytes:
    import vl_convert

    if format == "pdf":
        return vl_convert.vegalite_to_pdf(drawing)
    if format == "png":
        return vl_convert.vegalite_to_png(drawing, ppi=_DOTS_PER_INCH)
    # The unit of this SVG is a pixel of a screen, but that of the PDF is a point.
    text = vl_convert.vegalite_to_svg(drawing)
    size = r'width="([\d.]+)" height="([\d.]+)"'
    return re.sub(size, r'width="\1pt" height="\2pt"', text, count=1).encode()


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
    with needs("plot", what="plot"):
        import matplotlib.pyplot as plt
    chart = certified_accuracy(collect(results))
    if ax is None:
        _, ax = plt.subplots()
    for line in chart.layers:
        assert isinstance(line, Line)
        [curve] = ax.step(line.x, line.y, where="pre", label=line.series.replace("$", r"\$"))
        if bands and line.low is not None and line.high is not None:
            colour = curve.get_color()
            ax.fill_between(
                line.x, line.low, line.high, step="pre", color=colour, alpha=0.15, linewidth=0
            )
    ax.set(xlabel=chart.x.title, ylabel=chart.y.title, xlim=(0, None), ylim=(0, None))
    ax.legend()
    return ax.figure, ax

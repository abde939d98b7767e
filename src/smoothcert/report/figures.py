"""Figures for a paper: each `plot_*` draws on `ax` (a new figure if None) and returns figure and axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smoothcert.errors import InvalidInput
from smoothcert.statistics.metrics import distribution
from smoothcert.plans import InputSpecific
from smoothcert.runs.results import Results
from smoothcert.statistics.sample_map import SampleMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Plot = tuple["Figure", "Axes"]

# Okabe and Ito's colours, which all kinds of colour vision tell apart, in an order that prints well in grey.
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


def plot_certified_accuracy(results: Sequence[Results], ax: Axes | None = None, *, band: bool = True) -> Plot:
    """CA(r) against r, one curve per run that has labels, with its 95% band over inputs."""
    fig, ax = _axes(ax)
    largest = max((float(r.radius.max(initial=0)) for r in results if r.labelled), default=0.0)
    radii = np.linspace(0, largest * 1.02 or 1.0, 400)
    for r, look in zip(results, _looks(), strict=False):
        if not r.labelled:
            continue
        ax.plot(radii, 100 * r.certified_accuracy(radii), label=_plain(r.name), **look)
        if band:
            low, high = r.certified_accuracy_band(radii)
            ax.fill_between(radii, 100 * low, 100 * high, color=look["color"], alpha=0.15, linewidth=0)
    ax.set(xlabel="radius", ylabel="certified accuracy (%)", xlim=(0, radii[-1]), ylim=(0, None))
    ax.legend()
    return fig, ax


def plot_trade_off(results: Sequence[Results], ax: Axes | None = None) -> Plot:
    """ACR against average samples, one mark per run that has labels and knows its samples."""
    fig, ax = _axes(ax)
    for r, look in zip(results, _looks(), strict=False):
        if r.labelled and r.average_samples is not None:
            ax.plot(r.average_samples, r.acr, "o", color=look["color"], label=_plain(r.name))
    ax.set(xlabel="average samples", ylabel="ACR")
    ax.legend()
    return fig, ax


def plot_radius_against_samples(results: Sequence[Results], ax: Axes | None = None) -> Plot:
    """Each input's radius against the samples it got."""
    fig, ax = _axes(ax)
    for r, look in zip(results, _looks(), strict=False):
        known = r.samples > 0
        ax.scatter(
            r.samples[known], r.radius[known], s=5, color=look["color"], alpha=0.5, linewidths=0, label=_plain(r.name)
        )
    ax.set(xlabel="samples", ylabel="radius", xscale="log")
    ax.legend()
    return fig, ax


def plot_samples(results: Sequence[Results], ax: Axes | None = None) -> Plot:
    """The distribution of samples over inputs."""
    known = [r.samples for r in results if r.average_samples is not None]
    low = max(min((int(s.min()) for s in known), default=1), 1)
    high = max((int(s.max()) for s in known), default=10)
    fig, ax = _histogram(results, "samples", np.geomspace(low * 0.99, high * 1.01, 30), ax)
    ax.set(xlabel="samples", xscale="log")
    return fig, ax


def plot_probabilities(results: Sequence[Results], ax: Axes | None = None) -> Plot:
    """The distribution of p, the share of votes for the class, over inputs."""
    fig, ax = _histogram(results, "p", np.linspace(0, 1, 51), ax)
    ax.set(xlabel="p")
    return fig, ax


def plot_sample_map(maps: Sequence[SampleMap], ax: Axes | None = None) -> Plot:
    """Samples needed against p."""
    fig, ax = _axes(ax)
    p = np.concatenate([np.linspace(0.5, 0.995, 200), 1 - np.geomspace(5e-3, 1e-6, 60), [1.0]])
    for psi, look in zip(maps, _looks(), strict=False):
        decline = f"{psi.decline:g}" if psi.kind == "absolute" else f"{100 * psi.decline:g}%"
        ax.plot(p, psi(p), label=f"{psi.samples:,}, decline {decline}", **look)
    ax.set(xlabel="p", ylabel="samples needed")
    ax.legend()
    return fig, ax


def save_figures(results: Sequence[Results], folder: str | Path) -> list[Path]:
    """Every figure that these runs have numbers for, as PDF, SVG and PNG."""
    maps = [r.plan.sample_map(r.noise) for r in results if isinstance(r.plan, InputSpecific) and r.noise is not None]
    plots: dict[str, tuple[Any, Sequence[Any]]] = {
        "certified-accuracy": (plot_certified_accuracy, results if any(r.labelled for r in results) else []),
        "sample-map": (plot_sample_map, list(dict.fromkeys(maps))),
    }
    if spent := [r for r in results if r.average_samples is not None]:
        plots |= {
            "trade-off": (plot_trade_off, spent if any(r.labelled for r in spent) else []),
            "radius-against-samples": (plot_radius_against_samples, spent),
            "samples": (plot_samples, spent),
            "probabilities": (plot_probabilities, spent),
        }
    written = []
    with paper_style():
        for name, (plot, drawn) in plots.items():
            if drawn:
                fig, _ = plot(drawn)
                written += save(fig, Path(folder) / name)
    return written


def save(fig: Figure, path: Path, formats: Sequence[str] = ("pdf", "svg", "png")) -> list[Path]:
    """Write a figure once per format, without a date, and close it."""
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
    """Figures drawn inside fit one column of a paper."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        yield


def _axes(ax: Axes | None) -> Plot:
    if ax is None:
        import matplotlib.pyplot as plt

        fig, ax = plt.subplots()
        return fig, ax
    return ax.get_figure(root=True), ax  # type: ignore[return-value]


def _plain(name: str) -> str:
    """A name as it is: no formula between dollar signs."""
    return name.replace("$", r"\$")


def _looks() -> Iterator[dict[str, Any]]:
    """Colours change first; line styles tell curves apart where there is no colour."""
    i = 0
    while True:
        yield {"color": COLOURS[i % len(COLOURS)], "linestyle": LINES[i % len(LINES)]}
        i += 1


def _histogram(results: Sequence[Results], column: str, edges: np.ndarray[Any, Any], ax: Axes | None) -> Plot:
    fig, ax = _axes(ax)
    for r, look in zip(results, _looks(), strict=False):
        share = distribution(getattr(r, column), edges)
        ax.stairs(
            100 * share, edges, color=look["color"], linestyle=look["linestyle"], label=_plain(r.name), linewidth=1.3
        )
    ax.set(ylabel="inputs (%)")
    ax.legend()
    return fig, ax

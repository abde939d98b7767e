"""Runs side by side, in rows as the paper prints them: method, average samples, time, MAD, ACR, CA at radii."""

from __future__ import annotations

import csv
import html
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.runs.results import Results
from smoothcert.statistics import metrics

FORMATS = ("terminal", "markdown", "latex", "csv", "json")


@dataclass(frozen=True)
class Row:
    """One run; None stands for what it does not tell."""

    name: str
    method: str
    noise: Noise | None
    alpha: float | None
    labels: dict[int, int]
    """By id: who certifies other inputs is no rival."""
    inputs: int
    asked: int
    """Inputs that the run was to certify: more than `inputs` while it is not complete."""
    unlabelled: int
    """Inputs without a label; unless all are, they count as not correct."""
    average_samples: float | None
    seconds: float
    mad: float | None
    ceiling: int | None
    """Samples of the fixed run that `mad` is against."""
    acr: float | None
    abstained: float
    """Share of inputs without a certificate."""
    certified_accuracy: dict[float, float | None]
    known_labels: bool = False
    """Whether the class was the label: an input without a certificate is then not certified, whoever it is."""
    radii_only: bool = False
    """Whether ACR counts only the radii that were asked for."""

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "method": self.method,
            "noise": None if self.noise is None else str(self.noise),
            "alpha": self.alpha,
            "inputs": self.inputs,
            "asked": self.asked,
            "unlabelled": self.unlabelled,
            "average_samples": self.average_samples,
            "acr": self.acr,
            "acr_counts_only_decided_radii": self.radii_only,
            "abstained": self.abstained,
            "known_labels": self.known_labels,
            "seconds": self.seconds,
            "mad": self.mad,
            "certified_accuracy": {f"{radius:g}": share for radius, share in self.certified_accuracy.items()},
        }


class Cell(NamedTuple):
    """A value as printed, and whether it is the best of its column."""

    text: str
    best: bool


@dataclass(frozen=True)
class Table:
    """Rows over the same radii, to be rendered in one of `FORMATS`."""

    rows: tuple[Row, ...]
    radii: tuple[float, ...]

    def plain(self) -> dict[str, Any]:
        return {"runs": [row.plain() for row in self.rows]}

    def render(self, format: str = "terminal") -> str:
        """The table as text; the best values among runs on the same inputs with the same noise and alpha are marked."""
        _check.one_of("format", format, FORMATS)
        if format == "json":
            return json.dumps(self.plain(), indent=2, allow_nan=False)
        if format == "csv":
            return self._csv()
        cells = [[_shown(cell, format) for cell in row] for row in self.cells]
        return {"terminal": _terminal, "markdown": _markdown, "latex": _latex}[format](self.titles, cells)

    def _repr_html_(self) -> str:
        """The table in a notebook."""
        heads = "".join(f"<th>{html.escape(title)}</th>" for title in self.titles)
        rows = "".join("<tr>" + "".join(_html_cell(cell) for cell in row) + "</tr>" for row in self.cells)
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"

    def __repr__(self) -> str:
        return self.render()

    @property
    def titles(self) -> list[str]:
        return [column.title for column in self._columns]

    @property
    def cells(self) -> list[list[Cell]]:
        """What is printed, row by row."""
        return [[Cell(c.text(row), self._is_best(c, row)) for c in self._columns] for row in self.rows]

    @property
    def _columns(self) -> list[_Column]:
        run, how, inputs, *rest = _COLUMNS
        noise = [_NOISE] if len({row.noise for row in self.rows}) > 1 else []
        alpha = [_ALPHA] if len({row.alpha for row in self.rows} - {None}) > 1 else []
        unlabelled = [_UNLABELLED] if any(0 < row.unlabelled < row.inputs for row in self.rows) else []
        accuracy = [_accuracy_column(radius) for radius in self.radii]
        known = {row.known_labels for row in self.rows}
        without = [c for c, shown in ((_ABSTAINED, False in known), (_NOT_CERTIFIED, True in known)) if shown]
        return [run, how, *noise, *alpha, inputs, *unlabelled, *rest, *without, *accuracy]

    def _is_best(self, column: _Column, row: Row) -> bool:
        """Ties as printed are all best; a value without a rival, or 0, is none.

        Nor is 0 a rival where less is better: it stands for the reference itself.
        """
        alike = [r for r in self.rows if (r.noise, r.alpha, r.labels) == (row.noise, row.alpha, row.labels)]
        values = [(r, column.value(r)) for r in alike]
        rivals = [r for r, value in values if value or (value is not None and column.best is max)]
        if column.best is None or len(rivals) < 2 or not column.value(row):
            return False
        return column.text(row) == column.text(column.best(rivals, key=column.value))

    def _csv(self) -> str:
        text = io.StringIO()
        rows = [row.plain() for row in self.rows]
        flat = [
            {k: v for k, v in row.items() if k != "certified_accuracy"}
            | {f"certified_accuracy_{radius}": share for radius, share in row["certified_accuracy"].items()}
            for row in rows
        ]
        writer = csv.DictWriter(text, flat[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        return text.getvalue()


def compare(
    results: Sequence[Results | str | Path],
    *,
    reference: Results | str | Path | None = None,
    radii: Sequence[float] | None = None,
) -> Table:
    """One row per run. MAD is against `reference`; by default against the fixed run at the plan's ceiling.

    Only runs on the same noise with the same pilot and alpha are comparable: elsewhere MAD is None.

    Args:
        results: Runs and other results, or the folders and files that hold them. Where names repeat, the ends of their
            paths tell them apart.
        reference: What MAD is measured against.
        radii: The radii to show certified accuracy at. Default: those that were decided, or steps up to the largest.
    """
    from smoothcert.runs.formats import distinct_names  # formats know runs, and runs make tables

    results = [results] if isinstance(results, (str, Path, Results)) else list(results)
    if not results:
        raise InvalidInput("a table needs at least one run")
    paths = [r if isinstance(r, (str, Path)) else getattr(r, "path", None) for r in results]
    results = distinct_names([_opened(r) for r in results], paths)
    reference = None if reference is None else _opened(reference)
    if empty := [r.name for r in results if not len(r)]:
        raise InvalidInput(f"{', '.join(empty)} holds no certificates yet; run certify again to go on")
    if radii is None:
        decided = {radius for r in results for radius in r.decided_radii or ()}
        radii = sorted(decided) or metrics.default_radii(max(float(r.radius.max()) for r in results))
    radii = [_check.at_least("each radius", radius, 0) for radius in radii]
    rows = [_row(r, [reference] if reference is not None else _ceilings(r, results), radii) for r in results]
    return Table(tuple(rows), tuple(radii))


def _opened(result: Any) -> Results:
    """Results as they are, or read from their folder or file."""
    from smoothcert.runs.formats import read_results

    if isinstance(result, Results):
        return result
    if isinstance(result, (str, Path)):
        return read_results(result)
    raise InvalidInput(f"a table is made of runs, or of their folders and files, got {type(result).__name__}")


def _row(run: Results, references: Sequence[Results], radii: Sequence[float]) -> Row:
    """MAD is against the first of `references` that `run` may be held against."""
    against = next((reference for reference in references if run.decline(reference) is not None), None)
    ceiling = against.certified_by if against is not None else None
    return Row(
        name=run.name,
        method="-" if run.plan is None else str(run.plan),
        noise=run.noise,
        alpha=run.plan.alpha if run.plan is not None else None,
        labels=dict(zip(run.id.tolist(), run.label.tolist(), strict=True)),
        inputs=len(run),
        asked=len(run) if run.manifest is None else len(run.manifest.ids),
        unlabelled=run.unlabelled,
        average_samples=run.average_samples,
        seconds=run.total_seconds,
        mad=run.decline(against) if against is not None else None,
        ceiling=ceiling.samples if ceiling is not None and not ceiling.adaptive else None,
        acr=run.acr if run.labelled else None,
        abstained=float(run.abstained.mean()),
        certified_accuracy=_accuracy(run, radii),
        known_labels=run.plan is not None and run.plan.primary.known_labels,
        radii_only=run.decided_radii is not None,
    )


def _accuracy(run: Results, radii: Sequence[float]) -> dict[float, float | None]:
    """CA by radius; None where it is unknown: without labels, and beyond the radii that were decided."""
    largest = max(run.decided_radii) if run.decided_radii is not None else math.inf
    shares = run.certified_accuracy(radii).tolist() if run.labelled else [None] * len(radii)
    return {r: share if r <= largest else None for r, share in zip(radii, shares, strict=True)}


def _ceilings(run: Results, results: Sequence[Results]) -> list[Results]:
    """Fixed runs at least at the ceiling of `run`, the one that its radii are held against first.

    A plan gives up radius against its own ceiling, so that is the closest one; a fixed run is its own ceiling, and
    what it gives up is against the largest. Among fixed runs of its size that is the run itself.
    """
    if (plan := run.certified_by) is None:
        return []
    fixed = [
        (p.samples, r is run, i) for i, r in enumerate(results) if (p := r.certified_by) is not None and not p.adaptive
    ]
    return [results[i] for n, _, i in sorted(fixed, reverse=not plan.adaptive) if n >= plan.samples]


@dataclass(frozen=True)
class _Column:
    title: str
    value: Callable[[Row], Any]
    shown: Callable[[Any], str]
    best: Callable[..., Row] | None = None
    instead: Callable[[Row], str | None] = lambda row: None
    """The text of rows that are not compared with others."""

    def text(self, row: Row) -> str:
        value = self.value(row)
        return self.instead(row) or "-" if value is None else self.shown(value)


def _at_radii(row: Row) -> str | None:
    """The ACR of a run that decides radii, marked: it counts only these radii."""
    return f"{metrics.round_down(row.acr)} (at radii)" if row.radii_only and row.acr is not None else None


def _accuracy_column(radius: float) -> _Column:
    return _Column(f"CA {radius:g}", lambda row: row.certified_accuracy[radius], lambda v: f"{100 * v:.1f}", max)


def duration(seconds: float) -> str:
    """Seconds below two minutes, then minutes, then hours.

    >>> duration(75), duration(750)
    ('75.0 s', '12.5 min')
    """
    for unit, size in (("s", 1), ("min", 60)):
        if seconds < 120 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 3600:.1f} h"


_COLUMNS = (
    _Column("run", lambda row: row.name, str),
    _Column("method", lambda row: row.method, str),
    _Column("inputs", lambda row: str(row.inputs) if row.inputs == row.asked else f"{row.inputs}/{row.asked}", str),
    _Column("avg samples", lambda row: row.average_samples, lambda v: f"{v:,.0f}", min),
    _Column("time", lambda row: row.seconds or None, duration, min),
    _Column("MAD", lambda row: row.mad, lambda v: f"{v:.3f}", min),
    _Column(
        "ACR", lambda row: None if row.radii_only else row.acr, metrics.round_down, max, lambda row: _at_radii(row)
    ),
)
_ABSTAINED = _Column("abstained", lambda row: None if row.known_labels else row.abstained, "{:.1%}".format)
_NOT_CERTIFIED = _Column("not certified", lambda row: row.abstained if row.known_labels else None, "{:.1%}".format)
_NOISE = _Column("noise", lambda row: row.noise, str)
_ALPHA = _Column("alpha", lambda row: row.alpha, "{:g}".format)
_UNLABELLED = _Column("unlabelled, as wrong", lambda row: row.unlabelled if row.acr is not None else None, str)

_MARKED = "* best among runs on the same inputs with the same noise and alpha, or among logs, which do not tell theirs"


def _html_cell(cell: Cell) -> str:
    text = html.escape(cell.text)
    return f"<td><b>{text}</b></td>" if cell.best else f"<td>{text}</td>"


def _shown(cell: Cell, format: str) -> str:
    if format == "latex":
        text, mark = _tex(cell.text), r"\textbf{{{}}}"
    elif format == "markdown":
        text, mark = html.escape(cell.text, quote=False).replace("|", r"\|"), "**{}**"
    else:
        text, mark = cell.text.replace("[", r"\["), "[bold]{}*[/]"
    return mark.format(text) if cell.best else text


def _terminal(titles: list[str], cells: list[list[str]]) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable

    caption = _MARKED if len(cells) > 1 else None
    table = RichTable(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left")
    for title in titles:
        table.add_column(title, justify="left" if title in ("run", "method") else "right")
    for row in cells:
        table.add_row(*row)
    here = Console(force_jupyter=False)  # a notebook shows `_repr_html_`; text stays text
    wide = Console(force_jupyter=False, width=1_000)  # where lines are not broken, a number is not cut to "0…"
    if here.is_terminal and wide.measure(table).maximum > here.width:
        table = RichTable(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left")  # a column per run
        for number, title in enumerate((titles[0], *(row[0] for row in cells))):
            table.add_column(title, justify="right" if number else "left")
        for title, *values in list(zip(titles, *cells, strict=True))[1:]:
            table.add_row(title, *values)
        wide = here
    with wide.capture() as captured:
        wide.print(table)
    return captured.get().strip("\n")


def _markdown(titles: list[str], cells: list[list[str]]) -> str:
    rule = ["---" if title in ("run", "method") else "---:" for title in titles]
    return "\n".join("| " + " | ".join(row) + " |" for row in [titles, rule, *cells])


def _latex(titles: list[str], cells: list[list[str]]) -> str:
    body = [" & ".join(row) + r" \\" for row in cells]
    return "\n".join(
        [
            r"\begin{tabular}{ll" + "r" * (len(titles) - 2) + "}",
            r"\toprule",
            " & ".join(_tex(title) for title in titles) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


_TEX = {c: "\\" + c for c in "&%$#_{}"} | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\^{}"}


def _tex(text: str) -> str:
    return "".join(_TEX.get(c, c) for c in text)

"""A table that compares runs, with the columns of the paper.

These are method, average samples, time, MAD, ACR, and CA at radii.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from smoothcert import _check
from smoothcert.errors import warn
from smoothcert.plans import Combined
from smoothcert.runs.attacks import read_attacks
from smoothcert.runs.comparable import not_comparable
from smoothcert.runs.decline import largest_decline, why_not_comparable
from smoothcert.runs.formats import Source, collect, read_results
from smoothcert.runs.results import Results
from smoothcert.runs.run import Run
from smoothcert.runs.summary import same_inputs, usual_radii
from smoothcert.runs.table_columns import (
    COLUMNS,
    FIRST,
    LAST,
    Column,
    Row,
    accuracy_column,
    attacked_column,
)
from smoothcert.runs.table_text import STYLES, latex, markdown, terminal
from smoothcert.runs.words import out_of_reach
from smoothcert.statistics import metrics

FORMATS = {"terminal": terminal, "markdown": markdown, "latex": latex}
"""The formats in which a table is printed."""


class Cell(NamedTuple):
    """One cell of a table.

    Args:
        text: The value as printed.
        best: Whether it is the best value of its column.
    """

    text: str
    best: bool


@dataclass(frozen=True)
class Table:
    """A table of runs.

    Args:
        rows: One row per run.
        radii: The radii of the columns with certified accuracy.
        chosen: The columns to show, by their keys. Default: all that say something.
        caption: What is written above the table.
    """

    rows: tuple[Row, ...]
    radii: tuple[float, ...]
    chosen: tuple[str, ...] | None = None
    caption: str | None = None

    def plain(self) -> dict[str, Any]:
        """The table as a dictionary for JSON."""
        return {"runs": [row.values for row in self.rows]}

    def render(self, format: str = "terminal") -> str:
        """The table as text. Marks are at the best values among runs that can be compared.

        Args:
            format: One of `FORMATS`.
        """
        _check.one_of("format", format, tuple(FORMATS))
        legend = self.legend("*" if format == "terminal" else "bold")
        return FORMATS[format](self.titles, self._styled(format), legend, self.caption)

    def legend(self, mark: str) -> list[str]:
        """What the abbreviations in the titles mean, and what is marked.

        Args:
            mark: How the best values are marked.
        """
        words = set(" ".join(self.titles).split())
        legend = [f"{word}{meaning}" for word, meaning in _LEGEND.items() if word in words]
        if "CA" in words:
            legend += self._radii_that_say_little()
        if any(cell.best for row in self.cells for cell in row):
            legend.append(f"{mark}: {_BEST}")
        if words & {"ACR", "CA"}:
            legend += not_comparable([row.run for row in self.rows])
        return legend

    def _radii_that_say_little(self) -> list[str]:
        """Notes on radii that a run did not decide, or cannot prove."""
        undecided = [_UNDECIDED] if any(map(self._has_undecided, self.rows)) else []
        beyond = [out_of_reach(row.run, self.radii) for row in self.rows]
        return [*undecided, *filter(None, beyond)]

    def _has_undecided(self, row: Row) -> bool:
        """Whether a run decides radii, and not all of those that the table shows."""
        decided = row.run.decided_radii
        return decided is not None and not set(self.radii) <= set(decided)

    def _repr_html_(self) -> str:
        """The table in a notebook."""
        heads = "".join(f"<th>{html.escape(title)}</th>" for title in self.titles)
        rows = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in self._styled("html"))
        table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
        return f"{table}<p>{html.escape('; '.join(self.legend('bold')))}</p>"

    def __repr__(self) -> str:
        return self.render()

    @property
    def titles(self) -> list[str]:
        """The titles of the columns."""
        return [column.title for column in self._columns]

    @cached_property
    def cells(self) -> list[list[Cell]]:
        """The cells of each row."""
        return [
            [Cell(c.text(row), self._is_best(c, row)) for c in self._columns] for row in self.rows
        ]

    def _styled(self, format: str) -> list[list[str]]:
        """The texts of the cells, escaped and marked as this format does it."""
        escape, mark = STYLES[format]
        return [
            [mark.format(escape(c.text)) if c.best else escape(c.text) for c in row]
            for row in self.cells
        ]

    @cached_property
    def _columns(self) -> list[Column]:
        accuracy = [
            make(radius) for radius in self.radii for make in (accuracy_column, attacked_column)
        ]
        columns = [*FIRST, *accuracy, *LAST]
        if self.chosen is None:
            return [column for column in columns if self._is_shown(column)]
        return [column for key in ("run", *self.chosen) for column in columns if column.key == key]

    def _is_shown(self, column: Column) -> bool:
        """Whether a column has values, and different ones if that is asked for."""
        texts = {column.text(row) for row in self.rows} - {"-"}
        return len(texts) > 1 or (len(texts) == 1 and not column.only_where_different)

    def _is_best(self, column: Column, row: Row) -> bool:
        """Whether a row has the best value of a column among the runs that can be compared.

        Values that look equal in print are all best. A value of 0 is never best, and neither is a
        value without another one to compare it with. If less is better, values of 0 are left out of
        the comparison: a MAD of 0 is that of the reference itself. ACR and CA vary with the inputs:
        there, the best value beats another run by more than chance, and values that chance could
        explain are best as well.
        """
        rivals = [r for r in self.rows if _comparable(r, row) and column.competes(r)]
        if column.best is None or not column.number(row) or len(rivals) < 2:
            return False
        if column.averaged is None:
            return column.text(row) == column.text(column.best(rivals, key=column.number))
        _, good = metrics.best_of(
            [column.averaged(r.run.without_copies()) for r in rivals],
            largest=[r.run.largest_radius for r in rivals],
        )
        return len(good) < len(rivals) and rivals.index(row) in good


def table(
    results: Source | Sequence[Source] | Mapping[str, Source],
    *,
    reference: Source | None = None,
    radii: Sequence[float] | None = None,
    columns: Sequence[str] | None = None,
    caption: str | None = None,
) -> Table:
    """Compare runs in a table with one row per run.

    MAD is None if a run cannot be compared with the reference, because the noise, the pilot or
    alpha differ.

    Args:
        results: Runs and other results, or their folders and files; a dictionary gives them names.
            Equal names get the names of their folders.
        reference: What MAD is measured against. Default: the fixed run at the ceiling of the plan.
        radii: The radii of the columns with certified accuracy. Default: those that the plans
            decide, or steps up to the largest one.
        columns: The columns to show after the name, as in ["acr", "ca"]; see `COLUMNS`.
        caption: What is written above the table. One with a formula or a command is LaTeX already.
    """
    if columns is not None:
        columns = tuple(_check.one_of("each column", key, COLUMNS) for key in columns)
    runs = [part for run in collect(results) for part in _parts(run)]
    radii = _check.radii(usual_radii(runs) if radii is None else radii)
    if reference is None:
        references = [_ceilings(run, runs) for run in runs]
    else:
        references = [[_reference(reference, runs)]] * len(runs)
    rows = [_row(run, others, radii) for run, others in zip(runs, references, strict=True)]
    return Table(tuple(rows), tuple(radii), columns, caption)


def _reference(source: Source, runs: Sequence[Results]) -> Results:
    """What MAD is measured against, with a warning about runs that cannot be compared with it."""
    reference = read_results(source)
    reasons = list(filter(None, [why_not_comparable(run, reference) for run in runs]))
    if reasons:
        warn(
            "no-mad",
            "no MAD against {reference}: {reasons}",
            reference=reference.name,
            reasons="; ".join(reasons),
        )
    return reference


def _parts(run: Results) -> list[Results]:
    """The results of each plan of a combined one; another run is its only part."""
    if not isinstance(run, Run) or not isinstance(run.plan, Combined):
        return [run]
    return [
        replace(part, name=f"{run.name}, {plan.name}")
        for part, plan in zip(run.split(), run.plan.plans, strict=True)
    ]


def _row(run: Results, references: Sequence[Results], radii: Sequence[float]) -> Row:
    """The row of a run. MAD is measured against the first reference that can be compared with it.

    CA is None if it is unknown, because there are no labels or the plan decides only smaller radii.
    """
    accuracy: dict[float, float | None] = dict.fromkeys(radii)
    if run.labelled:
        largest = max(run.decided_radii or (math.inf,))
        known = [r for r in radii if r <= largest]
        accuracy |= zip(known, run.certified_accuracy(known).tolist(), strict=True)
    mad = None
    ceiling = None
    for other in references:
        mad = largest_decline(run, other)
        if mad is not None:
            plan = other.certified_by
            ceiling = None if plan is None or plan.adaptive else plan.samples
            break
    return Row(run, accuracy, mad, ceiling, read_attacks(run) if isinstance(run, Run) else None)


def _comparable(a: Row, b: Row) -> bool:
    """Whether two runs have the same inputs, noise, alpha and bound."""
    return same_inputs(a.run, b.run) and a.rules == b.rules


def _ceilings(run: Results, results: Sequence[Results]) -> list[Results]:
    """Fixed runs that MAD of a run may be measured against, in the order in which to try them.

    An adaptive plan is measured against its own ceiling, so the fixed run with the fewest samples
    above it is first. A fixed run is measured against the largest fixed run. If no other one is
    larger, that is the run itself.
    """
    plan = run.certified_by
    if plan is None:
        return []
    fixed = []
    for place, other in enumerate(results):
        its_plan = other.certified_by
        if its_plan is None or its_plan.adaptive or its_plan.samples < plan.samples:
            continue
        fixed.append((its_plan.samples, other is run, place))
    return [results[place] for _, _, place in sorted(fixed, reverse=not plan.adaptive)]


_LEGEND = {
    "MAD": ": the largest loss of radius of any input against fixed sampling at the ceiling, "
    "on the same noise",
    "ACR": ": average certified radius, where an input without a correct certificate counts as 0; "
    "rounded down, as all radii",
    "CA": " r: certified accuracy, the share of inputs that are correct with a radius above r",
    "attacked": " r: the share of attacked inputs that are right and that no attack altered "
    "within r",
    "radius": ": of the inputs that have a certificate",
    "p": ": the share of votes for the label that 75% and 50% of the inputs reach, 0 where another "
    "class wins",
}
_UNDECIDED = (
    "CA r where a run decides radii, but not r: the share at the next larger radius that it "
    "decides, a lower bound; - where r is larger than all of them"
)
_BEST = (
    "best among runs with the same inputs, noise, alpha and bound; logs are compared as if these "
    "were the same. ACR and CA: only where another run is worse by more than chance (95%, paired), "
    "with all runs that chance could explain"
)

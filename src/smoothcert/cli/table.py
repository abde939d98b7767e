"""`smoothcert table`: runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from smoothcert.cli.options import Json, numbers

Runs = Annotated[list[Path], typer.Argument(metavar="RUN", help="Runs' folders, exports or published logs.")]
Reference = Annotated[
    Path | None,
    typer.Option("--reference", help="The run that MAD is measured against. Default: the fixed run at its ceiling."),
]
Radii = Annotated[str | None, typer.Option("--radii", help="Radii for certified accuracy, separated by commas.")]


def command(
    runs: Runs,
    reference: Reference = None,
    radii: Radii = None,
    format: Annotated[
        Literal["terminal", "markdown", "latex", "csv", "json"], typer.Option("--format", help="How to print it.")
    ] = "terminal",
    json: Json = False,
) -> None:
    """Compare runs: average samples, time, MAD, ACR and certified accuracy, the best values marked."""
    from smoothcert.runs.formats import read_results
    from smoothcert.runs.table import compare

    table = compare(
        [read_results(run) for run in runs],
        reference=None if reference is None else read_results(reference),
        radii=None if radii is None else numbers("--radii", radii),
    )
    print(table.render("json" if json else format))

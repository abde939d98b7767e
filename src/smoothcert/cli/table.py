"""`smoothcert table`: compare runs in a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from smoothcert.cli.options import Json, numbers
from smoothcert.errors import InvalidInput

Runs = Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs, exports or published logs.")]
Reference = Annotated[
    Path | None,
    typer.Option(help="The run that MAD is measured against. Default: the fixed run at its ceiling."),
]
Radii = Annotated[str | None, typer.Option(help="Radii for certified accuracy, separated by commas.")]
LogRadius = Annotated[
    float | None,
    typer.Option(help="The radius that was tested, for a log that only says whether it was proved."),
]


def command(
    runs: Runs,
    reference: Reference = None,
    radii: Radii = None,
    log_radius: LogRadius = None,
    format: Annotated[
        Literal["terminal", "markdown", "latex", "csv", "json"] | None,
        typer.Option(help="The format of the table. Default: terminal."),
    ] = None,
    json: Json = False,
) -> None:
    """Compare runs: average samples, time, MAD, ACR and certified accuracy, with marks at the best values."""
    from smoothcert.runs.collect import collect
    from smoothcert.runs.table import table

    if json and format not in (None, "json"):
        raise InvalidInput(f"--json and --format {format} exclude one another: give one of them")
    made = table(
        collect(runs, radius=log_radius),
        reference=reference,
        radii=None if radii is None else numbers("--radii", radii),
    )
    print(made.render("json" if json else format or "terminal"))

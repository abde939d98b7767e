"""`smoothcert table`: compare runs in a table."""

from __future__ import annotations

from typing import Literal

from smoothcert.cli.options import Json, LogRadius, Radii, Reference, Runs, numbers
from smoothcert.errors import InvalidInput


def command(
    runs: Runs,
    *,
    reference: Reference = None,
    radii: Radii = None,
    log_radius: LogRadius = None,
    format: Literal["terminal", "markdown", "latex", "json"] | None = None,
    json: Json = False,
) -> None:
    """Compare runs: average samples, time, MAD, ACR and certified accuracy, with marks at the best values.

    Args:
        format: The format of the table. Default: terminal.
    """
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

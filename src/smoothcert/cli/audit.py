"""`smoothcert audit`: check a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smoothcert.cli.groups import PlaceOptions, expand
from smoothcert.cli.options import Json, print_json


@expand
def command(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    places: PlaceOptions,
    redraw: Annotated[int, typer.Option(help="How many randomly chosen inputs to draw again.")] = 5,
    seed: Annotated[
        int | None, typer.Option(help="Chooses the inputs to draw again. Default: others each time.")
    ] = None,
    json: Json = False,
) -> None:
    """Derive every radius again from its votes, and draw some inputs again. The exit code is 1 if a check fails."""
    from dataclasses import asdict

    from smoothcert.tasks.audit import audit

    found = audit(run, redraw=redraw, seed=seed, **places.settings())
    if json:
        print_json(asdict(found) | {"holds": not found.findings})
    else:
        for finding in found.findings:
            print(f"input {finding.id}: {finding.reason}")
        verdict = f"{len(found.findings)} do NOT hold" if found.findings else "all hold"
        checked = f"{found.checked}" if found.checked >= found.asked else f"{found.checked} of {found.asked}"
        labels = "" if found.labels_checked else " (labels not compared, because the data was not found)"
        print(f"{run}: {checked} certificates checked{labels}, {found.redrawn} drawn again: {verdict}")
    if found.findings:
        raise typer.Exit(1)

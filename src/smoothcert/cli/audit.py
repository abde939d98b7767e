"""`smoothcert audit`: check a run."""

from __future__ import annotations

from pathlib import Path

import typer

from smoothcert.cli.groups import PlaceOptions
from smoothcert.cli.options import Json, print_json, refuse_to_replace


def command(
    run: Path,
    *,
    places: PlaceOptions,
    redraw: int = 5,
    seed: int | None = None,
    page: Path | None = None,
    json: Json = False,
) -> None:
    """Derive every radius again from its votes, draw some inputs again, and say whether the plan keeps its alpha.

    The exit code is 1 if a certificate does not hold or if the plan breaks its alpha.

    Args:
        run: The run's folder.
        redraw: How many randomly chosen inputs to draw again.
        seed: Chooses the inputs to draw again. Default: others each time.
        page: Also write a safety case: one page with the claim, its basis and this audit.
    """
    from dataclasses import asdict

    from smoothcert.cli.coverage import plain
    from smoothcert.runs.run import open_run
    from smoothcert.runs.summary import all_together
    from smoothcert.tasks.audit import audit

    found = audit(run, redraw=redraw, seed=seed, **places.settings())
    if page is not None:
        from smoothcert.tasks.safety_case import write_case

        refuse_to_replace(page, [])
        write_case(run, found, page)
    proved = found.coverage is not None and found.coverage.proved
    if json:
        coverage = None if found.coverage is None else plain(found.coverage)
        print_json({**asdict(found), "coverage": coverage, "keeps_alpha": proved, "holds": found.holds})
    else:
        for finding in found.findings:
            print(f"input {finding.id}: {finding.reason}")
        outcome = f"{len(found.findings)} do NOT hold"
        if not found.findings:
            outcome = all_together(open_run(run)) or "all hold" if proved else "all radii follow from their votes"
        checked = f"{found.checked}" if found.checked >= found.asked else f"{found.checked} of {found.asked}"
        labels = "" if found.labels_checked else " (labels not compared, because the data was not found)"
        print(f"{run}: {checked} certificates checked{labels}, {found.redrawn} drawn again: {outcome}.")
        print("Nothing is known about the alpha of the plan." if found.coverage is None else found.coverage.sentence)
    if not found.holds:
        raise typer.Exit(1)

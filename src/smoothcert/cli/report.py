"""`smoothcert report`: write an HTML page about runs, or figures for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from smoothcert.cli.options import numbers
from smoothcert.cli.table import LogRadius, Radii, Reference, Runs


def command(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", help="The page to write.")] = Path("report.html"),
    reference: Reference = None,
    radii: Radii = None,
    log_radius: LogRadius = None,
    data: Annotated[
        str | None,
        typer.Option("--data", help="The data with the pictures, as for certify. Default: the data of the runs."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", help="Also write every figure as PDF, SVG and PNG to this folder.")
    ] = None,
) -> None:
    """Write one self-contained page about runs, to read offline or to send to a colleague."""
    from smoothcert.report import write_report
    from smoothcert.runs.formats import read_all, read_results
    from smoothcert.runs.table import with_certificates

    results = with_certificates(read_all(runs, radius=log_radius))
    page = write_report(
        results,
        out,
        reference=None if reference is None else read_results(reference),
        radii=None if radii is None else numbers("--radii", radii),
        dataset=None if data is None else _load(data),
    )
    print(f"{page}: {page.stat().st_size / 1e6:.1f} MB")
    if figures is not None:
        from smoothcert.report.figures import save_figures

        for path in save_figures(results, figures):
            print(path)


def _load(data: str) -> Any:
    from smoothcert.datasets import load_dataset  # this imports torch, so we do it only for pictures

    return load_dataset(data)

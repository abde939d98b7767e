"""`smoothcert export`: a run as a file for other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer


def command(
    run: Annotated[Path, typer.Argument(help="A run's folder, an export or a published log.")],
    format: Annotated[
        Literal["cohen", "csv", "parquet", "json"] | None,
        typer.Option(
            "--format",
            help="cohen: the published form of logs, tab-separated. The others keep everything. Default: by the "
            "file's ending; cohen for .tsv.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The file to write. Default: standard output.")] = None,
) -> None:
    """Write a run's certificates as a file; radii are rounded down."""
    from smoothcert.errors import InvalidInput
    from smoothcert.runs.formats import read_results, write_results

    called = out.suffix.removeprefix(".") if out and out.suffix in (".csv", ".parquet", ".json") else None
    if out and not format and not called and out.suffix not in ("", ".tsv", ".txt", ".log"):
        raise InvalidInput(
            f"there is no export for {out.suffix}: end in .tsv, .csv, .parquet or .json, or give --format"
        )
    if format and called and format != called:
        raise InvalidInput(f"{out} ends like a {called} file, and as {format} could not be read again")
    results = read_results(run)
    content = write_results(results, out, format or called or "cohen")
    if out is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        print(f"{out}: {len(results):,} inputs")

"""`smoothcert export`: write a run as a file for other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from smoothcert.cli.options import LogRadius, numbers, refuse_to_replace


def command(
    run: Path,
    *,
    format: Literal["cohen", "csv", "parquet", "json", "sok", "card"] | None = None,
    out: Path | None = None,
    radii: str | None = None,
    log_radius: LogRadius = None,
) -> None:
    """Write the certificates of a run as a file. Radii are rounded down.

    Args:
        run: A run's folder, an export or a published log.
        format: cohen: the published form of logs, tab-separated. csv, parquet, json: all columns and settings. sok:
            rows for the SoK leaderboard, in YAML. card: a model card for Hugging Face, in Markdown. Default: by the
            ending of the file; cohen for .tsv.
        out: The file to write. Default: standard output.
        radii: sok, card: the radii of the rows, separated by commas.
    """
    from smoothcert.runs.formats import beside, format_of, read_results, write_results

    chosen = format_of(out, format)
    if out is not None:
        refuse_to_replace(out, [run])
    results = read_results(run, radius=log_radius)
    content = write_results(results, out, chosen, radii=None if radii is None else numbers("--radii", radii))
    if out is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        settings = f"; noise, plan and manifest are in {beside(out).name}" if chosen == "csv" else ""
        print(f"{out}: {len(results):,} inputs{settings}")

"""`smoothcert merge`: merge the runs of several jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smoothcert.cli.options import Json, folder, print_json


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="The folders of the runs.")],
    out: Annotated[Path, typer.Option(parser=folder, metavar="<path>", help="A new folder for the merged run.")],
    partial: Annotated[bool, typer.Option("--partial", help="Merge although certificates are missing.")] = False,
    json: Json = False,
) -> None:
    """Merge the runs of several jobs, such as those of certify --shard."""
    from smoothcert.runs.merge import merge

    run = merge(runs, out=out, partial=partial)
    if json:
        print_json({"out": str(out), "inputs": len(run), "asked": len(run.manifest.ids), "complete": run.complete})
        return
    missing = len(run.manifest.ids) - len(run)
    print(f"{out}: {len(run):,} inputs of {len(runs)} runs" + (f", {missing:,} are missing" if missing else ""))

"""`smoothcert merge`: merge the runs of several jobs."""

from __future__ import annotations

from smoothcert.cli.options import Folder, Json, Runs, print_json


def command(runs: Runs, *, out: Folder, partial: bool = False, json: Json = False) -> None:
    """Merge the runs of several jobs, such as those of certify --shard.

    Args:
        runs: The folders of the runs.
        out: A new folder for the merged run.
        partial: Merge although certificates are missing.
    """
    from smoothcert.runs.merge import merge

    run = merge(runs, out=out, partial=partial)
    if json:
        print_json({"out": str(out), "inputs": len(run), "asked": len(run.manifest.ids), "complete": run.complete})
        return
    missing = len(run.manifest.ids) - len(run)
    print(f"{out}: {len(run):,} inputs of {len(runs)} runs" + (f", {missing:,} are missing" if missing else ""))

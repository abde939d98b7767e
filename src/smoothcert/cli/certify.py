"""`smoothcert certify`: certify inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from smoothcert.cli.groups import CertifiedNoiseOptions, PlanOptions, SubjectOptions, expand
from smoothcert.cli.options import Data, folder, print_json

_WHERE = "Many devices"


@expand
def command(
    data: Data,
    noise: CertifiedNoiseOptions,
    plan: PlanOptions,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            parser=folder,
            metavar="<path>",
            help="The folder of the run. The same command resumes it, also with more inputs.",
        ),
    ],
    subject: SubjectOptions,
    skip: Annotated[int | None, typer.Option(help="Take every N-th input: 20 takes ids 0, 20, 40, ...")] = None,
    limit: Annotated[int | None, typer.Option(help="Take at most this many inputs.")] = None,
    ids: Annotated[str | None, typer.Option(help="Take these inputs, as in 0,5,10-20.")] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            help="Take one part of these inputs: 3/16 is the third of 16 parts. It needs --batch. Merge the runs with "
            "merge."
        ),
    ] = None,
    executor: Annotated[
        Literal["local", "ray"],
        typer.Option(help="Where to compute: on this machine, or on a Ray cluster.", rich_help_panel=_WHERE),
    ] = "local",
    devices: Annotated[
        str | None,
        typer.Option(help="local: start one process per device: cuda:0,cuda:1 or all.", rich_help_panel=_WHERE),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="ray: auto or HOST:PORT. Default: a new Ray instance.", rich_help_panel=_WHERE),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(help="ray: the number of workers, or auto: as many as fit.", rich_help_panel=_WHERE),
    ] = None,
    gpus_per_worker: Annotated[
        float | None,
        typer.Option(help="ray: GPUs per worker. Default: 1 if there are any.", rich_help_panel=_WHERE),
    ] = None,
    track: Annotated[
        list[str],
        typer.Option(help="Report to tensorboard:DIR, wandb:PROJECT or mlflow:EXPERIMENT.", metavar="TRACKER"),
    ] = [],  # noqa: B006
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no summary.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Certify inputs and save the certificates in a folder. Run it again to resume."""
    chosen, smoothing = plan.build(), noise.build()
    from smoothcert.compat.trackers import tracker_named
    from smoothcert.executors import choose_executor
    from smoothcert.runs.progress import Progress
    from smoothcert.runs.table import table
    from smoothcert.tasks.certify import certify

    silent: list[Progress] = [Progress()] if quiet else []
    run = certify(
        subject.model,
        data,
        noise=smoothing if noise.sigma is None else None,
        sigma=noise.sigma,
        plan=chosen,
        out=out,
        ids=ids,
        skip=skip,
        limit=limit,
        shard=shard,
        executor=choose_executor(
            executor, devices=devices, address=address, workers=workers, gpus_per_worker=gpus_per_worker
        ),
        progress=[*silent, *map(tracker_named, track)],
        **subject.settings(),
    )
    radii = plan.shown_radii()
    if json:
        [row] = table([run], radii=radii).plain()["runs"]
        print_json({"out": str(out), "complete": run.complete} | row)
    elif radii and not quiet:
        shares = zip(radii, run.certified_accuracy(radii), strict=True)
        print("certified accuracy: " + ", ".join(f"{100 * share:.1f}% at {radius:g}" for radius, share in shares))

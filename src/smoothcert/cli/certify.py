"""`smoothcert certify`: certify inputs."""

from __future__ import annotations

import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from smoothcert.cli.groups import CertifiedNoiseOptions, PlanOptions, SubjectOptions, expand
from smoothcert.cli.options import Data, Ids, Skip, folder, print_json
from smoothcert.cli.start import seconds_since_start

_place_option = partial(typer.Option, rich_help_panel="Many devices")


@expand
def command(
    data: Data,
    noise: CertifiedNoiseOptions,
    plan: PlanOptions,
    out: Annotated[
        Path,
        typer.Option(
            parser=folder,
            metavar="<path>",
            help="The folder of the run. The same command resumes it, also with more inputs.",
        ),
    ],
    subject: SubjectOptions,
    budget: Annotated[
        float | None,
        typer.Option(help="Samples for all inputs, as in 5e6. They set the price, or the ceiling of a --method."),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Minutes for all inputs together, start-up included.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would cost, and stop.")] = False,
    skip: Skip = None,
    limit: Annotated[int | None, typer.Option(help="Take at most this many inputs.")] = None,
    ids: Ids = None,
    shard: Annotated[
        str | None,
        typer.Option(
            help="Take one part of these inputs: 3/16 is the third of 16 parts. It needs --batch. Merge the runs with "
            "merge."
        ),
    ] = None,
    executor: Annotated[
        Literal["local", "ray"],
        _place_option(help="Where to compute: on this machine, or on a Ray cluster."),
    ] = "local",
    devices: Annotated[
        str | None, _place_option(help="local: start one process per device: cuda:0,cuda:1 or all.")
    ] = None,
    address: Annotated[str | None, _place_option(help="ray: auto or HOST:PORT. Default: a new Ray instance.")] = None,
    workers: Annotated[str | None, _place_option(help="ray: the number of workers, or auto: as many as fit.")] = None,
    gpus_per_worker: Annotated[
        float | None, _place_option(help="ray: GPUs per worker. Default: 1 if there are any.")
    ] = None,
    track: Annotated[
        list[str],
        typer.Option(help="Report to tensorboard:DIR, wandb:PROJECT or mlflow:EXPERIMENT.", metavar="TRACKER"),
    ] = [],  # noqa: B006
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no summary.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Certify inputs and save the certificates in a folder. Run it again to resume."""
    chosen, smoothing = plan.build(budget=budget is not None or minutes is not None), noise.build()
    from smoothcert.compat.trackers import tracker_named
    from smoothcert.executors import choose_executor
    from smoothcert.runs.progress import Progress, progress_here
    from smoothcert.runs.run import Run
    from smoothcert.runs.summary import summary
    from smoothcert.runs.table import table
    from smoothcert.tasks.certify import certify

    what = dict[str, Any](
        data=data,
        noise=smoothing if noise.sigma is None else None,
        sigma=noise.sigma,
        plan=chosen,
        budget=budget,
        minutes=minutes,
        since=time.perf_counter() - seconds_since_start(),
        ids=ids,
        skip=skip,
        limit=limit,
        executor=choose_executor(
            executor, devices=devices, address=address, workers=workers, gpus_per_worker=gpus_per_worker
        ),
        **subject.settings(),
    )
    if dry_run:
        from smoothcert.tasks.forecast import forecast

        expected = forecast(**what)
        if json:
            print_json(asdict(expected) | {"seconds": expected.seconds})
        else:
            print(f"forecast: {expected}")
        return
    shown = Progress() if quiet else progress_here(summary=False)
    run = certify(out=out, shard=shard, progress=[shown, *map(tracker_named, track)], **what)
    assert isinstance(run, Run)  # it has a folder
    radii = plan.shown_radii()
    if json:
        [row] = table([run], radii=radii).plain()["runs"]
        print_json({"out": str(out), "complete": run.complete, "command_seconds": seconds_since_start()} | row)
    elif not quiet:
        print(summary(run, radii=radii, seconds=seconds_since_start()))

"""`smoothcert certify`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from smoothcert.cli.groups import NoiseOptions, PlanOptions, expand
from smoothcert.cli.options import (
    Batch,
    Classes,
    Compile,
    Data,
    Device,
    Dtype,
    Model,
    Seed,
    Weights,
    folder,
)

_WHERE = "Many devices"


@expand
def command(
    data: Data,
    noise: NoiseOptions,
    plan: PlanOptions,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            parser=folder,
            metavar="<path>",
            help="The run's folder. The same command resumes it, also with more inputs.",
        ),
    ],
    model: Model = None,
    weights: Weights = None,
    classes: Classes = None,
    skip: Annotated[int | None, typer.Option(help="Take every N-th input: 20 takes ids 0, 20, 40, ...")] = None,
    limit: Annotated[int | None, typer.Option(help="Take at most so many inputs.")] = None,
    ids: Annotated[str | None, typer.Option(help="Take these inputs, as in 0,5,10-20.")] = None,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = "auto",
    batch: Batch = "auto",
    compile: Compile = "auto",
    executor: Annotated[
        Literal["local", "ray"],
        typer.Option(help="Where to compute: on this machine, or on a Ray cluster.", rich_help_panel=_WHERE),
    ] = "local",
    devices: Annotated[
        str | None,
        typer.Option(help="local: one process on each of these: cuda:0,cuda:1 or all.", rich_help_panel=_WHERE),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="ray: auto or HOST:PORT. Default: a Ray of its own.", rich_help_panel=_WHERE),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(help="ray: how many, or auto: as many as there is room for.", rich_help_panel=_WHERE),
    ] = None,
    gpus_per_worker: Annotated[
        float | None,
        typer.Option(help="ray: GPUs of a worker. Default: 1 if there are any.", rich_help_panel=_WHERE),
    ] = None,
) -> None:
    """Certify inputs and keep the certificates in a folder. Run it again to resume."""
    chosen, smoothing = plan.build(), noise.build()
    from smoothcert.certification import certify
    from smoothcert.executors import choose_executor

    run = certify(
        model,
        data,
        noise=smoothing,
        plan=chosen,
        out=out,
        ids=ids,
        skip=skip,
        limit=limit,
        weights=weights,
        classes=classes,
        seed=seed,
        device=device,
        dtype=dtype,
        batch=batch,
        compile=compile,
        executor=choose_executor(
            executor, devices=devices, address=address, workers=workers, gpus_per_worker=gpus_per_worker
        ),
    )
    if radii := plan.shown_radii():
        shares = zip(radii, run.certified_accuracy(radii), strict=True)
        print("certified accuracy: " + ", ".join(f"{100 * share:.1f}% at {radius:g}" for radius, share in shares))

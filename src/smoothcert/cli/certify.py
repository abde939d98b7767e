"""`smoothcert certify`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from smoothcert.cli.options import (
    Alpha,
    Batch,
    Classes,
    Compile,
    Data,
    Decline,
    Device,
    Dtype,
    Grid,
    Kind,
    Method,
    Model,
    Pilot,
    PilotUse,
    Samples,
    Seed,
    Sigma,
    Weights,
    build_plan,
    folder,
)

_WHERE = "Many devices"


def command(
    data: Data,
    sigma: Sigma,
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
    samples: Samples = 100_000,
    method: Method = "input-specific",
    decline: Decline = 0.05,
    kind: Kind = "absolute",
    pilot: Pilot = None,
    pilot_use: PilotUse = "fresh",
    alpha: Alpha = 0.001,
    grid: Grid = None,
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
    plan = build_plan(
        method, samples=samples, decline=decline, kind=kind, pilot=pilot, pilot_use=pilot_use, alpha=alpha, grid=grid
    )
    from smoothcert.certifying import certify
    from smoothcert.executors import choose_executor
    from smoothcert.noise import Gaussian

    certify(
        model,
        data,
        noise=Gaussian(sigma),
        plan=plan,
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

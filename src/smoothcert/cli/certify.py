"""`smoothcert certify`: certify inputs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from smoothcert.cli.groups import PlanOptions, SubjectOptions, SweepOptions
from smoothcert.cli.options import STARTED, Data, Folder, Ids, Limit, Skip, print_json
from smoothcert.errors import InvalidInput

if TYPE_CHECKING:
    from smoothcert.runs.run import Run
    from smoothcert.runs.table import Table


def command(
    *,
    data: Data,
    noise: SweepOptions,
    plan: PlanOptions,
    out: Folder,
    subject: SubjectOptions,
    budget: float | None = None,
    minutes: float | None = None,
    dry_run: bool = False,
    joint: bool = False,
    skip: Skip = None,
    limit: Limit = None,
    ids: Ids = None,
    shard: str | None = None,
    executor: Literal["local", "ray"] = "local",
    devices: str | None = None,
    address: str | None = None,
    workers: str | None = None,
    gpus_per_worker: float | None = None,
    track: Annotated[list[str], typer.Option(metavar="TRACKER")] = [],  # noqa: B006
    quiet: Annotated[bool, typer.Option("--quiet", "-q")] = False,
    json: bool = False,
) -> None:
    """Certify inputs and save the certificates in a folder. Run it again to resume.

    Args:
        out: The folder of the run. The same command resumes it, also with more inputs.
        budget: Samples for all inputs, as in 5e6. They set the price, or the ceiling of a --method.
        minutes: Minutes for all inputs together, start-up included.
        dry_run: Say what it would cost, and stop.
        joint: Divide alpha by the number of inputs, so that all certificates hold together.
        shard: Take one part of these inputs: 3/16 is the third of 16 parts. It needs --batch. Merge the runs with
            merge.
        track: Report to tensorboard:DIR, wandb:PROJECT or mlflow:EXPERIMENT.
        quiet: Show no progress and no summary.
        json: Print the results as JSON.

    Many devices:
        executor: Where to compute: on this machine, or on a Ray cluster.
        devices: local: start one process per device: cuda:0,cuda:1 or all.
        address: ray: auto or HOST:PORT. Default: a new Ray instance.
        workers: ray: the number of workers, or auto: as many as fit.
        gpus_per_worker: ray: GPUs per worker. Default: 1 if there are any.
    """
    chosen = plan.build(budget=budget is not None or minutes is not None)
    noises, radii = noise.runs(), plan.shown_radii()
    from smoothcert.compat.trackers import tracker_named
    from smoothcert.executors import choose_executor
    from smoothcert.runs.progress import Progress, progress_here
    from smoothcert.runs.run import Run
    from smoothcert.runs.summary import summary
    from smoothcert.runs.table import table
    from smoothcert.tasks.certify import certify, forecast

    several = len(noises) > 1
    asked = [
        dict[str, Any](
            data=data,
            plan=chosen,
            budget=budget,
            minutes=None if minutes is None else minutes * number / len(noises),
            since=STARTED,
            ids=ids,
            skip=skip,
            limit=limit,
            shard=shard,
            executor=choose_executor(
                executor, devices=devices, address=address, workers=workers, gpus_per_worker=gpus_per_worker
            ),
            **smoothing,
            **(_at(smoothing["sigma"], subject.settings()) if several else subject.settings()),
        )
        for number, smoothing in enumerate(noises, 1)
    ]
    if dry_run:
        forecasts = [forecast(joint=joint, **what) for what in asked]
        plain = [asdict(expected) | {"seconds": expected.seconds} for expected in forecasts]
        if json:
            print_json({"runs": plain} if several else plain[0])
        else:
            print(*(f"forecast: {expected}" for expected in forecasts), sep="\n")
        return
    runs = []
    for what in asked:
        shown = Progress() if quiet else progress_here(summary=False)
        place = out / f"sigma-{what['sigma']:g}" if several else out
        run = certify(out=place, joint=joint, progress=[shown, *map(tracker_named, track)], **what)
        assert isinstance(run, Run)  # it has a folder
        runs.append(run)
        if several:
            shown.say(summary(run, radii=radii))
    rows = table(runs, radii=radii)
    found = _recommend(runs, rows, out) if several else {}
    if json:
        complete = all(run.complete for run in runs)
        about = {"out": str(out), "complete": complete, "command_seconds": time.perf_counter() - STARTED}
        print_json(about | found | (rows.plain() if several else rows.plain()["runs"][0]))
    elif several and not quiet:
        print(rows.render(), *(found["recommendation"] or {}).get("reasons", ()), sep="\n")
        print(f"The report is {found['report']}: open it in a browser.")
    elif not quiet:
        print(summary(runs[0], radii=radii, seconds=time.perf_counter() - STARTED))


def _at(sigma: float, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of the run with one sigma: its own model or weights, if their names contain {sigma}."""
    try:
        named = {
            key: settings[key].format(sigma=sigma) for key in ("model", "weights") if "{sigma" in (settings[key] or "")
        }
    except (KeyError, IndexError, ValueError) as error:
        raise InvalidInput(f"cannot fill in {{sigma}}: {error}; write {{sigma}}, or {{sigma:.2f}}") from None
    return settings | named


def _recommend(runs: Sequence[Run], rows: Table, out: Path) -> dict[str, Any]:
    """Write the page of a sweep; returns the page and the recommendation, for JSON."""
    from smoothcert.report import write_report
    from smoothcert.runs.recommendation import recommend

    found = recommend(runs, radii=rows.radii)
    page = write_report(runs, out / "report.html", radii=rows.radii, recommendation=found)
    return {"report": str(page), "recommendation": None if found is None else found.plain()}

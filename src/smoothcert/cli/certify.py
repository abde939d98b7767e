"""Commands that make runs: `demo` and `certify`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from smoothcert.cli.command import Output
from smoothcert.cli.options import (
    STARTED,
    Data,
    Folder,
    Ids,
    Limit,
    PlanOptions,
    Skip,
    SubjectOptions,
    SweepOptions,
    folder,
)
from smoothcert.errors import InvalidInput

_DEMO_RADII = (0.0, 0.25, 0.5)


def demo(*, out: Folder = Path("runs/demo")) -> Output:
    """Certify 500 bundled images with a bundled model: fixed, input-specific, and at chosen radii by two bounds.

    Args:
        out: The folder for the runs and the report.
    """
    from smoothcert.noises import Gaussian
    from smoothcert.plans import AtRadii, Fixed, InputSpecific
    from smoothcert.report import write_report
    from smoothcert.runs.table import table
    from smoothcert.tasks.certify import certify

    plans = {
        "fixed": Fixed(10_000),
        "input-specific": InputSpecific(10_000, decline=0.05),
        "radii": AtRadii(_DEMO_RADII, 10_000, known_labels=True),
        "radii-runner-up": AtRadii(_DEMO_RADII, 10_000, known_labels=True, bound="runner-up"),
    }
    runs = [
        certify("fashion-cnn", "fashion-mnist", noise=Gaussian(0.25), plan=plan, out=out / name)
        for name, plan in plans.items()
    ]
    rows = table(runs, radii=_DEMO_RADII)
    page = write_report(runs, out / "report.html", radii=_DEMO_RADII)
    fixed, _, radii, _ = (run.average_samples or 1 for run in runs)
    saved = f"The table of certified accuracy at three radii took {fixed / radii:.0f} times fewer samples than usual."
    return Output(
        rows.plain(), [rows.render(), saved, f"The report is {page}: open it in a browser."]
    )


def certify(
    *,
    data: Data,
    noise: SweepOptions,
    plan: PlanOptions,
    out: Annotated[Path | None, typer.Option(parser=folder, metavar="<path>")] = None,
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
) -> Output:
    """Certify inputs and save the certificates in a folder. Run it again to resume.

    Args:
        out: The folder of the run. The same command resumes it, also with more inputs.
        budget: Samples for all inputs, as in 5e6. They set the price, or the ceiling of a --method.
        minutes: Minutes for all inputs together, start-up included.
        dry_run: Say what it would cost, or what the rest of a run in --out will cost, and stop.
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
    if not (out or dry_run):
        raise InvalidInput("give --out DIR, the folder of the run")
    chosen = plan.build(budget=budget is not None or minutes is not None)
    noises, radii = noise.runs(), plan.shown_radii()
    from smoothcert.compat.trackers import tracker_named
    from smoothcert.executors import choose_executor
    from smoothcert.runs.progress import Display, Progress
    from smoothcert.runs.run import Run
    from smoothcert.runs.table import table
    from smoothcert.runs.words import summary
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
            joint=joint,
            out=out / f"sigma-{smoothing['sigma']:g}" if out is not None and several else out,
            executor=choose_executor(
                executor,
                devices=devices,
                address=address,
                workers=workers,
                gpus_per_worker=gpus_per_worker,
            ),
            **smoothing,
            **(_at(smoothing["sigma"], subject.settings()) if several else subject.settings()),
        )
        for number, smoothing in enumerate(noises, 1)
    ]
    if dry_run:
        forecasts = [forecast(**what) for what in asked]
        plain = [asdict(expected) | {"seconds": expected.seconds} for expected in forecasts]
        return Output(
            {"runs": plain} if several else plain[0],
            [f"forecast: {expected}" for expected in forecasts],
        )
    assert out is not None
    runs = []
    for what in asked:
        shown = Progress() if quiet else Display(summary=False)
        shown.command = True
        run = certify(progress=[shown, *map(tracker_named, track)], **what)
        assert isinstance(run, Run)  # it has a folder
        runs.append(run)
        if several:
            shown.say(summary(run, radii=radii))
    seconds, complete = time.perf_counter() - STARTED, all(run.complete for run in runs)
    about = {"out": str(out), "complete": complete, "command_seconds": seconds}
    if not several:
        text = [] if quiet else [summary(runs[0], radii=radii, seconds=seconds)]
        return Output(lambda: about | table(runs, radii=radii).plain()["runs"][0], text)
    from smoothcert.report import write_report
    from smoothcert.runs.comparison import recommend

    rows = table(runs, radii=radii)
    found = recommend(runs, radii=rows.radii)
    page = write_report(runs, out / "report.html", radii=rows.radii, recommendation=found)
    about |= {"command_seconds": time.perf_counter() - STARTED, "report": str(page)}
    about |= {"recommendation": None if found is None else found.plain()}
    text = [
        rows.render(),
        *(() if found is None else found.reasons),
        f"The report is {page}: open it in a browser.",
    ]
    return Output(about | rows.plain(), [] if quiet else text)


def _at(sigma: float, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of the run with one sigma: its own model or weights, if their names contain {sigma}."""
    try:
        named = {
            key: settings[key].format(sigma=sigma)
            for key in ("model", "weights")
            if "{sigma" in (settings[key] or "")
        }
    except (KeyError, IndexError, ValueError) as error:
        raise InvalidInput(
            f"cannot fill in {{sigma}}: {error}; write {{sigma}}, or {{sigma:.2f}}"
        ) from None
    return settings | named

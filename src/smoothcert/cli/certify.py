"""Commands that make runs: `demo` and `certify`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothcert.cli.command import Output
from smoothcert.cli.options import (
    STARTED,
    Data,
    Folder,
    Ids,
    InputSize,
    Limit,
    MachineOptions,
    PlanOptions,
    Skip,
    SubjectOptions,
    SweepOptions,
    folder,
    resized,
)
from smoothcert.errors import InvalidInput

if TYPE_CHECKING:
    from smoothcert.runs.progress import Progress
    from smoothcert.runs.run import Run

_DEMO_RADII = (0.0, 0.25, 0.5)


def demo(*, out: Folder = Path("runs/demo"), limit: Limit = None) -> Output:
    """Certify 500 bundled images with a bundled model: fixed, input-specific, and at chosen radii.

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
        certify(
            "fashion-cnn",
            "fashion-mnist",
            noise=Gaussian(0.25),
            plan=plan,
            limit=limit,
            out=out / name,
        )
        for name, plan in plans.items()
    ]
    rows = table(runs, radii=_DEMO_RADII)
    page = write_report(runs, out / "report.html", radii=_DEMO_RADII)
    fixed, _, radii, _ = (run.average_samples or 1 for run in runs)
    times = fixed / radii
    saved = f"Certified accuracy at three radii took {times:.0f} times fewer samples than usual."
    return Output(rows.plain(), [rows.render(), saved, _report_is(page)])


def certify(
    *,
    data: Data,
    input_size: InputSize = None,
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
    machines: MachineOptions,
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
        shard: Take one part of these inputs: 3/16 is the third of 16 parts. It needs --batch. Merge
            the runs with merge.
        track: Report to tensorboard:DIR, wandb:PROJECT or mlflow:EXPERIMENT.
        quiet: Show no progress and no summary.
        json: Print the results as JSON.
    """
    if out is None and not dry_run:
        raise InvalidInput("no-out", "give --out DIR, the folder of the run")
    request: dict[str, Any] = {
        "data": resized(data, input_size),
        "plan": plan.build(
            budget=budget is not None or minutes is not None,
            default="input-specific" if noise.transform is None else "walk",
        ),
        "budget": budget,
        "minutes": minutes,
        "since": STARTED,
        "ids": ids,
        "skip": skip,
        "limit": limit,
        "shard": shard,
        "joint": joint,
        "out": out,
        **subject.settings(),
    }
    noises = noise.runs()
    radii = plan.shown_radii()
    requests = [request | noises[0]] if len(noises) == 1 else _sweep(request, noises)
    for one in requests:
        one["executor"] = machines.build()
    if dry_run:
        return _forecasts(requests)
    assert out is not None
    runs = [_certified(one, track, radii, quiet=quiet, of=len(requests)) for one in requests]
    if len(runs) == 1:
        return _one_run(runs[0], out, radii, quiet=quiet)
    return _several_runs(runs, out, radii, quiet=quiet)


def _sweep(request: dict[str, Any], noises: Sequence[dict[str, float]]) -> list[dict[str, Any]]:
    """One request for each sigma: in a folder of its own, with an equal part of the minutes."""
    requests = []
    for number, noise in enumerate(noises, 1):
        sigma = noise["sigma"]
        one = request | noise | _named(sigma, request)
        if request["out"] is not None:
            one["out"] = request["out"] / f"sigma-{sigma:g}"
        if request["minutes"] is not None:  # all count from the start of the command
            one["minutes"] = request["minutes"] * number / len(noises)
        requests.append(one)
    return requests


def _named(sigma: float, request: dict[str, Any]) -> dict[str, str]:
    """The model or weights of one sigma, if their names contain {sigma}."""
    try:
        return {
            key: request[key].format(sigma=sigma)
            for key in ("model", "weights")
            if "{sigma" in (request[key] or "")
        }
    except (KeyError, IndexError, ValueError) as error:
        raise InvalidInput(
            "not-a-template",
            "cannot fill in {{sigma}}: {why}; write {{sigma}}, or {{sigma:.2f}}",
            why=error,
        ) from None


def _forecasts(requests: Sequence[dict[str, Any]]) -> Output:
    from smoothcert.tasks.certify import forecast

    forecasts = [forecast(**request) for request in requests]
    plain = [asdict(one) | {"seconds": one.seconds} for one in forecasts]
    return Output(
        plain[0] if len(plain) == 1 else {"runs": plain}, [f"forecast: {one}" for one in forecasts]
    )


def _certified(
    request: dict[str, Any], track: list[str], radii: list[float] | None, *, quiet: bool, of: int
) -> Run:
    """Make one of several runs."""
    from smoothcert.runs.progress import Display, Progress
    from smoothcert.runs.run import Run
    from smoothcert.runs.words import summary
    from smoothcert.tasks.certify import certify

    display = Progress() if quiet else Display(summary=False)
    display.command = True
    run = certify(progress=[display, *_trackers(track)], **request)
    assert isinstance(run, Run)  # it has a folder
    if of > 1:
        display.say(summary(run, radii=radii))
    return run


def _trackers(names: list[str]) -> list[Progress]:
    if not names:
        return []
    from smoothcert.compat.trackers import tracker_named

    return [tracker_named(name) for name in names]


def _one_run(run: Run, out: Path, radii: list[float] | None, *, quiet: bool) -> Output:
    from smoothcert.runs.table import table
    from smoothcert.runs.words import summary

    seconds = time.perf_counter() - STARTED
    about = {"out": str(out), "complete": run.complete, "command_seconds": seconds}
    lines = [] if quiet else [summary(run, radii=radii, seconds=seconds)]
    return Output(lambda: about | table(run, radii=radii).plain()["runs"][0], lines)


def _several_runs(runs: list[Run], out: Path, radii: list[float] | None, *, quiet: bool) -> Output:
    from smoothcert.report import write_report
    from smoothcert.runs.comparison import recommend
    from smoothcert.runs.table import table

    rows = table(runs, radii=radii)
    complete = all(run.complete for run in runs)
    recommendation = recommend(runs, radii=rows.radii) if complete else None
    page = write_report(runs, out / "report.html", radii=rows.radii, recommendation=recommendation)
    about = {
        "out": str(out),
        "complete": complete,
        "command_seconds": time.perf_counter() - STARTED,
        "report": str(page),
        "recommendation": recommendation and recommendation.plain(),
    }
    lines = []
    if not quiet:
        reasons = recommendation.reasons if recommendation else ()
        lines = [rows.render(), *reasons, _report_is(page)]
    return Output(about | rows.plain(), lines)


def _report_is(page: Path) -> str:
    return f"The report is {page}: open it in a browser."

"""Commands that make runs: `demo` and `certify`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

import smoothcert as sc
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

_DEMO_RADII = (0.0, 0.25, 0.5)
_TRACKER_FAILED = 4
"""The exit code if the run is complete, but a tracker has not got all of it."""


def demo(*, out: Folder = Path("runs/demo"), limit: Limit = None) -> Output:
    """Certify 500 bundled images with a bundled model: fixed, input-specific, and at chosen radii.

    Args:
        out: The folder for the runs and the report.
    """
    plans = {
        "fixed": sc.Fixed(10_000),
        "input-specific": sc.InputSpecific(10_000, decline=0.05),
        "radii": sc.AtRadii(_DEMO_RADII, 10_000, known_labels=True),
        "radii-runner-up": sc.AtRadii(_DEMO_RADII, 10_000, known_labels=True, bound="runner-up"),
    }
    runs = [
        sc.certify(
            "fashion-cnn",
            "fashion-mnist",
            noise=sc.Gaussian(0.25),
            plan=plan,
            limit=limit,
            out=out / name,
        )
        for name, plan in plans.items()
    ]
    rows = sc.table(runs, radii=_DEMO_RADII)
    page = sc.write_report(runs, out / "report.html", radii=_DEMO_RADII)
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

    The exit code is 4 if the run is complete, but a tracker failed.

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
        **plan.given,
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
    trackers = _trackers(track)
    runs = [_certified(one, trackers, radii, quiet=quiet, of=len(requests)) for one in requests]
    if len(runs) == 1:
        output = _one_run(runs[0], out, radii, quiet=quiet)
    else:
        output = _several_runs(runs, out, radii, quiet=quiet)
    failed = any(tracker.failed for tracker in trackers)
    return replace(output, code=_TRACKER_FAILED) if failed else output


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

    forecasts = [sc.forecast(**request) for request in requests]
    plain = [asdict(one) | {"seconds": one.seconds} for one in forecasts]
    return Output(
        plain[0] if len(plain) == 1 else {"runs": plain}, [f"forecast: {one}" for one in forecasts]
    )


def _certified(
    request: dict[str, Any],
    trackers: Sequence[sc.Tracker],
    radii: list[float] | None,
    *,
    quiet: bool,
    of: int,
) -> sc.Run:
    """Make one of several runs."""
    from smoothcert.runs.progress import Display
    from smoothcert.runs.words import summary

    display = sc.Progress() if quiet else Display(summary=False)
    display.command = True
    run = sc.certify(progress=[display, *trackers], **request)
    assert isinstance(run, sc.Run)  # it has a folder
    if of > 1:
        display.say(summary(run, radii=radii, command=True))
    return run


def _trackers(names: list[str]) -> list[sc.Tracker]:
    if not names:
        return []
    from smoothcert.compat.trackers import tracker_named

    return [tracker_named(name) for name in names]


def _one_run(run: sc.Run, out: Path, radii: list[float] | None, *, quiet: bool) -> Output:
    from smoothcert.runs.words import summary

    seconds = time.perf_counter() - STARTED
    about = {"out": str(out), "complete": run.complete, "command_seconds": seconds}
    lines = [] if quiet else [summary(run, radii=radii, seconds=seconds, command=True)]
    return Output(lambda: about | sc.table(run, radii=radii).plain()["runs"][0], lines)


def _several_runs(
    runs: list[sc.Run], out: Path, radii: list[float] | None, *, quiet: bool
) -> Output:

    rows = sc.table(runs, radii=radii)
    complete = all(run.complete for run in runs)
    recommendation = sc.recommend(runs, radii=rows.radii) if complete else None
    page = sc.write_report(
        runs, out / "report.html", radii=rows.radii, recommendation=recommendation
    )
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

"""Commands that make runs: `demo` and `certify`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, cast

import typer

import smoothcert as sc
from smoothcert._settings import PlanSettings
from smoothcert.cli.command import Output
from smoothcert.cli.options import (
    STARTED,
    Data,
    Folder,
    Ids,
    InputSize,
    Limit,
    MachineOptions,
    NoiseName,
    Skip,
    SubjectOptions,
    Transform,
    folder,
    noise_named,
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
    from smoothcert.runs.progress import Display

    plans = {
        "fixed": sc.Fixed(10_000),
        "input-specific": sc.InputSpecific(10_000, decline=0.05),
        "radii": sc.AtRadii(_DEMO_RADII, 10_000, known_labels=True),
        "radii-runner-up": sc.AtRadii(_DEMO_RADII, 10_000, known_labels=True, bound="runner-up"),
    }
    runs = []
    for name, plan in plans.items():
        display = Display()
        display.command = True
        run = sc.certify(
            "fashion-cnn",
            "fashion-mnist",
            noise=sc.Gaussian(0.25),
            plan=plan,
            limit=limit,
            out=out / name,
            progress=display,
        )
        runs.append(run)
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
    sigma: Annotated[Sequence[float] | None, typer.Option(metavar="S[,S,...]")] = None,
    noise: NoiseName = None,
    transform: Transform = None,
    plan: PlanSettings,
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
        sigma: Standard deviation of Gaussian noise (inputs in [0, 1]): grid-gaussian:S for 8-bit
            images on CUDA, else gaussian:S. A run that is resumed keeps its noise. Several, as in
            0.12,0.25,0.5: one run each, in folders of --out, and a page that recommends one.
            {sigma} in --weights and --model stands for each.
        transform: Certify pictures that are turned by degrees or zoomed by percent, with --radii up
            to this amount: rotation, rotation:45, zoom, zoom:25. Default: 30 degrees, 20 percent.
        out: The folder of the run. The same command resumes it, also with more inputs.
        budget: Samples for all inputs, as in 5e6. They set the price, or the ceiling of a --method.
        minutes: Minutes for all inputs together, start-up included.
        dry_run: Say what it would cost, or what the rest of a run in --out will cost, and stop.
        joint: Divide alpha by the number of inputs, so that all certificates hold together.
        shard: Take one part of these inputs: 3/16 is the third of 16 parts. It needs --batch. Merge
            the runs with merge.
        track: Report to tensorboard:DIR, wandb:PROJECT or mlflow:EXPERIMENT.
        quiet: Show no progress and no summary.
    """
    from smoothcert.compat.trackers import tracker_named
    from smoothcert.plans.from_settings import shown_radii
    from smoothcert.runs.progress import Display

    common: dict[str, Any] = {
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
        **vars(subject),
    }
    requests = _requests(common, sigma, noise, transform, machines)
    if dry_run:
        return _forecasts(requests)
    if out is None:
        raise InvalidInput("no-out", "give --out DIR, the folder of the run")
    trackers = [tracker_named(name) for name in track]
    radii = shown_radii(plan.radii)
    display = sc.Progress() if quiet else Display(summary=len(requests) > 1, radii=radii)
    display.command = True
    runs = [sc.certify(progress=[display, *trackers], **request) for request in requests]
    output = _certified(cast("list[sc.Run]", runs), out, radii)
    code = _TRACKER_FAILED if any(tracker.failed for tracker in trackers) else 0
    return replace(output, shown=[] if quiet else output.shown, code=code)


def _requests(
    common: dict[str, Any],
    sigma: Sequence[float] | None,
    noise: str | None,
    transform: str | None,
    machines: MachineOptions,
) -> list[dict[str, Any]]:
    """The arguments of `certify` for each run."""
    from smoothcert.executors import choose_executor

    sigmas: list[Any] = [None] if sigma is None else list(dict.fromkeys(sigma))
    requests = []
    for number, one in enumerate(sigmas, 1):
        request = common | {"noise": noise_named(noise), "sigma": one, "transform": transform}
        request["executor"] = choose_executor(**vars(machines))
        if len(sigmas) > 1:
            _separate(request, one, number / len(sigmas))
        requests.append(request)
    return requests


def _separate(request: dict[str, Any], sigma: float, share: float) -> None:
    """Give one of several requests its own folder and model, and its share of the minutes."""
    if request["out"] is not None:
        request["out"] /= f"sigma-{sigma:g}"
    if request["minutes"] is not None:  # all count from the start of the command
        request["minutes"] *= share
    for key in ("model", "weights"):
        if "{sigma" in (request[key] or ""):
            request[key] = _filled_in(request[key], sigma)


def _filled_in(template: str, sigma: float) -> str:
    """The name of the model or weights for one sigma."""
    try:
        return template.format(sigma=sigma)
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


def _certified(runs: list[sc.Run], out: Path, radii: list[float] | None) -> Output:
    """What a run has found, or several, which get a page that recommends one."""
    from smoothcert.runs.words import summary

    seconds = time.perf_counter() - STARTED
    complete = all(run.complete for run in runs)
    about: dict[str, Any] = {"out": str(out), "complete": complete, "command_seconds": seconds}
    if len(runs) == 1:
        lines = [summary(runs[0], radii=radii, seconds=seconds, command=True)]
        return Output(lambda: about | sc.table(runs, radii=radii).rows[0].values, lines)
    rows = sc.table(runs, radii=radii)
    recommendation = sc.recommend(runs, radii=rows.radii) if complete else None
    page = sc.write_report(
        runs, out / "report.html", radii=rows.radii, recommendation=recommendation
    )
    about["report"] = str(page)
    about["recommendation"] = recommendation and recommendation.plain()
    reasons = recommendation.reasons if recommendation else ()
    return Output(about | rows.plain(), [rows.render(), *reasons, _report_is(page)])


def _report_is(page: Path) -> str:
    return f"The report is {page}: open it in a browser."

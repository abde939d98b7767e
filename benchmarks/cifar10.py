"""CIFAR-10 with a ResNet-110: the paper's rows, fixed sampling, and chosen radii, for test ids 0, 20, ..., 9980."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from benchmarks.commands import row
from benchmarks.experiments import Inputs
from benchmarks.paper import axis, panel, printed
from smoothcert import (
    AtRadii,
    Combined,
    Fixed,
    Gaussian,
    InputSpecific,
    Plan,
    Results,
    Run,
    Smoothed,
    certify,
)

CEILING, PILOT = 100_000, 1_000
RADII = {
    0.25: [0, 0.25, 0.5, 0.75],
    0.5: [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5],
    1.0: [0, 0.5, 1, 1.5, 2, 2.5, 3],
}
PAPER_RADII = {0.25: [0, 0.25, 0.5, 0.75], 0.5: [0, 0.25, 0.5, 0.75, 1, 1.5, 2]}
PAPER_RADII[1.0] = [*PAPER_RADII[0.5], 2.5, 3, 3.5, 4]
SIZES = [*range(4_000, 40_000, 2_000), *range(40_000, CEILING + 1, 4_000)]
KINDS = {"AD": "absolute", "RD": "relative"}


def models(inputs: Inputs, *, folder: str, names: Sequence[str] = ("*",)) -> dict[str, Any]:
    """How the models with these names or patterns were trained, as their files say."""
    place = Path(folder.format(**vars(inputs)))
    rows = []
    for path in sorted(path for name in names for path in place.glob(f"{name}.safetensors")):
        with safe_open(path, "numpy") as file:
            about = file.metadata()
        row = {"model": path.stem, "method": about["method"], "sigma": float(about["sigma"])}
        rows.append(
            row | {"epochs": int(about["epochs"]), "accuracy": 100 * float(about["accuracy"])}
        )
    return {"rows": rows}


def subject(inputs: Inputs, model: str, sigma: float) -> Smoothed:
    return Smoothed(None, weights=weights(inputs, model), noise=Gaussian(sigma))


def weights(inputs: Inputs, model: str) -> Path:
    assert inputs.weights is not None
    return inputs.weights / f"{model}.safetensors"


def run(inputs: Inputs, smoothed: Smoothed, plan: Plan, name: str, *, skip: int | None = 20) -> Run:
    done = certify(smoothed, f"cifar10:{inputs.data}", plan=plan, skip=skip, out=inputs.work / name)
    assert isinstance(done, Run)
    return done


def plans(inputs: Inputs, *, model: str, sigma: float, ceilings: list[int]) -> dict[str, Any]:
    """Fixed and input-specific sampling on the same draws, and chosen radii alone, so that their seconds are their own.

    The seconds of plans on the same draws are their shares of that run.
    """
    declines: list[tuple[str, int, float]] = [
        ("AD", ceiling, decline) for ceiling in ceilings for decline in (0.05, 0.10)
    ]
    declines += [("RD", CEILING, 0.01), ("RD", CEILING, 0.05)]
    specific: dict[str, Plan] = {
        f"{kind}-{ceiling // 10_000}-{decline:.2f}": InputSpecific(
            ceiling, pilot=PILOT, decline=decline, kind=KINDS[kind]
        )
        for kind, ceiling, decline in declines
    }
    fixed: dict[str, Plan] = {f"fixed {n:,}": Fixed(n, pilot=PILOT) for n in SIZES}
    drawn = specific | fixed | {"runner-up": Fixed(CEILING, pilot=PILOT, bound="runner-up")}
    smoothed = subject(inputs, model, sigma)
    shared = run(inputs, smoothed, Combined(tuple(drawn.values())), "shared")
    alone = dict(zip(drawn, shared.split(), strict=True))
    reference, radii = alone[f"fixed {CEILING:,}"], RADII[sigma]
    rows = [
        row(reference, radii, plan=f"fixed {CEILING:,}"),
        row(alone["runner-up"], radii, plan="fixed, runner-up bound"),
        row(alone["AD-10-0.05"], radii, reference, plan="input-specific, decline .05"),
        row(run(inputs, smoothed, AtRadii(radii, CEILING), "radii"), radii, plan="radii"),
        row(
            run(
                inputs,
                smoothed,
                AtRadii(radii, CEILING, known_labels=True, bound="runner-up"),
                "rivals",
            ),
            radii,
            plan="radii, runner-up bound, known labels",
        ),
        row(
            run(inputs, smoothed, AtRadii(radii, CEILING, known_labels=True), "known"),
            radii,
            plan="radii, known labels",
        ),
    ]
    costs, acrs = np.transpose([(alone[name].average_samples, alone[name].acr) for name in fixed])
    gains = {}
    for name in (name for name in specific if "-10-" in name):
        samples = alone[name].average_samples or 0.0
        gains[name] = (
            float(np.interp(alone[name].acr, np.maximum.accumulate(acrs), costs)) / samples
        )
    points = [
        {"series": name, "x": [alone[name].average_samples], "y": [alone[name].acr]}
        for name in specific
    ]
    line = {"series": "", "x": costs, "y": acrs, "label": "fixed"}
    drawing = panel(
        f"{model}", axis("average samples", kind="count"), axis("ACR"), lines=[line], points=points
    )
    return {
        "rows": rows,
        "paper": list(
            paper_rows(sigma, alone, [name for name in specific if name.startswith("AD")])
        ),
        "gains": [{"gain": gains}],
        "fewer samples": rows[0]["samples"] / rows[-1]["samples"],
        "points lost": max(
            rows[0]["ca"][radius] - share for radius, share in rows[-1]["ca"].items()
        ),
        "points of runner-up": rows[1]["ca"]["0"] - rows[0]["ca"]["0"],
        "runner-up": {
            "fewer samples": rows[1]["samples"] / rows[4]["samples"],
            "points lost": {
                radius: share - rows[4]["ca"][radius] for radius, share in rows[1]["ca"].items()
            },
        },
        "rate": float(shared.samples.sum()) / shared.total_seconds,
        "figures": {"trade-off": [drawing]},
    }


def whole(inputs: Inputs, *, model: str, sigma: float) -> dict[str, Any]:
    """Chosen radii for all 10,000 test images."""
    radii = RADII[sigma]
    done = run(
        inputs,
        subject(inputs, model, sigma),
        AtRadii(radii, CEILING, known_labels=True),
        "whole",
        skip=None,
    )
    shares, (low, high) = done.certified_accuracy(radii), done.certified_accuracy_band(radii)
    rows = [
        {"radius": radius, "ca": 100 * share, "low": 100 * below, "high": 100 * above}
        for radius, share, below, above in zip(radii, shares, low, high, strict=True)
    ]
    samples = int(done.samples.sum())
    return {
        "rows": rows,
        "samples": samples,
        "average": done.average_samples,
        "seconds": done.total_seconds,
    }


def paper_rows(
    sigma: float, alone: dict[str, Results], names: list[str]
) -> Iterator[dict[str, Any]]:
    """Each row of the paper below the same row here, and fixed sampling that costs about as much below both."""
    paper = {
        iss.method.removeprefix("ISS-"): (iss, ias)
        for iss, ias in printed("cifar10-ad")
        if iss.sigma == sigma
    }
    radii = PAPER_RADII[sigma]
    for name in names:
        ours = alone[name]
        n = min(SIZES, key=lambda n: abs(n + PILOT - (ours.average_samples or 0)))
        for other, theirs in ((name, paper[name][0]), (f"fixed {n:,}", paper[name][1])):
            reference = alone[f"fixed {CEILING:,}"] if name.split("-")[1] == "10" else None
            yield row(alone[other], radii, reference, sigma=sigma, where="here", name=other)
            yield {
                "sigma": sigma,
                "where": "paper",
                "name": theirs.method,
                "samples": theirs.samples,
            } | {
                "seconds": 60 * theirs.minutes,
                "mad": theirs.mad,
                "acr": theirs.acr,
                "ca": {f"{radius:g}": theirs.ca[f"{radius:g}"] for radius in radii},
            }

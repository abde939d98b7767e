"""Experiments that are commands of smoothcert, run in processes of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import numpy as np

from benchmarks.experiments import Inputs
from benchmarks.results import ROOT
from smoothcert.runs.decline import largest_decline
from smoothcert.runs.results import Results
from smoothcert.runs.run import open_run


def smoothcert(*arguments: object, environment: dict[str, str] | None = None) -> str:
    """What a command prints."""
    return program("smoothcert", *arguments, environment=environment)


def program(module: str, *arguments: object, environment: dict[str, str] | None = None) -> str:
    """What a module prints that is run as a program."""
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths} | (environment or {}),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{module} {' '.join(map(str, arguments))}\n{done.stderr}")
    return done.stdout


def printed(*arguments: object) -> str:
    """What a command prints, as a page shows it."""
    return re.sub(" +$", "", smoothcert(*arguments), flags=re.M).rstrip()


def demo(inputs: Inputs) -> dict[str, Any]:
    """The plans of `smoothcert demo`."""
    names = {
        "fixed": ("fixed sampling", "questions that you do not know yet"),
        "input-specific": ("input-specific sampling", "the ACR and large radii"),
        "radii": ("deciding radii, known labels", "a table of certified accuracy at chosen radii"),
        "radii-runner-up": (
            "the same, with the runner-up",
            "the most that the same votes certify at these radii",
        ),
    }
    runs = json.loads(smoothcert("demo", "--out", inputs.work, "--json"))["runs"]
    rows = [
        {"method": run["name"].replace("-runner-up", " --bound runner-up")}
        | dict(zip(("plan", "use"), names[run["name"]], strict=True))
        | {"samples": run["average_samples"], "seconds": run["seconds"]}
        | {"acr": None if run["acr_counts_only_decided_radii"] else run["acr"]}
        | {"ca": {radius: 100 * share for radius, share in run["certified_accuracy"].items()}}
        for run in runs
    ]
    fixed, specific, radii, _ = rows
    replay = "--sigma 0.25 --samples 10000 --decline 0.05 --radii 0,0.25,0.5,0.7"
    return {
        "rows": rows,
        "replay": {
            "needs": "needs the demo's runs",
            "command": f"smoothcert replay runs/demo/fixed {replay}",
            "text": printed("replay", inputs.work / "fixed", *replay.split()),
        },
        "times_fewer": fixed["samples"] / radii["samples"],
        "iss": {
            "acr": 100 * (1 - specific["acr"] / fixed["acr"]),
            "points": max(share - specific["ca"][radius] for radius, share in fixed["ca"].items()),
        },
    }


def chain(
    inputs: Inputs, *, steps: list[str], rows: dict[str, str], radii: list[float]
) -> dict[str, Any]:
    """Commands one after the other, which all resume, and a table of the runs that they leave in folders of {work}.

    {kept} is a folder that stays for other experiments of this version.
    """
    folders = vars(inputs) | {"kept": inputs.work.parent / "kept"}
    for step in steps:
        smoothcert(*step.format(**folders).split())
    return {
        "rows": [
            row(open_run(inputs.work / folder), radii, name=name) for name, folder in rows.items()
        ]
    }


def row(
    results: Results, radii: list[float], reference: Results | None = None, **names: Any
) -> dict[str, Any]:
    """One row of a table. ACR is left out where only chosen radii are decided."""
    shares = results.certified_accuracy(radii).tolist()
    return names | {
        "samples": results.average_samples,
        "seconds": results.total_seconds,
        "uncertified": 100 * float(results.abstained.mean()),
        "mad": None if reference is None else largest_decline(results, reference),
        "acr": results.acr if results.decided_radii is None else None,
        "median": float(np.median(np.where(results.correct, results.radius, 0))),
        "ca": {f"{radius:g}": 100 * share for radius, share in zip(radii, shares, strict=True)},
    }

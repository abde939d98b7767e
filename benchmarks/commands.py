"""Experiments that are commands of smoothcert, run in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from benchmarks.experiments import Inputs
from benchmarks.results import ROOT


def smoothcert(*arguments: object, environment: dict[str, str] | None = None) -> str:
    """What a command prints."""
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "smoothcert", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": paths} | (environment or {}),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"smoothcert {' '.join(map(str, arguments))}\n{done.stderr}")
    return done.stdout


def demo(inputs: Inputs) -> dict[str, Any]:
    """The three plans of `smoothcert demo`."""
    names = {
        "fixed": ("fixed sampling", "questions that you do not know yet"),
        "input-specific": ("input-specific sampling", "the ACR, the whole curve of certified accuracy"),
        "radii": ("deciding radii, known labels", "a table of certified accuracy at chosen radii"),
    }
    runs = json.loads(smoothcert("demo", "--out", inputs.work, "--json"))["runs"]
    rows = [
        {"method": run["name"], "plan": names[run["name"]][0], "use": names[run["name"]][1]}
        | {"samples": run["average_samples"], "seconds": run["seconds"]}
        | {"acr": None if run["acr_counts_only_decided_radii"] else run["acr"]}
        | {"ca": {radius: 100 * share for radius, share in run["certified_accuracy"].items()}}
        for run in runs
    ]
    return {"rows": rows, "times_fewer": rows[0]["samples"] / rows[-1]["samples"]}

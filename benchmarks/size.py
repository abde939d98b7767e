"""What large runs cost: seconds, memory and bytes of the commands, with a classifier that costs next to nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.experiments import Inputs
from benchmarks.results import ROOT

PARTS = 2
MODEL = "benchmarks/halves.py:halves"


def part(inputs: Inputs, *, size: int, number: int) -> dict[str, Any]:
    """What it costs to certify one of the parts of a run. The part and its figures stay for the other commands."""
    folder = inputs.work.parent / "kept" / f"size-{size}"
    data, out, record = (
        folder / "data.npz",
        folder / f"part-{number}",
        folder / f"part-{number}.json",
    )
    if record.is_file():
        return json.loads(record.read_text())
    if not data.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        x = np.zeros((size, 2), np.float32)
        x[:, 0] = 0.5 + 0.5 * np.random.default_rng(0).standard_normal(size)
        np.savez(data, x=x, y=(x[:, 0] > 0.5).astype(np.int64))
    shutil.rmtree(out, ignore_errors=True)
    options = f"--model {MODEL} --data {data} --sigma 0.5 --samples 1000 --batch 8192 --shard {number}/{PARTS}"
    found = _cost("certify", *options.split(), "--quiet", "--out", out)
    found["megabytes"] = _megabytes(out / "journal.sqlite")
    record.write_text(json.dumps(found))
    return found


def commands(inputs: Inputs, *, size: int) -> dict[str, Any]:
    """The other commands on the run that the parts make."""
    certified = [part(inputs, size=size, number=n) for n in range(1, PARTS + 1)]
    folder = inputs.work.parent / "kept" / f"size-{size}"
    merged, page = folder / "merged", folder / "report.html"
    shutil.rmtree(merged, ignore_errors=True)
    rows = {
        "certify": {
            name: sum(c[name] for c in certified) for name in ("seconds", "cpu", "megabytes")
        }
        | {"memory": max(c["memory"] for c in certified)},
        "merge": _cost(
            "merge", *(folder / f"part-{n}" for n in range(1, PARTS + 1)), "--out", merged
        ),
        "table": _cost("table", merged),
        "report": _cost("report", merged, "--out", page),
        "audit": _cost("audit", merged, "--model", MODEL),
    }
    rows["merge"]["megabytes"], rows["report"]["megabytes"] = (
        _megabytes(merged / "journal.sqlite"),
        _megabytes(page),
    )
    return {"rows": [{"size": size, "command": name} | row for name, row in rows.items()]}


def _megabytes(path: Path) -> float:
    return path.stat().st_size / 1e6


def _cost(*arguments: object) -> dict[str, float]:
    """Seconds, seconds of a CPU core, and the largest memory of a command, start-up included."""
    command = [sys.executable, "-m", "smoothcert", *map(str, arguments)]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    }
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(
            f"smoothcert {' '.join(map(str, arguments))} ended with {process.returncode}"
        )
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "cpu": usage.ru_utime + usage.ru_stime,
        "memory": usage.ru_maxrss * 1024 / 1e6,
    }

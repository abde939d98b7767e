"""Samples per second, and seconds until the first one: commands in processes of their own, with and without caches."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.commands import program, smoothcert
from benchmarks.experiments import Inputs
from smoothcert.runs.run import open_run


def bench(
    inputs: Inputs, *, model: str, options: str, seconds: float, states: list[str]
) -> dict[str, Any]:
    """What `benchmarks.bench` measures, for a model of this name.

    States are "cold" (empty caches) and "warm".
    """
    rows = []
    with TemporaryDirectory() as caches:
        for state in states:
            text = program(
                "benchmarks.bench",
                *options.format(weights=inputs.weights).split(),
                "--seconds",
                seconds,
                "--json",
                environment=_caches(caches),
            )
            found = json.loads(text)
            ready = sum(found["setup"].values())
            rows.append(
                {
                    "state": state,
                    "compile": found["compile"],
                    "dtype": found["dtype"],
                    "batch": found["batch"],
                }
                | {
                    "classifier": found["forward"],
                    "sampler": found["sampler"],
                    "of limit": found["of_limit"],
                }
                | {
                    "loop": found["published"],
                    "times loop": found["speedup"],
                    "setup": found["setup"],
                }
                | {"ready": ready, "first certificate": ready + found["first_certificate_seconds"]}
                | {"differing votes": 100 * found["disagreement"]}
            )
    return {"rows": rows}


def certify(inputs: Inputs, *, model: str, sigma: float, plans: dict[str, str]) -> dict[str, Any]:
    """Whole runs from the command to the result, for 500 inputs of CIFAR-10."""
    assert inputs.weights is not None
    rows = []
    with TemporaryDirectory() as caches:
        for name, options in plans.items():
            for state in ("cold", "warm") if not rows else ("warm",):
                out = inputs.work / f"{name}-{state}"
                shutil.rmtree(out, ignore_errors=True)  # a run that resumes cannot be timed
                where = [
                    "--weights",
                    inputs.weights / f"{model}.safetensors",
                    "--data",
                    f"cifar10:{inputs.data}",
                ]
                start = time.perf_counter()
                smoothcert(
                    *(
                        "certify",
                        *where,
                        "--sigma",
                        sigma,
                        "--skip",
                        20,
                        "--out",
                        out,
                        "--quiet",
                        *options.split(),
                    ),
                    environment=_caches(caches),
                )
                seconds = time.perf_counter() - start
                run = open_run(out)
                samples, sampling = int(run.samples.sum()), run.total_seconds
                rows.append(
                    {
                        "plan": name,
                        "state": state,
                        "seconds": seconds,
                        "before sampling": seconds - sampling,
                    }
                    | {"sampling": sampling, "samples": samples, "rate": samples / sampling}
                )
    return {"rows": rows}


def _caches(folder: str) -> dict[str, str]:
    names = ("SMOOTHCERT_KERNELS", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH")
    return {name: str(Path(folder) / name) for name in names}

"""From command to answer: set-up, rates and whole runs, each command in a fresh process, with empty and filled caches.

    python benchmarks/start.py
    python benchmarks/start.py --data cifar10:DIR --weights runs/consistency-0.50/weights.safetensors --sigma 0.5
    python benchmarks/start.py --only "ResNet-50"

The first table splits the set-up as `smoothcert bench --json` reports it. The second one, which needs weights and data,
has whole runs: `first sample` is all that is not sampling. "cold" starts with empty caches of kernels and compilers,
"warm" runs the command again. Caches lie in a temporary folder, so yours stay as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMAND = [sys.executable, "-m", "smoothcert"]
STEPS = ["import", "load", "check", "trace", "compile", "batch"]
MODELS = {
    "ResNet-110": ["--model", "cifar-resnet110"],
    "ResNet-50 at 224": ["--model", "torchvision:resnet50", "--weights", "none"],
    "ViT-B/16": ["--model", "torchvision:vit_b_16", "--weights", "none"],
}
RADII = "0,0.25,0.5,0.75,1,1.25,1.5"
RUNS = {
    "the paper's row, 500 inputs": ["--skip", "20", "--samples", "100000", "--decline", "0.05"],
    "chosen radii, 500 inputs": ["--skip", "20", "--method", "radii", "--radii", RADII, "--known-labels"],
    "chosen radii, all inputs": ["--method", "radii", "--radii", RADII, "--known-labels"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="CIFAR-10, for whole runs")
    parser.add_argument("--weights", help="of a CIFAR ResNet, for whole runs")
    parser.add_argument("--sigma", default="0.5")
    parser.add_argument("--seconds", default="1", help="how long bench times each thing")
    parser.add_argument("--compile", default="auto")
    parser.add_argument("--only", default="", help="leave out rows whose name does not contain this")
    args = parser.parse_args()
    runs = RUNS if args.data and args.weights else {}
    models = {name: options for name, options in MODELS.items() if args.only in name}
    if models:
        print(" ".join(f"{title:>9}" for title in ("samples/s", *STEPS, "sum", "first")), " model")
    for name, options in models.items():
        common = [*options, "--sigma", args.sigma, "--seconds", args.seconds, "--compile", args.compile, "--json"]
        for state, caches in _states():
            found = json.loads(_run(["bench", *common], caches)[0])
            setup = [found["setup"].get(step, 0.0) for step in STEPS]
            seconds = [*setup, sum(setup), sum(setup) + found["first_certificate_seconds"]]
            shown = " ".join(f"{value:9.1f}" for value in seconds)
            print(f"{found['sampler']:9,.0f} {shown}  {name}, {state}, compile {found['compile']}", flush=True)
    runs = {name: options for name, options in runs.items() if args.only in name}
    if runs:
        print(" ".join(f"{title:>12}" for title in ("result, s", "first sample", "samples", "samples/s")), " run")
    for name, options in runs.items():
        for state, caches in _states():
            with tempfile.TemporaryDirectory() as folder:
                where = ["--data", args.data, "--weights", args.weights, "--sigma", args.sigma, "--out", folder]
                _, wall = _run(["certify", *where, *options, "--compile", args.compile, "--quiet"], caches)
                samples, sampling = _figures(Path(folder))
            values = f"{wall:12.1f} {wall - sampling:12.1f} {samples:12,} {samples / sampling:12,.0f}"
            print(f"{values}  {name}, {state}", flush=True)


def _states() -> list[tuple[str, Path]]:
    """Empty caches, then the same caches again. The folder goes away when the process ends."""
    holder = tempfile.TemporaryDirectory()
    _KEPT.append(holder)
    return [("cold", Path(holder.name)), ("warm", Path(holder.name))]


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def _run(arguments: list[str], caches: Path) -> tuple[str, float]:
    """What a command prints, and its seconds from start to end."""
    folders = {
        "SMOOTHCERT_KERNELS": caches / "kernels",
        "TRITON_CACHE_DIR": caches / "triton",
        "TORCHINDUCTOR_CACHE_DIR": caches / "inductor",
        "CUDA_CACHE_PATH": caches / "cuda",
    }
    environment = os.environ | {name: str(folder) for name, folder in folders.items()}
    start = time.perf_counter()
    done = subprocess.run([*COMMAND, *arguments], env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)}\n{done.stderr}")
    return done.stdout, time.perf_counter() - start


def _figures(folder: Path) -> tuple[int, float]:
    """Samples of a run and the seconds in which it sampled."""
    from smoothcert.runs.run import open_run

    run = open_run(folder)
    return int(run.samples.sum()), float(run.total_seconds)


if __name__ == "__main__":
    main()

"""How often `compare` claims a difference where there is none, what it misses, and what it costs."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.experiments import Inputs
from smoothcert import AtRadii, Gaussian, certify, compare
from smoothcert.models.load import ASSETS
from smoothcert.statistics.bounds import critical_count
from smoothcert.statistics.comparison import log_wealth, mcnemar, power

INPUTS = 500


def errors(inputs: Inputs, *, repetitions: int, sequences: int) -> dict[str, Any]:
    """Simulated: a model against itself, the power on 500 inputs, and bets at a true difference of minus the margin."""
    rng = np.random.default_rng(0)
    needed = int(critical_count(Gaussian(0.5).probability(0.25), 1_000, alpha=0.001))
    claimed = 0
    for _ in range(repetitions):
        p = rng.normal(0.75, 0.08, INPUTS).clip(
            0, 1
        )  # many inputs are close to the radius, so many pairs differ
        a, b = (rng.binomial(1_000, p) >= needed for _ in range(2))
        claimed += mcnemar(int(np.sum(a & ~b)), int(np.sum(b & ~a))) <= 0.05
    powers = [
        {"differing": 100 * differing}
        | {
            f"{points} points": 100 * power(points / 100, differing, INPUTS, alpha=0.05)
            for points in (3, 5)
        }
        for differing in (0.06, 0.08, 0.12)
    ]
    looks = np.unique(np.geomspace(50, 10_000, 25).astype(int))
    bets = []
    for margin, differing in ((0.01, 0.03), (0.01, 0.1), (0.03, 0.1)):
        p = [(differing + margin) / 2, (differing - margin) / 2, 1 - differing]
        steps = [rng.multinomial(step, p, sequences) for step in np.diff(looks, prepend=0)]
        pairs = np.cumsum(steps, axis=0)
        wealth = log_wealth(pairs, [0, 1, 0.5], (1 - margin) / 2)  # D of each, from 0 to 1
        accepted = 100 * float(np.mean(np.any(wealth >= np.log(40), axis=0)))
        bets.append({"margin": 100 * margin, "differing": 100 * differing, "accepted": accepted})
    about = {
        "repetitions": repetitions,
        "sequences": sequences,
        "itself": 100 * claimed / repetitions,
    }
    return about | {"rows": powers, "bets": bets}


def demo(
    inputs: Inputs, *, sigma: float, radius: float, samples: int, margin: float
) -> dict[str, Any]:
    """Checkpoints of the demo model, compared by runs on all 500 images and by models."""
    data, settings = "fashion-mnist", {"sigma": sigma}
    checkpoints = {"trained at 0.25": "fashion-cnn-0.25", "trained at 0.5": "fashion-cnn-0.50"}
    checkpoints["trained without noise"] = "fashion-cnn-clean"
    paths = {name: ASSETS / f"{stem}.safetensors" for name, stem in checkpoints.items()}
    plan = AtRadii([radius], samples=samples, known_labels=True)
    runs = {
        name: certify(
            None,
            data,
            weights=path,
            plan=plan,
            out=inputs.work / "runs" / path.stem,
            seed=1,
            **settings,
        )
        for name, path in paths.items()
    }
    first, *others = paths
    rows = []
    for other in others:
        by_runs = compare(runs[first], runs[other], radius=radius, margin=margin)
        folder = inputs.work / paths[other].stem
        by_models = compare(
            *(paths[name] for name in (first, other)),
            data,
            radius=radius,
            margin=margin,
            samples=samples,
            out=folder,
            **settings,
        )
        rows += [
            {"by": by, "b": other} | _row(found)
            for by, found in (("runs", by_runs), ("models", by_models))
        ]
    return {"rows": rows}


def cifar10(inputs: Inputs, *, radii: dict[str, list[float]], margin: float) -> dict[str, Any]:
    """Consistency against Gaussian training on CIFAR-10, by models, all 10,000 test images to choose from."""
    assert inputs.weights is not None
    rows = []
    for sigma, chosen in radii.items():
        models = [
            inputs.weights / f"{method}-{float(sigma):.2f}.safetensors"
            for method in ("gaussian", "consistency")
        ]
        for radius in chosen:
            start = time.perf_counter()
            found = compare(
                *models,
                f"cifar10:{inputs.data}",
                radius=radius,
                margin=margin,
                sigma=float(sigma),
                out=inputs.work / f"{sigma}-{radius}",
            )
            row = {
                "sigma": float(sigma),
                "radius": radius,
                "minutes": (time.perf_counter() - start) / 60,
            }
            rows.append(row | _row(found))
    return {"rows": rows}


def _row(found: Any) -> dict[str, Any]:
    [d] = found.differences
    low, high = d.ends
    return {
        "verdict": d.verdict,
        "a": 100 * d.shares[0],
        "b_share": 100 * d.shares[1],
        "difference": 100 * d.difference,
        "interval": f"{low} to {high}",
        "inputs": d.inputs,
        "samples": int(found.a.samples.sum() + found.b.samples.sum()),
    }

"""Published methods side by side: their logs of all 10,000 test images, derived again by one protocol."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.experiments import Inputs
from smoothcert import Gaussian
from smoothcert.runs.logs import read_log, votes
from smoothcert.statistics.bounds import interval, lower_bound

SAMPLES = 100_000
ALPHA = 0.001
CONFIDENCE = 0.95
METHODS = {
    "gaussian": "Gaussian (Cohen et al. 2019)",
    "smoothadv": "SmoothAdv (Salman et al. 2019)",
    "macer": "MACER (Zhai et al. 2020)",
    "consistency": "Consistency (Jeong and Shin 2020)",
    "smoothmix": "SmoothMix (Jeong et al. 2021)",
    "catrs": "CAT-RS (Jeong et al. 2023)",
    "acr-weakness": "ACR-weakness (Sun et al. 2024)",
}


def board(inputs: Inputs, sigma: float, radii: list[float]) -> dict[str, Any]:
    """Certified accuracy, ACR and how clear votes are, for each method at one noise."""
    assert inputs.logs is not None
    folder = inputs.logs / "board"
    return {"rows": [_row(folder, method, sigma, radii) for method in METHODS]}


def _row(folder: Any, method: str, sigma: float, radii: list[float]) -> dict[str, Any]:
    noise = Gaussian(sigma)
    log = read_log(folder / f"cifar10-{method}-{sigma}.tsv")
    counts = votes(log, noise=noise, samples=SAMPLES, alpha=ALPHA)
    bound = lower_bound(counts, SAMPLES, alpha=ALPHA)
    radius = np.where(log.prediction == log.label, noise.certified_radius(bound), -np.inf)
    certified = [int(np.sum(radius > r)) for r in radii]
    band = interval(np.array(certified), len(radius), alpha=1 - CONFIDENCE)
    right = log.prediction == log.label
    return {
        "method": METHODS[method],
        "acr": float(np.maximum(radius, 0).mean()),
        "ca": {f"{r:g}": 100 * n / len(radius) for r, n in zip(radii, certified, strict=True)},
        "band": float(50 * np.max(band.high - band.low)),
        "abstained": float(100 * np.mean(log.prediction < 0)),
        "clear": {
            f"{t:g}": float(100 * np.mean(right & (counts > t * SAMPLES)))
            for t in (0.9, 0.99, 0.999)
        },
    }

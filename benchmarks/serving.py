"""What a service needs: samples, latency and abstentions of `predict`, one request at a time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.experiments import Inputs
from smoothcert import Smoothed
from smoothcert.data import load_dataset


def requests(
    inputs: Inputs, *, model: str, data: str, sigma: float, images: int, ceilings: list[int]
) -> dict[str, Any]:
    """One row per ceiling. Every request is one image; the first one, which prepares the classifier, does not count."""
    smoothed, dataset = Smoothed(model, sigma=sigma, device="cpu"), load_dataset(data)
    pairs = [dataset[i] for i in range(images)]
    smoothed.predict(np.asarray(pairs[0][0])[None])
    rows = []
    for ceiling in ceilings:
        seconds, answers = [], []
        for x, _ in pairs:
            start = time.perf_counter()
            answers += smoothed.predict(np.asarray(x)[None], samples=ceiling)
            seconds.append(time.perf_counter() - start)
        labels = [label for _, label in pairs]
        rows.append(
            {
                "ceiling": ceiling,
                "samples": float(np.mean([answer.samples for answer in answers])),
                "median_ms": 1000 * float(np.median(seconds)),
                "slow_ms": 1000 * float(np.quantile(seconds, 0.99)),
                "abstained": float(np.mean([answer.prediction is None for answer in answers])),
                "right": float(
                    np.mean(
                        [a.prediction == label for a, label in zip(answers, labels, strict=True)]
                    )
                ),
            }
        )
    return {"rows": rows}

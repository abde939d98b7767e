"""Time the statistics, and compare them with a loop over points that uses `scipy.stats`, as in published code.

    python benchmarks/bounds.py

Each figure is the best of several runs in this process. The loop is timed on a part of the points and scaled up.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from scipy.stats import beta, norm

from smoothcert import Gaussian, SampleMap
from smoothcert.statistics.bounds import lower_bound
from smoothcert.statistics.sample_map import refined_grid

SIGMA, SAMPLES, DECLINE, ALPHA = 0.5, 100_000, 0.05, 0.001


def radius_one_by_one(p: float, k: int) -> float:
    return SIGMA * float(norm.ppf(beta.ppf(ALPHA, p * k, k - p * k + 1))) if p else -np.inf


def map_one_by_one(p: float) -> int:
    """Algorithm 1 of the paper for one p, with bisection instead of its linear search."""
    required = radius_one_by_one(p, SAMPLES) - DECLINE
    if not required > 0:
        return 0
    low, high = 0, SAMPLES
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if radius_one_by_one(p, middle) >= required else (middle, high)
    return high


def best(work: Callable[[], object], runs: int) -> float:
    """Seconds of the fastest run."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def report(what: str, ours: float, loop: float, goal: float) -> None:
    verdict = "met" if ours <= goal else "MISSED"
    print(f"{what}: {1e3 * ours:.1f} ms (goal {1e3 * goal:.0f} ms, {verdict})")
    print(f"    loop over points: {1e3 * loop:.0f} ms, ratio {loop / ours:.0f}")


def main() -> None:
    grid = refined_grid()
    psi = SampleMap(Gaussian(SIGMA), SAMPLES, DECLINE, alpha=ALPHA)
    every = 10
    loop = best(lambda: [map_one_by_one(p) for p in grid[::every]], 1) * every
    assert np.abs(psi(grid[::every]) - [map_one_by_one(p) for p in grid[::every]]).max() <= 1
    report(f"map of {len(grid):,} points, ceiling {SAMPLES:,}", best(lambda: psi(grid), 10), loop, 0.1)

    counts = np.random.default_rng(0).binomial(SAMPLES, np.linspace(0.5, 1, 1_000))
    loop = best(lambda: [beta.ppf(ALPHA, a, SAMPLES - a + 1) for a in counts], 3)
    report("bounds of 1,000 certificates", best(lambda: lower_bound(counts, SAMPLES, alpha=ALPHA), 20), loop, 0.02)


if __name__ == "__main__":
    main()

"""Compare methods that decide one radius, on published logs: average samples and certified accuracy.

    python benchmarks/peers.py ../shared/logs

All methods know the labels, keep the same alpha, look after the same numbers of samples, and give up by the same rule:
when the probability of reaching the last boundary falls below 2%. So a method is defined by its boundary, which is the
number of votes that it needs at each look.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.special import betainc, betaln

from smoothcert import Fixed, Gaussian, InputSpecific, Noise
from smoothcert.runs.logs import read_log
from smoothcert.statistics.boundaries import boundary, default_looks, give_up_counts
from smoothcert.statistics.bounds import critical_count
from smoothcert.tasks.replay import from_shares, probabilities, simulate

CEILING, ALPHA = 100_000, 0.001
LOOKS = default_looks(CEILING)
STAGES = (100, 1_000, 10_000, CEILING)
# Name, noise, radius, and the alpha that the log was made with.
LOGS = [
    ("imagenet-consistency-0.50", Gaussian(0.5), 0.5, 0.001),
    ("cifar10-consistency-0.50", Gaussian(0.5), 0.5, 0.001),
    ("cifar10-gaussian-0.25", Gaussian(0.25), 0.25, 0.01),
]


def union_bound(threshold: float, looks: tuple[int, ...]) -> np.ndarray:
    """Clopper-Pearson at look i with alpha / (i (i + 1)): the spent parts add up to alpha for any number of looks."""
    return np.array(
        [int(critical_count(threshold, n, alpha=ALPHA / (i * (i + 1)))) for i, n in enumerate(looks, start=1)]
    )


def betting(threshold: float, looks: tuple[int, ...]) -> np.ndarray:
    """The wealth of a gambler who bets that p exceeds the threshold (Waudby-Smith & Ramdas 2024; Voracek 2024).

    The bets are a mixture over all p above the threshold with weights of the Beta(1/2, 1/2) distribution, the universal
    portfolio. Wealth 1 / alpha is a proof, at any moment (Ville's inequality).
    """

    def log_wealth(count: np.ndarray, n: int) -> np.ndarray:
        above = 1 - betainc(count + 0.5, n - count + 0.5, threshold)
        prior = betaln(0.5, 0.5) + np.log(1 - betainc(0.5, 0.5, threshold))
        fair = count * np.log(threshold) + (n - count) * np.log1p(-threshold)
        with np.errstate(divide="ignore"):
            return betaln(count + 0.5, n - count + 0.5) + np.log(above) - prior - fair

    needed = []
    for n in looks:
        counts = np.arange(int(n * threshold), n + 1)
        enough = log_wealth(counts, n) >= np.log(1 / ALPHA)
        needed.append(int(counts[np.argmax(enough)]) if enough.any() else n + 1)
    return np.array(needed)


def staged(threshold: float, looks: tuple[int, ...]) -> np.ndarray:
    """Clopper-Pearson after a few stages, each with its share of alpha (Horvath et al. 2022). All samples count."""
    return critical_count(threshold, np.array(looks), alpha=ALPHA / len(looks))


def exact(threshold: float, looks: tuple[int, ...]) -> np.ndarray:
    return boundary(threshold, looks, alpha=ALPHA).votes


def sequential(needed: np.ndarray, looks: tuple[int, ...], p: np.ndarray, repetitions: int) -> tuple[float, float]:
    """Average samples, and the share of inputs that reach the boundary."""
    rng = np.random.default_rng(0)
    given_up = give_up_counts(int(needed[-1]), looks)
    count = np.zeros((repetitions, len(p)), np.int64)
    going, proved, spent = (np.full(count.shape, value) for value in (True, False, 0))
    for i, step in enumerate(np.diff(looks, prepend=0).tolist()):
        count += np.where(going, rng.binomial(step, p, size=count.shape), 0)
        spent += step * going
        proved |= going & (count >= needed[i])
        going &= ~proved & (count > given_up[i])
    return float(spent.mean()), float(proved.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", type=Path, help="the folder of published logs")
    parser.add_argument("--repetitions", type=int, default=20)
    args = parser.parse_args()
    print("| log, radius | method | average samples | certified accuracy | samples of fixed / its own |")
    print("|---|---|---:|---:|---:|")
    for name, noise, radius, log_alpha in LOGS:
        rows = compare(args.logs / f"{name}.tsv", noise, radius, log_alpha, args.repetitions)
        for method, samples, accuracy in rows:
            print(f"| {name}, {radius:g} | {method} | {samples:,.0f} | {accuracy:.2%} | {CEILING / samples:.1f} |")


def compare(
    path: Path, noise: Noise, radius: float, log_alpha: float, repetitions: int
) -> list[tuple[str, float, float]]:
    log = read_log(path)
    population = from_shares(probabilities(log, noise=noise, samples=CEILING, alpha=log_alpha), log.correct)
    p = population.p[np.arange(len(population)), population.label]
    rows = []
    for method, plan in (
        ("fixed", Fixed(CEILING, known_labels=True)),
        ("input-specific, decline .05", InputSpecific(CEILING, decline=0.05, known_labels=True)),
    ):
        found = simulate(population, plan, noise=noise, radii=[radius], repetitions=repetitions).plan
        rows.append((method, found.samples, found.certified_accuracy[radius]))
    threshold = float(noise.probability(radius))
    for method, needed, looks in (
        ("staged Bonferroni", staged, STAGES),
        ("union-bound confidence sequence", union_bound, LOOKS),
        ("betting confidence sequence", betting, LOOKS),
        ("AtRadii", exact, LOOKS),
    ):
        rows.append((method, *sequential(needed(threshold, looks), looks, p, repetitions)))
    return rows


if __name__ == "__main__":
    main()

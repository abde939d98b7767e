"""Plans on published logs: commands of `smoothcert replay`, and other sequential methods on the same inputs."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
from scipy.special import betainc, betaln

from benchmarks.commands import printed, smoothcert
from benchmarks.experiments import Inputs
from benchmarks.paper import axis, panel
from smoothcert import AtRadii, Fixed, Gaussian, InputSpecific, Plan
from smoothcert.runs.logs import read_log
from smoothcert.statistics.bounds import critical_count
from smoothcert.statistics.group_sequential import boundary, default_looks, futility_counts
from smoothcert.tasks.replay import from_shares, probabilities, read_population, simulate

CEILING, ALPHA, REPETITIONS = 100_000, 0.001, 20
CEILINGS = (10_000, 20_000, 50_000, CEILING)
LOOKS, STAGES = default_looks(CEILING), (100, 1_000, 10_000, CEILING)


def replays(inputs: Inputs, *, rows: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Rows of named replays: what `smoothcert replay` gives with these arguments."""
    return {
        "rows": [
            {"name": name, "radii": _radii(columns)}
            | {column: replay(inputs, arguments) for column, arguments in columns.items()}
            for name, columns in rows.items()
        ]
    }


def _radii(columns: dict[str, str]) -> str | None:
    given = re.search(r"--radii (\S+)", " ".join(columns.values()))
    return given[1].replace(",", ", ") if given else None


def replay(inputs: Inputs, arguments: str) -> dict[str, Any]:
    found = json.loads(smoothcert("replay", *_with_folder(inputs, arguments), "--json"))
    ceiling, fixed = found["ceiling"], found["fixed"]
    lost = {
        r: 100 * (ceiling["certified_accuracy"][r] - share)
        for r, share in found["certified_accuracy"].items()
    }
    return {
        "samples": found["average_samples"],
        "acr": found["acr"],
        "fixed acr": fixed["acr"],
        "ceiling acr": ceiling["acr"],
        "times fewer": ceiling["samples"] / found["average_samples"],
        "ca": {radius: 100 * share for radius, share in found["certified_accuracy"].items()},
        "ceiling ca": {
            radius: 100 * share for radius, share in ceiling["certified_accuracy"].items()
        },
        "lost": max(lost.values()),
        "lost at": max(lost, key=lambda radius: lost[radius]),
    }


def over_samples(inputs: Inputs, *, log: str, sigma: float, radii: list[float]) -> dict[str, Any]:
    """Certified accuracy, mean over the radii, against samples: all plans with known labels, for several ceilings."""
    assert inputs.logs is not None
    population = read_population(inputs.logs / log, Fixed(), noise=Gaussian(sigma))[0]
    axes = (
        axis("average samples (log scale)", kind="count", log=True),
        axis("certified accuracy", kind="percent"),
    )
    panels = []
    for bound in ("binary", "runner-up"):
        options: dict[str, Any] = {"known_labels": True, "bound": bound}
        plans: dict[str, list[Plan]] = {
            "fixed": [Fixed(n, **options) for n in CEILINGS],
            "input-specific": [InputSpecific(n, **options) for n in CEILINGS],
            "radii": [AtRadii(radii, n, **options) for n in CEILINGS],
        }
        lines = []
        for name, chosen in plans.items():
            found = [
                simulate(population, p, noise=Gaussian(sigma), radii=radii, repetitions=5).plan
                for p in chosen
            ]
            shares = [float(np.mean(list(one.certified_accuracy.values()))) for one in found]
            lines.append({"series": name, "x": [one.samples for one in found], "y": shares})
        panels.append(panel(f"bound: {bound}", *axes, lines=lines))
    return {"figures": {"over-samples": panels}}


def outputs(inputs: Inputs, **commands: str) -> dict[str, Any]:
    """What `smoothcert replay` prints, for pages that show it."""
    return {
        name: {
            "needs": "needs published logs",
            "command": f"smoothcert replay LOGS/{arguments}",
            "text": printed("replay", *_with_folder(inputs, arguments)),
        }
        for name, arguments in commands.items()
    }


def _with_folder(inputs: Inputs, arguments: str) -> list[object]:
    assert inputs.logs is not None
    name, *options = arguments.split()
    return [inputs.logs / name, *options]


def sequential(inputs: Inputs, *, logs: list[tuple[str, float, float, float]]) -> dict[str, Any]:
    """Methods that decide one radius of a log (name, sigma, radius, alpha of the log).

    All know the labels, keep the same alpha, look after the same numbers of samples, and give up by the same rule: when
    the probability of reaching the last boundary falls below 2%. So a method is defined by its boundary, which is the
    number of votes that it needs at each look.
    """
    assert inputs.logs is not None
    rows: list[dict[str, Any]] = []
    for name, sigma, radius, log_alpha in logs:
        noise, log = Gaussian(sigma), read_log(inputs.logs / f"{name}.tsv")
        population = from_shares(
            probabilities(log, noise=noise, samples=CEILING, alpha=log_alpha), log.correct
        )
        p = population.p[np.arange(len(population)), population.label]
        found = {}
        for method, plan in (
            ("fixed", Fixed(CEILING, known_labels=True)),
            (
                "input-specific, decline .05",
                InputSpecific(CEILING, decline=0.05, known_labels=True),
            ),
        ):
            outcome = simulate(
                population, plan, noise=noise, radii=[radius], repetitions=REPETITIONS
            ).plan
            found[method] = outcome.samples, outcome.certified_accuracy[radius]
        threshold = float(noise.probability(radius))
        for method, needed, looks in (
            ("staged Bonferroni", staged, STAGES),
            ("union-bound confidence sequence", union_bound, LOOKS),
            ("betting confidence sequence", betting, LOOKS),
            ("AtRadii", exact, LOOKS),
        ):
            found[method] = _follow(needed(threshold, looks), looks, p)
        rows += [
            {"log": name, "radius": radius, "method": method, "samples": samples}
            | {"ca": 100 * share, "times fewer": CEILING / samples}
            for method, (samples, share) in found.items()
        ]
    return {"rows": rows}


def union_bound(threshold: float, looks: tuple[int, ...]) -> np.ndarray:
    """Clopper-Pearson at look i with alpha / (i (i + 1)): the spent parts add up to alpha for any number of looks."""
    shares = [ALPHA / (i * (i + 1)) for i in range(1, len(looks) + 1)]
    return np.array(
        [
            int(critical_count(threshold, n, alpha=alpha))
            for n, alpha in zip(looks, shares, strict=True)
        ]
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


def _follow(needed: np.ndarray, looks: tuple[int, ...], p: np.ndarray) -> tuple[float, float]:
    """Average samples, and the share of inputs that reach the boundary."""
    rng = np.random.default_rng(0)
    given_up = futility_counts(int(needed[-1]), looks)
    count = np.zeros((REPETITIONS, len(p)), np.int64)
    going, proved, spent = (np.full(count.shape, value) for value in (True, False, 0))
    for i, step in enumerate(np.diff(looks, prepend=0).tolist()):
        count += np.where(going, rng.binomial(step, p, size=count.shape), 0)
        spent += step * going
        proved |= going & (count >= needed[i])
        going &= ~proved & (count > given_up[i])
    return float(spent.mean()), float(proved.mean())

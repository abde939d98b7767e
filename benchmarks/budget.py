"""A price for samples against input-specific and fixed sampling, and the error of estimates and forecasts."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import results
from benchmarks.cifar10 import CEILING, RADII, subject, weights
from benchmarks.experiments import Inputs
from benchmarks.paper import axis, panel
from smoothcert import (
    Fixed,
    Gaussian,
    InputSpecific,
    Price,
    Smoothed,
    certify,
    forecast,
    probe,
)
from smoothcert.plans.simulation import simulate as simulate_rule
from smoothcert.runs.logs import read_log
from smoothcert.tasks.probe import _UntilClear
from smoothcert.tasks.replay import Population, from_shares, probabilities, simulate

REPETITIONS = 20
DECLINES = (0.10, 0.05)
PRICES = np.geomspace(8e-5, 1e-6, 9)  # per unit of sigma


def log_population(inputs: Inputs, name: str, sigma: float, alpha: float) -> Population:
    assert inputs.logs is not None
    log = read_log(inputs.logs / f"{name}.tsv")
    return from_shares(
        probabilities(log, noise=Gaussian(sigma), samples=CEILING, alpha=alpha), log.correct
    )


def price(inputs: Inputs, *, logs: list[tuple[str, float, float]], figure: str) -> dict[str, Any]:
    """The samples with which a price reaches the ACR of input-specific sampling (name, sigma and alpha of the log)."""
    rows, panels = [], []
    for name, sigma, alpha in logs:
        population, noise = log_population(inputs, name, sigma, alpha), Gaussian(sigma)

        def outcome(
            plan: Any, population: Population = population, noise: Gaussian = noise
        ) -> tuple[float, float]:
            found = simulate(population, plan, noise=noise, repetitions=REPETITIONS).plan
            return found.samples, found.acr

        curve = [outcome(Price(CEILING, price=sigma * value)) for value in PRICES]
        specific = [outcome(InputSpecific(CEILING, decline=decline)) for decline in DECLINES]
        row: dict[str, Any] = {"log": name, "inputs": len(population)}
        for decline, (samples, acr) in zip(DECLINES, specific, strict=True):
            row[f"{decline:.2f}"] = {
                "samples": samples,
                "acr": acr,
                "price": _samples_for(acr, curve) / samples,
            }
        rows.append(row)
        if name == figure:
            sizes = np.geomspace(curve[0][0], CEILING, 8).astype(int).tolist()
            fixed = [outcome(Fixed(n)) for n in sizes]
            more = [
                outcome(InputSpecific(CEILING, decline=decline))
                for decline in (0.4, 0.3, 0.2, 0.03, 0.02)
            ]
            series = {"fixed": fixed, "input-specific": sorted([*specific, *more]), "price": curve}
            lines = [
                {"series": key, "x": [s for s, _ in at], "y": [a for _, a in at]}
                for key, at in series.items()
            ]
            panels = [panel(name, axis("average samples", kind="count"), axis("ACR"), lines=lines)]
    worst = {f"{d:.2f}": max(row[f"{d:.2f}"]["price"] for row in rows) for d in DECLINES}
    return {"rows": rows, "worst": worst, "figures": {"trade-off": panels}}


def _samples_for(acr: float, curve: list[tuple[float, float]]) -> float:
    samples, acrs = np.array(sorted(curve)).T
    return float(np.exp(np.interp(acr, acrs, np.log(samples))))


def estimates(inputs: Inputs, *, logs: list[tuple[str, float, float]]) -> dict[str, Any]:
    """Estimates of certified accuracy against what fixed sampling would certify, in points."""
    rows = []
    for name, sigma, alpha in logs:
        population, noise, radii = (
            log_population(inputs, name, sigma, alpha),
            Gaussian(sigma),
            RADII[sigma],
        )
        p = population.p[np.arange(len(population)), population.label]
        plan, rng = _UntilClear.at(radii, noise, CEILING), np.random.default_rng(0)
        shape = (REPETITIONS, len(p))

        shares = np.stack([p, 1 - p], axis=-1)
        state = simulate_rule(plan, noise, shares, shape, rng, np.zeros(shape, int)).state
        found = (plan.likely(state.count, state.drawn) > 0.5).mean(axis=1)
        error = 100 * (found - (p[:, None] >= np.array(plan.thresholds)).mean(axis=0))
        largest = np.abs(error).max(axis=1)  # over the radii, in each repetition
        figures = {"usual": np.median(largest), "at most": np.quantile(largest, 0.95)}
        rows.append({"log": name, "inputs": len(p), "samples": state.drawn.mean()} | figures)
    return {"rows": rows}


def models(inputs: Inputs, *, models: list[str], shares: list[float]) -> dict[str, Any]:
    """Budgets against input-specific sampling, on 500 images of CIFAR-10, at some shares of its samples."""
    rows = []
    for model in models:
        smoothed, data = _cifar10(inputs, model)
        row: dict[str, Any] = {"model": model}
        for decline in DECLINES:
            specific = certify(
                smoothed, data, plan=InputSpecific(CEILING, decline=decline), skip=20
            )
            budgets = [round(share * specific.samples.sum()) for share in shares]
            spent = [certify(smoothed, data, budget=budget, skip=20) for budget in budgets]
            curve = [(budget, run.acr) for budget, run in zip(budgets, spent, strict=True)]
            row[f"{decline:.2f}"] = {
                "samples": specific.average_samples,
                "acr": specific.acr,
                "price": _samples_for(specific.acr, curve) / specific.samples.sum(),
                "budgets": [
                    {"share": share, "acr": run.acr}
                    for share, run in zip(shares, spent, strict=True)
                ],
            }
        rows.append(row)
    return {"rows": rows}


def forecasts(inputs: Inputs, *, models: list[str]) -> dict[str, Any]:
    """Forecasts against what runs took, on 250 images of CIFAR-10."""
    rows = []
    for model in models:
        smoothed, data = _cifar10(inputs, model)
        plan = InputSpecific(CEILING, decline=DECLINES[-1])
        expected = forecast(smoothed, data, plan=plan, skip=40)
        run = certify(smoothed, data, plan=plan, skip=40)
        rows.append(
            {"model": model, "forecast": 100 * (expected.samples / run.samples.sum() - 1)}
            | {"forecast of time": 100 * (expected.seconds / run.total_seconds - 1)}
        )
    return {"rows": rows}


def model_estimates(inputs: Inputs, *, models: list[str]) -> dict[str, Any]:
    """Estimates against certificates by fixed sampling, on 500 images of CIFAR-10."""
    rows = []
    for model in models:
        sigma, data = float(model.rpartition("-")[2]), f"cifar10:{inputs.data}"
        given: dict[str, Any] = {
            "weights": weights(inputs, model),
            "sigmas": [sigma],
            "radii": RADII[sigma],
        }
        found = probe(None, data, **given, skip=20, limit=500)
        certified = (results.read(f"cifar10-{model}") or {})["numbers"]["rows"][0]["ca"]
        estimated = {
            f"{r:g}": 100 * (ca or 0) for r, ca in (found.levels[1].estimated or {}).items()
        }
        error = max(abs(ca - certified[r]) for r, ca in estimated.items())
        rows.append(
            {
                "model": model,
                "estimated": estimated,
                "largest error": error,
                "seconds": found.seconds,
            }
        )
    return {"rows": rows}


def _cifar10(inputs: Inputs, model: str) -> tuple[Smoothed, str]:
    return subject(inputs, model, float(model.rpartition("-")[2])), f"cifar10:{inputs.data}"

"""The paper's tables and figures from published certification logs, beside the numbers that it prints."""

from __future__ import annotations

import csv
import timeit
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

from benchmarks.experiments import Inputs
from smoothcert import Fixed, Gaussian, InputSpecific, Plan, SampleMap
from smoothcert.runs.logs import read_log
from smoothcert.runs.results import Results
from smoothcert.tasks.replay import Outcome, Replay, from_shares, probabilities, simulate

LOG_SAMPLES = 100_000
HALF = Gaussian(0.5)
KINDS = {"AD": "absolute", "RD": "relative"}
MAP_SECONDS = {"absolute 0.01": 0.70, "absolute 0.05": 0.65, "absolute 0.1": 0.57}
MAP_SECONDS |= {"relative 0.01": 39.47, "relative 0.05": 13.52, "relative 0.1": 7.50}


@dataclass(frozen=True)
class Printed:
    """A row as the paper prints it."""

    sigma: float
    method: str
    samples: int
    minutes: int
    mad: float | None
    acr: float
    ca: dict[str, float]


def printed(table: str) -> list[tuple[Printed, Printed]]:
    """The pairs of rows (ISS, IAS at the same cost) of one table of the paper."""
    step = 0.25 if table.startswith("cifar10") else 0.5
    with (Path(__file__).parent / "printed.csv").open() as file:
        rows = [
            Printed(
                sigma=float(row["sigma"]),
                method=row["method"],
                samples=int(row["avg"]),
                minutes=int(row["minutes"]),
                mad=float(row["mad"]) if row["mad"] else None,
                acr=float(row["acr"]),
                ca={
                    f"{step * i:g}": float(share)
                    for i, share in enumerate(row["certified_accuracy"].split())
                },
            )
            for row in csv.DictReader(file)
            if row["table"] == table
        ]
    return list(zip(rows[::2], rows[1::2], strict=True))


def setting(method: str, *, pilot_use: str = "reuse") -> InputSpecific:
    """The plan behind a name like ISS-AD-10-0.05; the grid of the map goes with the use of the pilot."""
    _, kind, ceiling, decline = method.split("-")
    return InputSpecific(
        10_000 * int(ceiling), decline=float(decline), kind=KINDS[kind], pilot_use=pilot_use
    )


def read(inputs: Inputs, data: str, model: str, sigma: float) -> Results:
    """A published log; of CIFAR-10 the paper's 500 inputs."""
    assert inputs.logs is not None
    log = read_log(inputs.logs / f"{data}-{model}-{sigma:.2f}.tsv")
    return log.only(log.id % 20 == 0) if data == "cifar10" else log


def _replay(
    log: Results, plan: Plan, sigma: float, alpha: float = 0.001, **settings: Any
) -> Replay:
    """Simulate a plan on the inputs of a log."""
    p = probabilities(log, noise=Gaussian(sigma), samples=LOG_SAMPLES, alpha=alpha)
    return simulate(from_shares(p, log.correct), plan, noise=Gaussian(sigma), **settings)


def table(
    inputs: Inputs, *, table: str, model: str, sigmas: list[float], alpha: float
) -> dict[str, Any]:
    """Every row that the paper prints for these sigmas, and the same settings replayed on a log made at `alpha`."""
    data = table.partition("-")[0]
    found: dict[str, Any] = {}
    differences: dict[str, list[float]] = {"samples": [], "acr": [], "gain": [], "printed gain": []}
    for sigma in sigmas:
        log = read(inputs, data, model, sigma)
        rows, shares = [], []
        for iss, ias in printed(table):
            if iss.sigma != sigma:
                continue
            published, default = (
                _replay(
                    log,
                    setting(iss.method, pilot_use=pilot_use),
                    sigma,
                    alpha,
                    radii=[float(radius) for radius in iss.ca],
                )
                for pilot_use in ("reuse", "fresh")
            )
            minutes = float(np.sum(log.seconds)) / 60 / LOG_SAMPLES
            rows += [_row(iss, published.plan, minutes), _row(ias, published.fixed, minutes)]
            rows.append(_row(replace(iss, method="*default*"), default.plan, minutes, beside=False))
            for row, outcome in ((iss, published.plan), (ias, published.fixed)):
                shares.append({"method": row.method, "ca": _shares(outcome), "paper": row.ca})
            differences["samples"].append(published.plan.samples / iss.samples - 1)
            differences["acr"].append(published.plan.acr - iss.acr)
            differences["gain"].append(published.plan.acr - published.fixed.acr)
            differences["printed gain"].append(iss.acr - ias.acr)
        for radius in shares[0]["paper"]:
            if all(max(row["ca"][radius], row["paper"][radius]) == 0 for row in shares):
                for row in shares:
                    row["ca"] = {r: share for r, share in row["ca"].items() if r != radius}
        found[f"{sigma:g}"] = {"rows": rows, "ca": shares}
    return found | {
        "differences": {name: [min(values), max(values)] for name, values in differences.items()}
    }


def _shares(outcome: Outcome) -> dict[str, float]:
    return {f"{radius:g}": 100 * share for radius, share in outcome.certified_accuracy.items()}


def _row(row: Printed, outcome: Outcome, minutes: float, *, beside: bool = True) -> dict[str, Any]:
    here = {
        "method": row.method,
        "samples": outcome.samples,
        "minutes": minutes * outcome.samples,
        "mad": outcome.mad,
        "acr": outcome.acr,
    }
    paper = {"samples": row.samples, "minutes": row.minutes, "mad": row.mad, "acr": row.acr}
    more = {"more samples": outcome.samples / row.samples - 1, "more acr": outcome.acr - row.acr}
    return here | ({"paper": paper} | more if beside else {})


def map_runtime(inputs: Inputs) -> dict[str, Any]:
    """The seconds of one sample map on the paper's grid."""
    rows = []
    for name, paper in MAP_SECONDS.items():
        kind, decline = name.split()
        psi = SampleMap(HALF, 100_000, float(decline), kind)
        best = min(timeit.repeat(lambda psi=psi: psi.on_paper_grid(1.0), number=1, repeat=5))
        rows.append({"decline": name, "ms": 1000 * best, "paper": 1000 * paper})
    return {"rows": rows}


def figures(inputs: Inputs) -> dict[str, Any]:
    """The paper's figures, and the numbers that their captions need."""
    imagenet = {sigma: read(inputs, "imagenet", "consistency", sigma) for sigma in (0.5, 1.0)}
    cifar10 = {sigma: read(inputs, "cifar10", "consistency", sigma) for sigma in (0.5, 1.0)}
    crossing, gain = iss_minus_ias()
    radius_rows, radius = radius_against_samples()
    pilot_rows, pilot = pilot_share(imagenet)
    p = probabilities(imagenet[0.5], noise=HALF, samples=LOG_SAMPLES, alpha=0.001)[
        ~imagenet[0.5].abstained
    ]
    inputs_of_log = len(imagenet[0.5])
    edges = np.linspace(0.5, 1, 51)
    bars = {"series": "ImageNet", "edges": edges, "y": np.histogram(p, edges)[0] / inputs_of_log}
    axes = axis("p"), axis("share of inputs", kind="percent", zero=True)
    return {
        "crossing": crossing,
        "p above": {
            "0.94": 100 * np.sum(p > 0.94) / inputs_of_log,
            "crossing": 100 * np.sum(p > crossing["as run"]) / inputs_of_log,
        },
        "radius": radius_rows,
        "pilot": pilot_rows,
        "figures": {
            "trade-off": [
                trade_off(f"{title}, sigma {sigma:g}", table, sigma, log)
                for title, table, logs in (
                    ("ImageNet", "imagenet-ad", imagenet),
                    ("CIFAR-10", "cifar10-ad", cifar10),
                )
                for sigma, log in logs.items()
            ],
            "radius-against-samples": radius,
            "iss-minus-ias": gain,
            "distribution-of-p": [panel("Distribution of p", *axes, bars=[bars])],
            "sample-maps": sample_maps(),
            "pilot-share": pilot,
        },
    }


def axis(title: str, **options: Any) -> dict[str, Any]:
    return {"title": title, "zero": False} | options


def panel(
    title: str, x: dict[str, Any], y: dict[str, Any], **layers: list[dict[str, Any]]
) -> dict[str, Any]:
    return {"title": title, "x": x, "y": y} | layers


def trade_off(title: str, table: str, sigma: float, log: Results) -> dict[str, Any]:
    """ACR against average samples, ISS and IAS; the paper's printed rows as hollow marks."""
    plans: dict[str, Any] = {
        f"ISS, {decline}": [
            setting(f"ISS-AD-{ceiling}-{decline}") for ceiling in (5, 10, 20, 30, 40, 50)
        ]
        for decline in ("0.05", "0.10")
    }
    plans["IAS"] = [
        Fixed(n, pilot_use="reuse") for n in np.geomspace(10_000, 300_000, 12).astype(int).tolist()
    ]
    lines = []
    for name, chosen in plans.items():
        found = [_replay(log, plan, sigma, repetitions=3).plan for plan in chosen]
        lines.append({"series": name, "x": [o.samples for o in found], "y": [o.acr for o in found]})
    points = [
        {"series": name, "x": [row.samples], "y": [row.acr], "hollow": True}
        for iss, ias in printed(table)
        for row, name in ((iss, f"ISS, {iss.method.rpartition('-')[2]}"), (ias, "IAS"))
        if row.sigma == sigma
    ]
    return panel(
        title, axis("average samples", kind="count"), axis("ACR"), lines=lines, points=points
    )


def radius_against_samples() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """R(k, p) for p = .51 and .99 with what ISS and IAS assign."""
    psi = SampleMap(HALF, samples=100_000, decline=0.0042)
    k, planned = np.linspace(10_000, 100_000, 200), psi([0.51, 0.99])
    panels = []
    for p, n in zip((0.51, 0.99), planned.tolist(), strict=True):
        points = [
            {"series": name, "x": [samples], "y": [psi.radius(samples, p)]}
            for name, samples in ((f"ISS: {n:,}", n), ("IAS: 50,000", 50_000))
        ]
        curve = {"series": "", "x": k, "y": np.maximum(psi.radius(k, p), 0), "label": "R"}
        panels.append(
            panel(
                f"p = {p}",
                axis("samples", kind="count"),
                axis("radius"),
                lines=[curve],
                points=points,
            )
        )
    full, fixed, ours = (psi.radius(n, [0.51, 0.99]) for n in (100_000, 50_000, planned))
    rows = [
        ("ISS samples at p = .51", f"{planned[0]:,}", "35,000"),
        ("ISS samples at p = .99", f"{planned[1]:,}", "65,000"),
        ("IAS's decline at p = .99", f"{full[1] - fixed[1]:.4f}", "0.0075"),
        ("the same as a multiple of ISS's", f"{(full[1] - fixed[1]) / 0.0042:.2f}", "1.78"),
        ("radius that ISS gives up at p = .51", f"{fixed[0] - ours[0]:.4f}", "0.002"),
        ("radius that ISS wins at p = .99", f"{ours[1] - fixed[1]:.4f}", "0.003"),
        ("ACR of ISS minus IAS over both", f"{np.mean(ours - fixed):.4f}", "0.0005"),
    ]
    return [dict(zip(("what", "here", "paper"), row, strict=True)) for row in rows], panels


def iss_minus_ias() -> tuple[dict[str, float], list[dict[str, Any]]]:
    """R_ISS - R_IAS against p: ISS at 100,000 with decline .05, IAS at 30,000; and where it turns positive."""
    psi, plan = SampleMap(HALF), InputSpecific(pilot_use="reuse")
    p = np.concatenate([np.linspace(0.5, 0.99, 99), 1 - np.geomspace(0.0099, 1e-5, 120), [1.0]])
    fixed, needed = np.maximum(psi.radius(30_000, p), 0), psi(p)
    exact = np.where(needed > 0, np.maximum(psi.radius(np.maximum(needed, 1), p), 0), 0) - fixed
    # As run: the pilot is random, so the radius is averaged over what it may say.
    a0 = np.arange(plan.pilot + 1)
    counted = np.maximum(plan.after_pilot(a0, HALF) + plan.pilot, 1)
    as_run = (
        np.array([binom.pmf(a0, plan.pilot, q) @ np.maximum(psi.radius(counted, q), 0) for q in p])
        - fixed
    )
    curves = {"p known": exact, "p estimated by the pilot": as_run}
    panels = []
    for low, title in ((0.5, "all p"), (0.985, "p near 1")):
        near = p >= low
        lines = [{"series": "", "x": [low, 1.0], "y": [0.0, 0.0], "label": "equal"}]
        lines += [{"series": name, "x": p[near], "y": gain[near]} for name, gain in curves.items()]
        panels.append(panel(title, axis("p"), axis("radius, ISS minus IAS"), lines=lines))
    first = {
        name: float(p[np.flatnonzero(d <= 0)[-1] + 1])
        for name, d in (("exact", exact), ("as run", as_run))
    }
    return first | {"needed at .94": int(psi(0.94))}, panels


def sample_maps() -> list[dict[str, Any]]:
    """Draw psi for absolute and relative decline and both ceilings."""
    p = np.concatenate([np.linspace(0.5, 0.995, 200), 1 - np.geomspace(5e-3, 1e-6, 60), [1.0]])
    panels = []
    for samples in (100_000, 500_000):
        for kind in ("absolute", "relative"):
            lines = [
                {
                    "series": f"{decline:g}" if kind == "absolute" else f"{100 * decline:g}%",
                    "x": p,
                    "y": SampleMap(HALF, samples, decline, kind)(p),
                }
                for decline in (0.01, 0.05, 0.10)
            ]
            axes = axis("p"), axis("samples needed", kind="count", zero=True)
            panels.append(panel(f"{kind} decline, ceiling {samples:,}", *axes, lines=lines))
    return panels


def pilot_share(logs: dict[float, Results]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """ACR and average samples against the pilot's share of the ceiling."""
    shares = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2]
    rows, curves = [], {}
    for sigma, log in logs.items():
        found = {
            use: [
                _replay(log, plan, sigma).plan
                for plan in (
                    InputSpecific(pilot=int(share * 100_000), pilot_use=use) for share in shares
                )
            ]
            for use in ("reuse", "fresh")
        }
        curves |= {
            f"sigma {sigma:g}{', default' * (use == 'fresh')}": outcomes
            for use, outcomes in found.items()
        }
        for share, old, new in zip(shares, found["reuse"], found["fresh"], strict=True):
            row = {"sigma": sigma, "share": share, "samples": old.samples, "acr": old.acr}
            rows.append(row | {"default": {"samples": new.samples, "acr": new.acr}})
    y = {"acr": axis("ACR"), "samples": axis("average samples", kind="count")}
    return rows, [
        panel(
            axes["title"],
            axis("pilot / ceiling", log=True, zero=True),
            axes,
            lines=[
                {"series": name, "x": shares, "y": [getattr(o, field) for o in found]}
                for name, found in curves.items()
            ],
        )
        for field, axes in y.items()
    ]

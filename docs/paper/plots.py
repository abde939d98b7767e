"""The paper's figures. Each function writes one and returns the numbers that its caption needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.stats import binom
from tables import LOG_SAMPLES, printed, setting

from smoothcert import Fixed, Gaussian, InputSpecific, SampleMap
from smoothcert.plans import PilotPlan
from smoothcert.report.chart import Axis, Bars, Chart, Layer, Line, Points
from smoothcert.report.figures import save
from smoothcert.runs.logs import Log
from smoothcert.tasks.replay import probabilities, replay

HALF = Gaussian(0.5)
DECLINES = (0.01, 0.05, 0.10)


def trade_off(shown: dict[str, tuple[str, dict[float, Log]]], path: Path) -> None:
    """ACR against average samples, ISS and IAS; the paper's printed rows as hollow marks."""
    panels = []
    for title, (table, logs) in shown.items():
        for sigma, log in logs.items():
            plans: dict[str, Sequence[PilotPlan]] = {
                f"ISS, {decline}": [
                    setting(f"ISS-AD-{c}-{decline}", pilot_use="reuse") for c in (5, 10, 20, 30, 40, 50)
                ]
                for decline in ("0.05", "0.10")
            }
            sizes = np.geomspace(10_000, 300_000, 12).astype(int).tolist()
            plans["IAS"] = [Fixed(n, pilot_use="reuse") for n in sizes]
            layers: list[Layer] = []
            for name, chosen in plans.items():
                replays = [
                    replay(log, plan, noise=Gaussian(sigma), log_samples=LOG_SAMPLES, repetitions=3) for plan in chosen
                ]
                layers.append(
                    Line(name, *(np.array([getattr(r.plan, x) for r in replays]) for x in ("samples", "acr")))
                )
            for iss, ias in printed(table):
                layers += [
                    Points(name, np.array([row.samples]), np.array([row.acr]), hollow=True)
                    for row, name in ((iss, f"ISS, {iss.method.rpartition('-')[2]}"), (ias, "IAS"))
                    if row.sigma == sigma
                ]
            x, y = Axis("average samples", "count", zero=False), Axis("ACR", zero=False)
            panels.append(Chart("trade-off", f"{title}, sigma {sigma:g}", tuple(plans), x, y, tuple(layers)))
    save(panels, path, ["svg"])


def radius_against_samples(path: Path) -> str:
    """R(k, p) for p = .51 and .99 with what ISS and IAS assign."""
    psi = SampleMap(HALF, samples=100_000, decline=0.0042)
    k = np.linspace(10_000, 100_000, 200)
    planned = psi([0.51, 0.99])
    panels = []
    for p, n in zip((0.51, 0.99), planned.tolist(), strict=True):
        names = (f"ISS: {n:,}", "IAS: 50,000")
        marks = [
            Points(name, np.array([samples]), np.array([psi.radius(samples, p)]))
            for name, samples in zip(names, (n, 50_000), strict=True)
        ]
        curve = Line("", k, np.maximum(psi.radius(k, p), 0), label="R")
        x, y = Axis("samples", "count", zero=False), Axis("radius", zero=False)
        panels.append(Chart("radius-against-samples", f"p = {p}", names, x, y, (curve, *marks)))
    save(panels, path, ["svg"])
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
    return "\n".join(["| | here | paper |", "|---|---:|---:|", *(f"| {' | '.join(row)} |" for row in rows)])


def iss_minus_ias(path: Path) -> dict[str, float]:
    """R_ISS - R_IAS against p: ISS at 100,000 with decline .05, IAS at 30,000; where it turns positive."""
    psi = SampleMap(HALF)
    plan = InputSpecific(pilot_use="reuse")
    p = np.concatenate([np.linspace(0.5, 0.99, 99), 1 - np.geomspace(0.0099, 1e-5, 120), [1.0]])
    fixed = np.maximum(psi.radius(30_000, p), 0)
    needed = psi(p)
    exact = np.where(needed > 0, np.maximum(psi.radius(np.maximum(needed, 1), p), 0), 0) - fixed
    # As run: the pilot is random, so the radius is averaged over what it may say.
    a0 = np.arange(plan.pilot + 1)
    counted = np.maximum(plan.after_pilot(a0, HALF) + plan.pilot, 1)
    as_run = np.array([binom.pmf(a0, plan.pilot, q) @ np.maximum(psi.radius(counted, q), 0) for q in p]) - fixed
    names = ("p known", "p estimated by the pilot")
    panels = []
    for low, title in ((0.5, "all p"), (0.985, "p near 1")):
        near = p >= low
        layers = [Line(name, p[near], gain[near]) for name, gain in zip(names, (exact, as_run), strict=True)]
        level = Line("", np.array([low, 1]), np.zeros(2), label="equal")
        x, y = Axis("p", zero=False), Axis("radius, ISS minus IAS", zero=False)
        panels.append(Chart("iss-minus-ias", title, names, x, y, (level, *layers)))
    save(panels, path, ["svg"])
    first = {name: float(p[np.flatnonzero(d <= 0)[-1] + 1]) for name, d in (("exact", exact), ("as_run", as_run))}
    return first | {"needed_at_94": int(psi(0.94))}


def distribution_of_p(log: Log, crossing: float, path: Path) -> dict[str, float]:
    """p over the inputs of a log, abstained ones left out because a log does not tell theirs."""
    p = probabilities(log, noise=HALF, samples=LOG_SAMPLES, alpha=0.001)[~log.abstained]
    edges = np.linspace(0.5, 1, 51)
    bars = Bars("ImageNet", edges, np.histogram(p, edges)[0] / len(log))
    x, y = Axis("p", zero=False), Axis("share of inputs", "percent")
    save(Chart("distribution-of-p", "Distribution of p", ("ImageNet",), x, y, (bars,)), path, ["svg"])
    return {"above_94": np.sum(p > 0.94) / len(log), "above_crossing": np.sum(p > crossing) / len(log)}


def sample_maps(path: Path) -> None:
    """psi for absolute and relative decline and both ceilings."""
    p = np.concatenate([np.linspace(0.5, 0.995, 200), 1 - np.geomspace(5e-3, 1e-6, 60), [1.0]])
    panels = []
    for samples in (100_000, 500_000):
        for kind in ("absolute", "relative"):
            maps = [SampleMap(HALF, samples, decline, kind) for decline in DECLINES]
            names = [f"{d:g}" if kind == "absolute" else f"{100 * d:g}%" for d in DECLINES]
            lines = tuple(Line(name, p, psi(p)) for name, psi in zip(names, maps, strict=True))
            title = f"{kind} decline, ceiling {samples:,}"
            x, y = Axis("p", zero=False), Axis("samples needed", "count")
            panels.append(Chart("sample-map", title, tuple(names), x, y, lines))
    save(panels, path, ["svg"])


def pilot_share(logs: dict[float, Log], path: Path) -> str:
    """ACR and average samples against the pilot's share of the ceiling; the numbers as a table."""
    shares = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2]
    lines = ["| sigma | pilot / ceiling | Avg | ACR | Avg, default | ACR, default |", "|---|" + "---:|" * 5]
    curves = {}
    for sigma, log in logs.items():
        by_use = {}
        for pilot_use in ("reuse", "fresh"):
            plans = [InputSpecific(pilot=int(share * 100_000), pilot_use=pilot_use) for share in shares]
            found = [replay(log, plan, noise=Gaussian(sigma), log_samples=LOG_SAMPLES).plan for plan in plans]
            by_use[pilot_use] = found
            curves[f"sigma {sigma:g}" + ("" if pilot_use == "reuse" else ", default")] = found
        cheapest = {use: min(o.samples for o in found) for use, found in by_use.items()}
        for i, share in enumerate(shares):
            cells = []
            for use, found in by_use.items():
                mark = "**" if found[i].samples == cheapest[use] else ""
                cells += [f"{mark}{found[i].samples:,.0f}{mark}", f"{found[i].acr:.3f}"]
            lines.append(f"| {sigma:g} | {share:g} | " + " | ".join(cells) + " |")
    axes = {"acr": Axis("ACR", zero=False), "samples": Axis("average samples", "count", zero=False)}
    panels = [
        Chart(
            "pilot-share",
            y.title,
            tuple(curves),
            Axis("pilot / ceiling", log=True),
            y,
            tuple(
                Line(name, np.array(shares), np.array([getattr(o, field) for o in found]))
                for name, found in curves.items()
            ),
        )
        for field, y in axes.items()
    ]
    save(panels, path, ["svg"])
    return "\n".join(lines)

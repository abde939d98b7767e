"""The paper's figures. Each function writes one and returns the numbers that its caption needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import binom
from tables import LOG_SAMPLES, printed, setting

from smoothcert import Fixed, Gaussian, InputSpecific, SampleMap
from smoothcert.plans import PilotPlan
from smoothcert.report.chart import Axis, Chart, Line
from smoothcert.report.figures import COLOURS, plot, save
from smoothcert.runs.logs import Log
from smoothcert.tasks.replay import probabilities, replay

ISS, IAS = COLOURS[:2]
HALF = Gaussian(0.5)
DECLINES = (0.01, 0.05, 0.10)


def trade_off(shown: dict[str, tuple[str, dict[float, Log]]], path: Path) -> None:
    """ACR against average samples, ISS and IAS; the paper's printed rows as hollow marks."""
    panels = [(title, table, sigma, log) for title, (table, logs) in shown.items() for sigma, log in logs.items()]
    fig, axes = plt.subplots(1, len(panels), figsize=(2.6 * len(panels), 2.6))
    for ax, (title, table, sigma, log) in zip(axes, panels, strict=True):

        def curve(plans: Sequence[PilotPlan], log: Log = log, sigma: float = sigma) -> Iterator[tuple[float, ...]]:
            found = [replay(log, p, noise=Gaussian(sigma), log_samples=LOG_SAMPLES, repetitions=3).plan for p in plans]
            return zip(*((o.samples / 1000, o.acr) for o in found), strict=True)

        sizes = np.geomspace(10_000, 300_000, 12).astype(int).tolist()
        ax.plot(*curve([Fixed(n, pilot_use="reuse") for n in sizes]), color=IAS, label="IAS")
        for decline, style in (("0.05", "-"), ("0.10", "--")):
            plans = [setting(f"ISS-AD-{c}-{decline}", pilot_use="reuse") for c in (5, 10, 20, 30, 40, 50)]
            ax.plot(*curve(plans), style, color=ISS, marker=".", label=f"ISS, {decline}")
        for pair in printed(table):
            for row, colour in zip(pair, (ISS, IAS), strict=True):
                if row.sigma == sigma:
                    ax.plot(row.samples / 1000, row.acr, "o", mfc="none", mec=colour, ms=5)
        ax.set(title=f"{title}, sigma {sigma:g}", xlabel="average samples (thousands)")
    axes[0].set_ylabel("ACR")
    axes[0].legend()
    save(fig, path, ["svg"])


def radius_against_samples(path: Path) -> str:
    """R(k, p) for p = .51 and .99 with what ISS and IAS assign."""
    psi = SampleMap(HALF, samples=100_000, decline=0.0042)
    fig, axes = plt.subplots(1, 2, figsize=(5.6, 2.4))
    k = np.linspace(10_000, 100_000, 200)
    planned = psi([0.51, 0.99])
    for ax, p, n in zip(axes, (0.51, 0.99), planned, strict=True):
        ax.plot(k / 1000, np.maximum(psi.radius(k, p), 0), color="#555555")
        ax.plot(50, psi.radius(50_000, p), "s", color=IAS, label="IAS: 50,000")
        ax.plot(n / 1000, psi.radius(n, p), "o", color=ISS, label=f"ISS: {n:,}")
        ax.set(title=f"p = {p}", xlabel="samples (thousands)", ylabel="radius")
        ax.legend(loc="lower right")
    save(fig, path, ["svg"])
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
    fig, axes = plt.subplots(1, 2, figsize=(5.6, 2.4))
    for ax, low in zip(axes, (0.5, 0.985), strict=True):
        ax.axhline(0, color="#555555", linewidth=0.8)
        ax.plot(p, exact, color=ISS, label="p known")
        ax.plot(p, as_run, "--", color=IAS, label="p estimated by the pilot")
        ax.set(xlim=(low, 1), xlabel="p", ylabel="radius, ISS minus IAS")
    axes[0].legend(loc="upper left")
    save(fig, path, ["svg"])
    first = {name: float(p[np.flatnonzero(d <= 0)[-1] + 1]) for name, d in (("exact", exact), ("as_run", as_run))}
    return first | {"needed_at_94": int(psi(0.94))}


def distribution_of_p(log: Log, crossing: float, path: Path) -> dict[str, float]:
    """p over the inputs of a log, abstained ones left out because a log does not tell theirs."""
    p = probabilities(log, noise=HALF, samples=LOG_SAMPLES, alpha=0.001)[~log.abstained]
    fig, ax = plt.subplots()
    ax.hist(p, np.linspace(0.5, 1, 51), weights=np.full(len(p), 100 / len(log)), color=ISS)
    ax.set(xlabel="p", ylabel="inputs (%)")
    save(fig, path, ["svg"])
    return {"above_94": np.sum(p > 0.94) / len(log), "above_crossing": np.sum(p > crossing) / len(log)}


def sample_maps(path: Path) -> None:
    """psi for absolute and relative decline and both ceilings."""
    fig, axes = plt.subplots(2, 2, figsize=(6.4, 4.4))
    p = np.concatenate([np.linspace(0.5, 0.995, 200), 1 - np.geomspace(5e-3, 1e-6, 60), [1.0]])
    for row, samples in zip(axes, (100_000, 500_000), strict=True):
        for ax, kind in zip(row, ("absolute", "relative"), strict=True):
            maps = [SampleMap(HALF, samples, decline, kind) for decline in DECLINES]
            names = [f"decline {d:g}" if kind == "absolute" else f"decline {100 * d:g}%" for d in DECLINES]
            lines = tuple(Line(name, p, psi(p)) for name, psi in zip(names, maps, strict=True))
            title = f"{kind} decline, ceiling {samples:,}"
            x, y = Axis("p", zero=False), Axis("samples needed", "count")
            plot(Chart("sample-map", title, tuple(names), x, y, lines), ax)
            ax.set_title(title)
    save(fig, path, ["svg"])


def pilot_share(logs: dict[float, Log], path: Path) -> str:
    """ACR and average samples against the pilot's share of the ceiling; the numbers as a table."""
    shares = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2]
    fig, axes = plt.subplots(1, 2, figsize=(5.6, 2.6))
    lines = ["| sigma | pilot / ceiling | Avg | ACR | Avg, default | ACR, default |", "|---|" + "---:|" * 5]
    for (sigma, log), colour in zip(logs.items(), COLOURS, strict=False):
        curves = {}
        for pilot_use, style in (("reuse", "-"), ("fresh", "--")):
            plans = [InputSpecific(pilot=int(share * 100_000), pilot_use=pilot_use) for share in shares]
            found = [replay(log, plan, noise=Gaussian(sigma), log_samples=LOG_SAMPLES).plan for plan in plans]
            curves[pilot_use] = found
            name = f"sigma {sigma:g}" + ("" if pilot_use == "reuse" else ", default")
            axes[0].plot(shares, [o.acr for o in found], style, color=colour, marker=".", label=name)
            axes[1].plot(shares, [o.samples / 1000 for o in found], style, color=colour, marker=".")
        cheapest = {use: min(o.samples for o in found) for use, found in curves.items()}
        for i, share in enumerate(shares):
            cells = []
            for use, found in curves.items():
                mark = "**" if found[i].samples == cheapest[use] else ""
                cells += [f"{mark}{found[i].samples:,.0f}{mark}", f"{found[i].acr:.3f}"]
            lines.append(f"| {sigma:g} | {share:g} | " + " | ".join(cells) + " |")
    for ax, label in zip(axes, ("ACR", "average samples (thousands)"), strict=True):
        ax.set(xscale="log", xlabel="pilot / ceiling", ylabel=label)
    axes[0].legend()
    save(fig, path, ["svg"])
    return "\n".join(lines)

"""The paper's tables: its printed numbers beside those that its method gives on published logs."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from smoothcert import Gaussian, InputSpecific
from smoothcert.runs.logs import Log
from smoothcert.tasks.replay import Outcome, Replay, replay

LOG_SAMPLES = 100_000
KINDS = {"AD": "absolute", "RD": "relative"}


@dataclass(frozen=True)
class Printed:
    """A row as the paper prints it."""

    sigma: float
    method: str
    samples: int
    minutes: int
    mad: float | None
    acr: float
    certified_accuracy: dict[float, float]


@dataclass(frozen=True)
class Comparison:
    """One setting: what the paper prints for ISS and IAS, and what the log gives."""

    iss: Printed
    ias: Printed
    published: Replay
    """The method as published: pilot counted again, grid of step 0.001."""
    default: Replay
    """smoothcert's default: the bound rests on fresh samples alone, exact map."""
    log_minutes: float
    """What the log's own machine took for LOG_SAMPLES per input."""


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
                certified_accuracy={step * i: float(v) / 100 for i, v in enumerate(row["certified_accuracy"].split())},
            )
            for row in csv.DictReader(file)
            if row["table"] == table
        ]
    return list(zip(rows[::2], rows[1::2], strict=True))


def compare(table: str, log: Log, *, sigma: float, log_alpha: float) -> Iterator[Comparison]:
    """Every setting that the paper prints for this noise, replayed on the log."""
    for iss, ias in printed(table):
        if iss.sigma != sigma:
            continue
        published, default = (
            replay(
                log,
                setting(iss.method, pilot_use=pilot_use),
                noise=Gaussian(sigma),
                log_samples=LOG_SAMPLES,
                log_alpha=log_alpha,
                radii=list(iss.certified_accuracy),
            )
            for pilot_use in ("reuse", "fresh")
        )
        yield Comparison(iss, ias, published, default, float(np.sum(log.seconds)) / 60)


def setting(method: str, *, pilot_use: str) -> InputSpecific:
    """The plan behind a name like ISS-AD-10-0.05; the grid goes with the use of the pilot."""
    _, kind, ceiling, decline = method.split("-")
    return InputSpecific(10_000 * int(ceiling), decline=float(decline), kind=KINDS[kind], pilot_use=pilot_use)


def subset(log: Log, ids: np.ndarray) -> Log:
    """The rows of a log with these ids."""
    kept = np.isin(log.id, ids)
    columns = ("id", "label", "prediction", "radius", "slack", "seconds")
    return replace(log, **{name: getattr(log, name)[kept] for name in columns})


def main_table(comparisons: list[Comparison]) -> str:
    """Average samples, time, MAD and ACR beside the printed ones."""
    lines = [
        "| method | Avg | paper | diff | min | paper | MAD | paper | ACR | paper | diff |",
        "|---|" + "---:|" * 10,
    ]
    for c in comparisons:
        lines += [
            _main_row(c.iss.method, c.published.plan, c, c.iss),
            _main_row(c.ias.method, c.published.fixed, c, c.ias),
            _main_row("*default*", c.default.plan, c, None),
        ]
    return "\n".join(lines)


def accuracy_table(comparisons: list[Comparison]) -> str:
    """Certified accuracy in percent, the printed value in brackets, at radii where either is above 0."""
    radii = [
        radius
        for radius in comparisons[0].iss.certified_accuracy
        if any(
            max(c.published.plan.certified_accuracy[radius], c.iss.certified_accuracy[radius]) > 0 for c in comparisons
        )
    ]
    lines = ["| method | " + " | ".join(f"{radius:g}" for radius in radii) + " |", "|---|" + "---:|" * len(radii)]
    for c in comparisons:
        for row, outcome in ((c.iss, c.published.plan), (c.ias, c.published.fixed)):
            cells = (
                f"{100 * outcome.certified_accuracy[r]:.1f} ({100 * row.certified_accuracy[r]:.1f})" for r in radii
            )
            lines.append(f"| {row.method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def differences(comparisons: list[Comparison]) -> str:
    """How far the log's numbers are from the printed ones, in one sentence."""
    if not comparisons:
        return "No log of this model was given."
    samples = [c.published.plan.samples / c.iss.samples - 1 for c in comparisons]
    acr = [c.published.plan.acr - c.iss.acr for c in comparisons]
    gain = [c.published.plan.acr - c.published.fixed.acr for c in comparisons]
    told = [c.iss.acr - c.ias.acr for c in comparisons]
    return (
        f"Average samples differ from the printed ones by {min(samples):+.1%} to {max(samples):+.1%}, ACR by "
        f"{min(acr):+.3f} to {max(acr):+.3f}. ISS minus IAS at the same cost is {min(gain):+.3f} to {max(gain):+.3f} "
        f"of ACR (paper: {min(told):+.3f} to {max(told):+.3f})."
    )


def _main_row(name: str, outcome: Outcome, c: Comparison, row: Printed | None) -> str:
    minutes = c.log_minutes * outcome.samples / LOG_SAMPLES
    if row is None:
        paper = [""] * 6
    else:
        mad = "-" if row.mad is None else f"{row.mad:.2f}"
        difference = f"{outcome.samples / row.samples - 1:+.1%}"
        paper = [
            f"{row.samples:,}",
            difference,
            str(row.minutes),
            mad,
            f"{row.acr:.3f}",
            f"{outcome.acr - row.acr:+.3f}",
        ]
    cells = [f"{outcome.samples:,.0f}", paper[0], paper[1], f"{minutes:.0f}", paper[2], f"{outcome.mad:.2f}", paper[3]]
    return f"| {name} | " + " | ".join([*cells, f"{outcome.acr:.3f}", paper[4], paper[5]]) + " |"

"""Make the paper's CIFAR-10 table for one classifier. All rows share their draws, so they cost no more than one row.

    python benchmarks/cifar10.py --weights runs/consistency-0.50/weights.safetensors --data cifar10:DIR --sigma 0.5 \
        --out runs/cifar10-0.50 --results docs/results/cifar10-consistency-0.50

This script certifies test ids 0, 20, ..., 9980 with fixed sampling at 100,000 (the references) and with all other rows
on the same draws (`Combined`). It writes one log per row, prints the table, and shows how much fixed sampling costs
that has the ACR of a row. The times in the table are shares of one run. To time a row, run it alone.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from smoothcert import Combined, Fixed, Gaussian, InputSpecific, certify
from smoothcert.report.chart import Line
from smoothcert.report.charts import trade_off
from smoothcert.report.figures import save
from smoothcert.runs.formats import write_results
from smoothcert.runs.results import Results
from smoothcert.runs.table import table

CEILING, PILOT = 100_000, 1_000
# The references for MAD: one for plans with a fresh pilot, one for plans that count the pilot again.
REFERENCES = {
    "fixed-10": Fixed(CEILING, pilot=PILOT),
    "fixed-10-reuse": Fixed(CEILING, pilot=PILOT, pilot_use="reuse"),
}
ROWS = {
    f"{kind[0]}d-10-{decline:.2f}{'' if use == 'fresh' else '-reuse'}": InputSpecific(
        CEILING, pilot=PILOT, decline=decline, kind=kind, pilot_use=use
    )
    for use in ("fresh", "reuse")
    for kind, decline in (("absolute", 0.05), ("absolute", 0.10), ("relative", 0.01), ("relative", 0.05))
}
# Fixed sampling at every multiple of 1,000 costs nothing on the same draws. We keep those that cost as much as a row.
FIXED = {n: Fixed(n, pilot=PILOT) for n in range(5_000, 81_000, 1_000)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--sigma", type=float, required=True)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--results", required=True, type=Path)
    parser.add_argument("--compile", default="auto")
    parser.add_argument("--batch", default="auto")
    parser.add_argument("--skip", type=int, default=20)
    parser.add_argument("--limit", type=int)
    args = parser.parse_args()

    plans = REFERENCES | ROWS | {f"fixed-{n / 10_000:g}": p for n, p in FIXED.items()}
    run = certify(
        None,
        args.data,
        weights=args.weights,
        noise=Gaussian(args.sigma),
        plan=Combined(tuple(plans.values())),
        skip=args.skip,
        limit=args.limit,
        out=args.out,
        compile=args.compile,
        batch=args.batch,
    )
    named = {name: replace(alone, name=name) for name, alone in zip(plans, run.split(), strict=True)}
    kept: list[Results] = [named[name] for name in REFERENCES]
    args.results.mkdir(parents=True, exist_ok=True)
    for name in ROWS:
        kept += [named[name], named[_same_cost(named[name])]]
    for name, results in named.items():
        if any(results is k for k in kept):
            write_results(results, args.results / f"{name}.tsv", "cohen")
    print(table(list(dict.fromkeys(kept))).render("markdown"))
    _compare_costs(named, args.results / "trade-off")


def _compare_costs(named: dict[str, Results], figure: Path) -> None:
    """Print and draw how much fixed sampling costs that has the ACR of a row."""
    fixed = [named[f"fixed-{n / 10_000:g}"] for n in (*FIXED, CEILING)]
    costs, acrs = zip(*((results.average_samples or 0, results.acr) for results in fixed), strict=True)
    rows = [named[name] for name in ROWS if not name.endswith("-reuse")]
    for row in rows:
        needed, average = np.interp(row.acr, np.maximum.accumulate(acrs), costs), row.average_samples or 0
        print(
            f"{row.name}: {average:,.0f} samples; fixed sampling has its ACR at {needed:,.0f}, x{needed / average:.2f}"
        )
    chart = trade_off(rows, bands=False)
    line = Line("", np.array(costs), np.array(acrs), label="fixed")
    save(replace(chart, layers=(line, *chart.layers)), figure, ["svg"])


def _same_cost(results: Results) -> str:
    """The fixed row with the closest cost. Both pay for a pilot, unless its votes count."""
    average = results.average_samples or 0
    n = min(FIXED, key=lambda n: abs(n + PILOT - average))
    return f"fixed-{n / 10_000:g}"


if __name__ == "__main__":
    main()

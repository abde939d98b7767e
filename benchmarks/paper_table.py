r"""All rows of the paper's CIFAR-10 table for one sigma: ceilings of 100,000 and 500,000, with fixed sampling beside.

    python benchmarks/paper_table.py --weights runs/consistency-0.50/weights.safetensors --data cifar10:DIR \
        --sigma 0.5 --out runs/table-0.50 --results docs/results/paper-table-0.50

The rows are absolute declines of .05 and .10 under both ceilings, on shared draws (`Combined`), each with the fixed
sampling that costs about as much. Seconds are samples divided by the rate of this run. MAD of the rows under a ceiling
of 100,000 is measured against fixed sampling at 100,000, which costs nothing more here. Under 500,000 it needs fixed
sampling at 500,000, which costs three times as much as all rows together: `--reference` asks for it.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert import Combined, Fixed, Gaussian, InputSpecific, Progress, certify
from smoothcert.runs.formats import write_results
from smoothcert.runs.results import Results

PILOT = 1_000
ROWS = {
    f"AD-{ceiling // 10_000}-{decline:.2f}": InputSpecific(ceiling, pilot=PILOT, decline=decline)
    for ceiling in (100_000, 500_000)
    for decline in (0.05, 0.10)
}
FIXED = {n: Fixed(n, pilot=PILOT) for n in range(4_000, 100_001, 2_000)}
RADII = np.arange(0, 4.01, 0.25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--sigma", type=float, required=True)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--results", required=True, type=Path)
    parser.add_argument("--skip", type=int, default=20)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--reference", action="store_true", help="also fixed sampling at 500,000, for MAD")
    args = parser.parse_args()
    plans = ROWS | {f"fixed-{n}": plan for n, plan in FIXED.items()}
    if args.reference:
        plans["fixed-500000"] = Fixed(500_000, pilot=PILOT)
    run = certify(
        None,
        args.data,
        weights=args.weights,
        noise=Gaussian(args.sigma),
        plan=Combined(tuple(plans.values())),
        skip=args.skip,
        limit=args.limit,
        out=args.out,
        progress=Progress(),
    )
    named = {name: replace(alone, name=name) for name, alone in zip(plans, run.split(), strict=True)}
    rate = float(run.samples.sum()) / run.total_seconds
    references = {ceiling: named.get(f"fixed-{ceiling}0000") for ceiling in ("10", "50")}
    args.results.mkdir(parents=True, exist_ok=True)
    found = []
    for name in ROWS:
        for row in (named[name], _same_cost(named, named[name])):
            write_results(row, args.results / f"{row.name}.tsv", "cohen")
            found.append(_row(row, rate, references[name.split("-")[1]]))
    summary = {"sigma": args.sigma, "inputs": len(run), "rate": rate, "seconds": run.total_seconds, "rows": found}
    (args.results / "summary.json").write_text(json.dumps(summary, indent=1))
    for line in found:
        shares = " | ".join(f"{share:.1f}" for share in line["accuracy"].values())
        mad = "" if line["mad"] is None else f"{line['mad']:.3f}"
        print(f"| {line['name']} | {line['samples']:,.0f} | {mad} | {line['acr']:.3f} | {shares} |")


def _same_cost(named: dict[str, Results], row: Results) -> Results:
    return named[f"fixed-{min(FIXED, key=lambda n: abs(n + PILOT - (row.average_samples or 0)))}"]


def _row(row: Results, rate: float, reference: Results | None) -> dict[str, Any]:
    average = row.average_samples or 0.0
    return {
        "name": row.name,
        "samples": average,
        "seconds": average * len(row) / rate,
        "mad": None if reference is None else row.decline(reference),
        "acr": row.acr,
        "accuracy": {
            f"{r:g}": round(100 * float(a), 1) for r, a in zip(RADII, row.certified_accuracy(RADII), strict=True)
        },
    }


if __name__ == "__main__":
    main()

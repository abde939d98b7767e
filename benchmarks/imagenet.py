r"""Fixed sampling, input-specific sampling and chosen radii on the same draws: a pretrained model behind a denoiser.

    python benchmarks/imagenet.py --model examples/keras_resnet50.py:resnet50 --weights resnet50.safetensors \
        --denoiser runs/stable/weights.safetensors --data DIR --sigma 0.25 --skip 5 --out runs/shared-0.25 \
        --results docs/results/imagenet-0.25

All plans have the same ceiling. They share one run (`Combined`), so each one sees the votes that it would see alone,
and the run costs as much as fixed sampling. It writes one log per plan and prints the table.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from smoothcert import AtRadii, Combined, Fixed, Gaussian, InputSpecific, Plan, Progress, certify, table
from smoothcert.runs.formats import write_results

RADII = {0.25: (0.0, 0.25, 0.5, 0.75), 0.5: (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--denoiser", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--sigma", type=float, required=True, choices=sorted(RADII))
    parser.add_argument("--samples", type=int, default=10_000, help="the ceiling of all plans")
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--skip", type=int)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--results", required=True, type=Path)
    args = parser.parse_args()

    radii = RADII[args.sigma]
    plans: dict[str, Plan] = {
        "fixed": Fixed(args.samples),
        "input-specific": InputSpecific(args.samples, decline=0.05),
        "radii": AtRadii(radii, args.samples, known_labels=True),
    }
    run = certify(
        args.model,
        args.data,
        weights=args.weights,
        denoiser=args.denoiser,
        noise=Gaussian(args.sigma),
        plan=Combined(tuple(plans.values())),
        dtype=args.dtype,
        skip=args.skip,
        limit=args.limit,
        out=args.out,
        progress=Progress(),
    )
    rows = [replace(row, name=name) for name, row in zip(plans, run.split(), strict=True)]
    args.results.mkdir(parents=True, exist_ok=True)
    for row in rows:
        write_results(row, args.results / f"{row.name}.csv", "csv")
    print(table(rows, radii=list(radii)).render("markdown"))


if __name__ == "__main__":
    main()

"""Train and certify classifiers for other norms on CIFAR-10, and compare them with published results.

    python benchmarks/norms.py --data cifar10:DIR --out runs/norms --sigmas 1,3 --epochs 60
    python benchmarks/norms.py --data cifar10:DIR --out runs/norms --only ablation

Rows: l1 with uniform and splitting noise (scale sqrt(3) * sigma, as published), exact splitting, and l0 with 75 kept
pixels. l1 rows with random noise decide the radii of the table (`AtRadii`). Everything resumes: run it again after an
interruption. At the end it prints one table per norm.

Published: Yang et al. (2020), table of l1 on CIFAR-10 with uniform noise; Levine & Feizi (2021), the same for splitting
noise; Levine & Feizi (2020), median certified l0 radius 8 with 75 kept pixels. The two l1 papers take the best noise
for each radius, so compare with the best row at each radius.
"""

from __future__ import annotations

import argparse
from math import sqrt
from pathlib import Path

import numpy as np

from smoothcert import Ablation, AtRadii, Exact, Fixed, Noise, Plan, Splitting, Uniform, certify, table
from smoothcert.data import load_dataset
from smoothcert.training import Recipe, method_named, train

L1_RADII, L0_RADII = [0.0, 0.5, 1.0, 2.0, 4.0], [0.0, 2.0, 4.0, 6.0, 8.0]


def rows(sigmas: list[float]) -> dict[str, tuple[Noise, Plan]]:
    """The noise and the plan of each row."""
    found: dict[str, tuple[Noise, Plan]] = {}
    for sigma in sigmas:
        scale = sqrt(3) * sigma
        plan = AtRadii(tuple(radius for radius in L1_RADII if radius < scale), 100_000, known_labels=True)
        found[f"uniform-{sigma:g}"] = Uniform(scale), plan
        found[f"splitting-{sigma:g}"] = Splitting(scale), plan
        on_grid = round(2 * scale * 255) / 510
        found[f"exact-splitting-{sigma:g}"] = Splitting(on_grid, 255), Exact()
    return found | {"ablation-75": (Ablation(75, 1024), Fixed(10_000))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--arch", default="cifar-resnet18")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--lr", type=float, default=0.4)
    parser.add_argument("--sigmas", default="1,3", help="standard deviations of the l1 noises")
    parser.add_argument("--only", default="", help="rows whose names contain this")
    parser.add_argument("--skip", type=int, default=20)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()

    training, validation = load_dataset(args.data, train=True), load_dataset(args.data)
    runs = []
    for name, (noise, plan) in rows([float(part) for part in args.sigmas.split(",")]).items():
        if args.only not in name:
            continue
        print(f"{name}: training", flush=True)
        recipe = Recipe(
            args.arch,
            method_named("gaussian", noise=noise),
            epochs=args.epochs,
            batch=args.batch,
            learning_rate=args.lr,
            schedule="onecycle",
            weight_decay=5e-4,
        )
        trained = train(recipe, training, validation, out=args.out / f"{name}-weights", device=args.device)
        print(f"{name}: {trained.accuracy:.1%} of noisy test inputs right", flush=True)
        run = certify(
            None,
            args.data,
            weights=trained.weights,
            noise=noise,
            plan=plan,
            skip=args.skip,
            limit=args.limit,
            device=args.device,
            out=args.out / name,
        )
        runs.append(run)
    for norm, radii in (("l1", L1_RADII), ("l0", L0_RADII)):
        if chosen := [run for run in runs if run.noise is not None and run.noise.norm.startswith(norm)]:
            print(table(chosen, radii=radii).render("markdown"))
            for run in chosen:
                median = float(np.median(np.where(run.correct, run.radius, 0)))
                print(f"{run.name}: median certified {norm} radius {median:g} (0 where it is not correct)")


if __name__ == "__main__":
    main()

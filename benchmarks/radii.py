"""Compare fixed sampling, the runner-up bound and `AtRadii` at chosen radii on CIFAR-10, for one classifier.

    python benchmarks/radii.py --weights runs/consistency-0.50/weights.safetensors --data cifar10:DIR --sigma 0.5 \
        --out runs/radii-consistency-0.50 --results docs/results/radii-consistency-0.50

Certifies test ids 0, 20, ..., 9980. Fixed sampling at 100,000 and input-specific sampling, each with both bounds, share
one run (`Combined`), so that all of them see the same noise. `--no-iss` leaves out input-specific sampling; both bounds
of fixed sampling then come from the votes of one plain run, which is faster. `AtRadii` runs alone, with and without
known labels, so that its time is measured. `--whole` also certifies all 10,000 test images with `AtRadii` and known
labels.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from smoothcert import (
    AtRadii,
    Certificate,
    Combined,
    Fixed,
    Gaussian,
    InputSpecific,
    Plan,
    Results,
    Run,
    certify,
    table,
    write_results,
)

CEILING, PILOT = 100_000, 1_000
RADII = {0.25: [0, 0.25, 0.5, 0.75], 0.5: [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5], 1.0: [0, 0.5, 1, 1.5, 2, 2.5, 3]}
SHARED: dict[str, Plan] = {
    "fixed": Fixed(CEILING, pilot=PILOT),
    "fixed-runner-up": Fixed(CEILING, pilot=PILOT, bound="runner-up"),
    "iss": InputSpecific(CEILING, pilot=PILOT),
    "iss-runner-up": InputSpecific(CEILING, pilot=PILOT, bound="runner-up"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--sigma", type=float, required=True, choices=sorted(RADII))
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--results", required=True, type=Path)
    parser.add_argument("--compile", default="auto")
    parser.add_argument("--batch", default="auto")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--no-iss", action="store_true", help="leave out input-specific sampling")
    parser.add_argument("--whole", action="store_true", help="also certify the whole test set")
    args = parser.parse_args()

    def run(name: str, plan: Plan, **chosen: int | None) -> Run:
        start = time.perf_counter()
        done = certify(
            None,
            args.data,
            weights=args.weights,
            noise=Gaussian(args.sigma),
            plan=plan,
            out=args.out / name,
            compile=args.compile,
            batch=args.batch,
            **chosen,
        )
        print(
            f"{name}: {time.perf_counter() - start:.1f} s from call to result, {done.total_seconds:.1f} s of sampling"
        )
        return done

    radii = RADII[args.sigma]
    rows: list[Results] = [
        run("radii-known-labels", AtRadii(radii, CEILING, known_labels=True), skip=20, limit=args.limit),
        run("radii", AtRadii(radii, CEILING), skip=20, limit=args.limit),
    ]
    if args.whole:
        whole = run("radii-whole-test-set", AtRadii(radii, CEILING, known_labels=True), limit=args.limit)
        low, high = whole.certified_accuracy_band(radii)
        for radius, share, below, above in zip(radii, whole.certified_accuracy(radii), low, high, strict=True):
            print(f"whole test set, radius {radius:g}: {share:.2%}, 95% band {below:.2%} to {above:.2%}")
        rows.append(whole)
    if args.no_iss:
        fixed = run("fixed", SHARED["fixed"], skip=20, limit=args.limit)
        rows = [fixed, other_plan(fixed, "fixed-runner-up", SHARED["fixed-runner-up"]), *rows]
    else:
        shared = run("shared", Combined(tuple(SHARED.values())), skip=20, limit=args.limit)
        rows = [replace(part, name=name) for name, part in zip(SHARED, shared.split(), strict=True)] + rows
    for results in rows:
        write_results(results, args.results / f"{results.name}.tsv", "cohen")
    print(table(rows, radii=radii).render("markdown"))


def other_plan(run: Run, name: str, plan: Plan) -> Results:
    """The results of another plan with the same requests, from the votes of a run."""
    certificates = [
        Certificate.from_votes(c.looks, plan=plan, noise=c.noise, id=c.id, label=c.label, seconds=c.seconds)
        for c in run.certificates()
    ]
    return Results.from_certificates(name, certificates, manifest=replace(run.manifest, plan=plan))


if __name__ == "__main__":
    main()

"""`smoothcert coverage`: what a plan really guarantees."""

from __future__ import annotations

from dataclasses import asdict

from smoothcert.cli.options import (
    Alpha,
    Decline,
    Grid,
    Json,
    Kind,
    Method,
    Pilot,
    PilotUse,
    Samples,
    Sigma,
    build_plan,
    print_json,
    print_table,
)


def command(
    sigma: Sigma,
    samples: Samples = 100_000,
    method: Method = "input-specific",
    decline: Decline = 0.05,
    kind: Kind = "absolute",
    pilot: Pilot = None,
    pilot_use: PilotUse = "fresh",
    alpha: Alpha = 0.001,
    grid: Grid = None,
    json: Json = False,
) -> None:
    """Compute the exact probability that a certificate of this plan is wrong."""
    from smoothcert.coverage import exact_coverage
    from smoothcert.noise import Gaussian

    plan = build_plan(
        method,
        samples=samples,
        decline=decline,
        kind=kind,
        pilot=pilot,
        pilot_use=pilot_use,
        alpha=alpha,
        grid=grid,
    )
    found = exact_coverage(plan, Gaussian(sigma))
    if json:
        print_json(asdict(found) | {"valid": found.valid})
        return
    if found.valid:
        verdict = f"The plan keeps its alpha of {alpha:g}."
    elif max(found.worst_failure, found.tie_failure) > alpha:
        verdict = f"The plan does NOT keep its alpha of {alpha:g}."
    else:
        verdict = (
            f"Nothing proves that the plan keeps its alpha of {alpha:g}: its pilot chooses the class and counts, too."
        )
    print_table(
        f"Exact failure probability\n{plan}",
        ["case", "failure", "of alpha"],
        [
            [f"class fixed in advance, worst p = {found.worst_p:.4f}", *_shown(found.worst_failure, alpha)],
            ["two tied classes, chosen on the pilot", *_shown(found.tie_failure, alpha)],
        ],
        caption=verdict,
    )


def _shown(failure: float, alpha: float) -> list[str]:
    return [f"{failure:.6f}", f"{failure / alpha:.3f}"]

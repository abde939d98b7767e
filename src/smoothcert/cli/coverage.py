"""`smoothcert coverage`: what a plan really guarantees."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from smoothcert.cli.groups import NoiseOptions, PlanOptions
from smoothcert.cli.options import Json, print_json, print_table

if TYPE_CHECKING:
    from smoothcert.plans import Plan
    from smoothcert.plans.coverage import Coverage


def command(*, noise: NoiseOptions, plan: PlanOptions, json: Json = False) -> None:
    """Compute the probability that a certificate of this plan is wrong, exactly where its states can be enumerated.

    The exit code is 1 if the probability may exceed alpha.
    """
    from smoothcert.plans.coverage import exact_coverage

    smoothing = noise.build()
    chosen = plan.build().for_noise(smoothing)
    found = exact_coverage(chosen, smoothing)
    if json:
        print_json(plain(found))
    else:
        _print(found, chosen)
    if not found.valid:
        raise typer.Exit(1)


def _print(found: Coverage, plan: Plan) -> None:
    alpha = found.alpha
    bound = "" if found.exact else f", at most ({found.theorem})"
    title = "Exact failure probability" if found.exact else "Failure probability"
    if found.simulated:
        bound, title = "", "Simulated failure probability"
    where = f"worst p = {found.worst_p:.4f}" if found.exact or found.simulated else "any p"
    cases = [[f"class fixed in advance, {where}{bound}", *_shown(found.worst_failure, alpha)]]
    if plan.pilot and not plan.known_labels:
        cases.append([f"two tied classes, chosen on the pilot{bound}", *_shown(found.tie_failure, alpha)])
    print_table(
        f"{title}\n{plan}; pilot {plan.pilot:,}, alpha {alpha:g}",
        ["case", "failure", "of alpha"],
        cases,
        caption=" ".join(filter(None, [found.sentence, _simulation(found), _drawing(found.drawing_error)])),
    )


def plain(found: Coverage) -> dict[str, Any]:
    simulated = {} if found.simulated is None else {"simulated": found.simulated._asdict()}
    figures = {name: value for name, value in asdict(found).items() if name != "simulated"}
    return figures | simulated | {"valid": found.valid}


def _simulation(found: Coverage) -> str:
    """A sentence about how the figures were computed, if the plan has too many states."""
    if (s := found.simulated) is None:
        return ""
    return (
        f"The plan has too many states for an exact figure: in {s.repetitions:,} simulated inputs, its failure lies "
        f"between {s.at_least:.6f} and {s.at_most:.6f} with confidence {s.confidence:g}."
    )


def _shown(failure: float, alpha: float) -> list[str]:
    return [f"{failure:.6f}", f"{failure / alpha:.3f}" if alpha else "-"]


def _drawing(error: float) -> str:
    """A sentence about the error of drawing, where it can change a printed digit."""
    return f"Bounds are lowered by {error:.2g} for the error of drawing the noise." if error >= 1e-9 else ""

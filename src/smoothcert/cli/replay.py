"""`smoothcert replay`: simulate a plan on a published log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.groups import NoiseOptions, PlanOptions
from smoothcert.cli.options import Json, print_json, print_table
from smoothcert.errors import phrase

if TYPE_CHECKING:
    from smoothcert.tasks.replay import Outcome


def command(
    log: Path,
    *,
    noise: NoiseOptions,
    plan: PlanOptions,
    log_samples: int | None = None,
    log_alpha: float | None = None,
    abstained_p: float = 0.49,
    repetitions: int = 20,
    seed: int = 0,
    json: Json = False,
) -> None:
    """Simulate a plan on a published log, and compare it with fixed sampling at the same average cost.

    Args:
        log: A published log (idx, label, predict, radius, correct, time), a run or an export.
        log_samples: Samples per input that a published log was made with. Default: 100,000.
        log_alpha: The alpha that a published log was made with. Default: --alpha.
        abstained_p: The p to assume for abstentions in the log.
        repetitions: How often to simulate.
        seed: The seed of the simulated votes.
    """
    from smoothcert.tasks.replay import read_population, simulate

    chosen = plan.build()
    population, smoothing, remark = read_population(
        log, chosen, noise=noise.given(), log_samples=log_samples, log_alpha=log_alpha, abstained_p=abstained_p
    )
    result = simulate(population, chosen, noise=smoothing, radii=plan.shown_radii(), repetitions=repetitions, seed=seed)
    labelled = bool((population.label >= 0).any())
    if json:
        print_json(
            {"inputs": result.inputs, "repetitions": repetitions}
            | {"average_samples": result.plan.samples}
            | _plain(result.plan, labelled)
            | {"fixed": {"samples": result.fixed.samples} | _plain(result.fixed, labelled)}
            | {"ceiling": {"samples": result.ceiling.samples} | _plain(result.ceiling, labelled)}
        )
        return
    outcomes = [result.ceiling, result.plan, result.fixed]
    figures = ["average samples", "saved", "ACR", "MAD", "not certified" if chosen.known_labels else "abstained"]
    figures += [f"certified at {r:g}" for r in result.plan.certified_accuracy]
    shown = [_shown(outcome, result.ceiling.samples, labelled) for outcome in outcomes]
    print_table(
        f"{log.name}: {result.inputs} inputs, {repetitions} repetitions\n{chosen}",
        ["", "ceiling", chosen.name, "fixed, same cost"],
        [list(row) for row in zip(figures, *shown, strict=True)],
        caption=None if remark is None else phrase(remark, command=True),
    )


def _plain(outcome: Outcome, labelled: bool) -> dict[str, Any]:
    return {
        "acr": outcome.acr if labelled else None,
        "mad": outcome.mad,
        "abstained": outcome.abstained,
        "certified_accuracy": {
            f"{r:g}": share if labelled else None for r, share in outcome.certified_accuracy.items()
        },
    }


def _shown(outcome: Outcome, ceiling: float, labelled: bool) -> list[str]:
    return [
        f"{outcome.samples:,.0f}",
        f"{1 - outcome.samples / ceiling:.1%}",
        f"{outcome.acr:.3f}" if labelled else "-",
        "-" if outcome.mad is None else f"{outcome.mad:.3f}",
        f"{outcome.abstained:.1%}",
        *(f"{share:.1%}" if labelled else "-" for share in outcome.certified_accuracy.values()),
    ]

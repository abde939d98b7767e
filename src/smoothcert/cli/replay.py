"""`smoothcert replay`: what a plan would have done on a published log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    numbers,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from smoothcert.replay import Outcome
    from smoothcert.runs.results import Results


def command(
    log: Annotated[
        Path, typer.Argument(help="A published log (idx, label, predict, radius, correct, time), a run or an export.")
    ],
    sigma: Sigma,
    samples: Samples = 100_000,
    method: Method = "input-specific",
    decline: Decline = 0.05,
    kind: Kind = "absolute",
    pilot: Pilot = None,
    pilot_use: PilotUse = "fresh",
    alpha: Alpha = 0.001,
    grid: Grid = None,
    log_samples: Annotated[
        int | None, typer.Option(help="Samples per input that a published log was made with. Default: 100,000.")
    ] = None,
    abstained_p: Annotated[float, typer.Option(help="Assumed p of inputs that the log abstained on.")] = 0.49,
    radii: Annotated[str | None, typer.Option(help="Radii for certified accuracy, separated by commas.")] = None,
    repetitions: Annotated[int, typer.Option(help="How often to simulate.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the simulated votes.")] = 0,
    json: Json = False,
) -> None:
    """Simulate a plan on a published log, beside fixed sampling at the same average cost."""
    from smoothcert.errors import InvalidInput
    from smoothcert.noise import Gaussian
    from smoothcert.replay import measured_probabilities, probabilities, simulate
    from smoothcert.runs.formats import read_results

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
    noise, results = Gaussian(sigma), read_results(log)
    if not len(results):
        raise InvalidInput(f"{log} holds no certificates yet; run certify again to go on")
    if results.noise is None:  # a published log, or an export of one
        samples_then = 100_000 if log_samples is None else log_samples
        caveat: str | None = f"Radii in the log are taken to be of {samples_then:,} samples per input (--log-samples)."
        p = probabilities(results.to_log(), noise=noise, samples=samples_then, alpha=alpha, abstained_p=abstained_p)
    elif log_samples is not None:
        raise InvalidInput(f"{log} tells its samples itself: leave out --log-samples")
    else:
        p = measured_probabilities(results, noise=noise, abstained_p=abstained_p)
        caveat = _caveat(results, plan.samples)
    result = simulate(
        p,
        results.correct,
        plan,
        noise=noise,
        radii=None if radii is None else numbers("--radii", radii),
        repetitions=repetitions,
        seed=seed,
    )
    if json:
        print_json(
            {"inputs": result.inputs, "repetitions": repetitions}
            | {"average_samples": result.plan.samples}
            | _plain(result.plan, results.labelled)
            | {"fixed": {"samples": result.fixed.samples} | _plain(result.fixed, results.labelled)}
            | {"ceiling": {"samples": result.ceiling.samples} | _plain(result.ceiling, results.labelled)}
        )
        return
    outcomes = [result.ceiling, result.plan, result.fixed]
    figures = ["average samples", "saved", "ACR", "MAD", "abstained"]
    figures += [f"certified at {r:g}" for r in result.plan.certified_accuracy]
    shown = [_shown(outcome, result.ceiling.samples, results.labelled) for outcome in outcomes]
    print_table(
        f"{log.name}: {result.inputs} inputs, {repetitions} repetitions\n{plan}",
        ["", "ceiling", plan.name, "fixed, same cost"],
        [list(row) for row in zip(figures, *shown, strict=True)],
        caption=caveat,
    )


def _caveat(results: Results, ceiling: int) -> str | None:
    unanimous = (results.counted > 0) & (results.count == results.counted) & (results.counted < ceiling)
    if not unanimous.any():
        return None
    most = int(results.counted[unanimous].max())
    return (
        f"{int(unanimous.sum())} inputs were unanimous in at most {most:,} samples. Their p is taken as 1, "
        "so large radii come out too often."
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
        f"{outcome.mad:.3f}",
        f"{outcome.abstained:.1%}",
        *(f"{share:.1%}" if labelled else "-" for share in outcome.certified_accuracy.values()),
    ]

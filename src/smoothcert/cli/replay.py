"""`smoothcert replay`: what a plan would have done on a published log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothcert.cli.groups import NoiseOptions, PlanOptions, expand
from smoothcert.cli.options import Json, print_json, print_table

if TYPE_CHECKING:
    from smoothcert.replay import Outcome
    from smoothcert.runs.results import Results


@expand
def command(
    log: Annotated[
        Path, typer.Argument(help="A published log (idx, label, predict, radius, correct, time), a run or an export.")
    ],
    noise: NoiseOptions,
    plan: PlanOptions,
    log_samples: Annotated[
        int | None, typer.Option(help="Samples per input that a published log was made with. Default: 100,000.")
    ] = None,
    abstained_p: Annotated[float, typer.Option(help="Assumed p of inputs that the log abstained on.")] = 0.49,
    repetitions: Annotated[int, typer.Option(help="How often to simulate.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the simulated votes.")] = 0,
    json: Json = False,
) -> None:
    """Simulate a plan on a published log, beside fixed sampling at the same average cost."""
    from smoothcert.errors import InvalidInput
    from smoothcert.replay import from_shares, measured_probabilities, probabilities, simulate
    from smoothcert.runs.formats import read_results

    chosen, results = plan.build(), read_results(log)
    smoothing = noise.given() or results.noise
    if smoothing is None:
        raise InvalidInput(f"{log} does not tell its noise: give --sigma")
    if not len(results):
        raise InvalidInput(f"{log} holds no certificates yet; run certify again to go on")
    if results.noise is None:  # a published log, or an export of one
        samples_then = 100_000 if log_samples is None else log_samples
        caveat: str | None = f"Radii in the log are taken to be of {samples_then:,} samples per input (--log-samples)."
        p = probabilities(results.to_log(), noise=smoothing, samples=samples_then, alpha=chosen.alpha, abstained_p=abstained_p)
    elif log_samples is not None:
        raise InvalidInput(f"{log} tells its samples itself: leave out --log-samples")
    else:
        p = measured_probabilities(results, noise=smoothing, abstained_p=abstained_p)
        caveat = _caveat(results, chosen.samples)
    result = simulate(
        from_shares(p, results.correct),
        chosen,
        noise=smoothing,
        radii=plan.shown_radii(),
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
        f"{log.name}: {result.inputs} inputs, {repetitions} repetitions\n{chosen}",
        ["", "ceiling", chosen.name, "fixed, same cost"],
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
        "-" if outcome.mad is None else f"{outcome.mad:.3f}",
        f"{outcome.abstained:.1%}",
        *(f"{share:.1%}" if labelled else "-" for share in outcome.certified_accuracy.values()),
    ]

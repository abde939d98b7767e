"""Commands about the cost and the guarantee of a plan: `map`, `coverage` and `replay`.

They need no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import smoothcert as sc
from smoothcert._settings import PlanSettings
from smoothcert._text_table import TextTable
from smoothcert.cli.command import Output
from smoothcert.cli.options import NoiseOptions
from smoothcert.errors import number_of, phrase

if TYPE_CHECKING:
    from smoothcert.plans.coverage import Coverage
    from smoothcert.tasks.replay import Replay

_DEFAULT_AT = (0.5, 0.55, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 0.9999, 1)
_SIMULATED = (
    "Averages over simulated inputs: to go through all states of the plan would take too long."
)
_ROUNDED_TWICE = (
    "Radii are rounded down when they are computed, and again here: 0.0999 is just below 0.1."
)
_SHOWN_ERROR = 1e-9
"""A smaller error of drawing the noise changes no digit that we print."""


def map_(*, noise: NoiseOptions, plan: PlanSettings, at: Sequence[float] | None = None) -> Output:
    """Show how many samples an input needs if its class has probability p, and what they prove.

    Args:
        at: Probabilities of the class. Default: eleven from 0.5 to 1.
    """
    from smoothcert.plans.expected import expected
    from smoothcert.plans.from_settings import plan_from

    smoothing = noise.build()
    chosen = plan_from(plan).for_noise(smoothing)
    shown = at or _DEFAULT_AT
    result = expected(chosen, smoothing, shown)
    plain = []
    rows = []
    for place, p in enumerate(shown):
        samples = result.samples[place].item()
        share = samples / chosen.samples
        proved = {title: column[place].item() for title, column in result.proved.items()}
        plain.append({"p": p, "samples": samples, "share": share} | _plain_proved(chosen, proved))
        rows.append([f"{p:g}", f"{samples:,.0f}", f"{share:.1%}", *_shown_proved(proved)])
    remarks = []
    if smoothing.outcomes:
        remarks.append(_ROUNDED_TWICE)
    elif result.simulated:
        remarks.append(_SIMULATED)
    pilot = result.pilot_not_counted
    if pilot:
        remarks.append(f"Without the pilot of {pilot:,} samples.")
    title = "Expected samples" if result.average else "Samples"
    table = TextTable(
        f"{title}: {chosen}\n{smoothing}, alpha {chosen.alpha:g}",
        ["p", "samples", "share", *result.proved],
        rows,
        caption=" ".join(remarks) or None,
    )
    return Output(
        {"map": plain, "simulated": result.simulated, "pilot_not_counted": pilot}, [table]
    )


def _plain_proved(plan: sc.Plan, proved: dict[str, float]) -> dict[str, Any]:
    # The ideal radius of p = 1 is infinite.
    finite = {title: value if isfinite(value) else None for title, value in proved.items()}
    if plan.radii is None:
        return finite
    return {"proved": dict(zip(map("{:g}".format, plan.radii), finite.values(), strict=True))}


def _shown_proved(proved: dict[str, float]) -> list[str]:
    from smoothcert.statistics.metrics import round_down

    if "radius" in proved:
        return [round_down(value, digits=4) for value in proved.values()]
    return [f"{value:.4f}" for value in proved.values()]


def coverage(*, noise: NoiseOptions, plan: PlanSettings) -> Output:
    """Compute the probability that a certificate of this plan is wrong.

    It is exact where the states of the plan can be enumerated. The exit code is 1 if the
    probability may exceed alpha.
    """
    from smoothcert.plans.coverage import exact_coverage
    from smoothcert.plans.from_settings import plan_from

    smoothing = noise.build()
    chosen = plan_from(plan).for_noise(smoothing)
    result = exact_coverage(chosen, smoothing)
    return Output(result.plain(), [_failures(result, chosen)], code=0 if result.valid else 1)


def _failures(coverage: Coverage, plan: sc.Plan) -> TextTable:
    alpha = coverage.alpha
    simulated = coverage.simulated
    title = "Failure probability"
    bound = f", at most ({coverage.theorem})"
    where = "any p"
    sentences = [coverage.sentence]
    if coverage.exact or simulated:
        title = "Exact failure probability"
        bound = ""
        where = f"worst p = {coverage.worst_p:.4f}"
    if simulated:
        title = "Simulated failure probability"
        sentences.append(
            "The plan has too many states for an exact figure: in "
            f"{simulated.repetitions:,} simulated inputs, its failure lies between "
            f"{simulated.at_least:.6f} and {simulated.at_most:.6f} with confidence "
            f"{simulated.confidence:g}."
        )
    if coverage.drawing_error >= _SHOWN_ERROR:
        error = f"{coverage.drawing_error:.2g}"
        sentences.append(f"Bounds are lowered by {error} for the error of drawing the noise.")
    cases = {f"class fixed in advance, {where}{bound}": coverage.worst_failure}
    if plan.pilot and not plan.known_labels:
        cases[f"two tied classes, chosen on the pilot{bound}"] = coverage.tie_failure
    return TextTable(
        f"{title}\n{plan}; pilot {plan.pilot:,}, alpha {alpha:g}",
        ["case", "failure", "of alpha"],
        [[case, f"{p:.6f}", f"{p / alpha:.3f}" if alpha else "-"] for case, p in cases.items()],
        caption=" ".join(sentences),
    )


def replay(
    log: Path,
    *,
    noise: NoiseOptions,
    plan: PlanSettings,
    log_samples: int | None = None,
    log_alpha: float | None = None,
    abstained_p: float = 0.49,
    repetitions: int = 20,
    seed: int = 0,
) -> Output:
    """Simulate a plan on a published log, and compare it with fixed sampling of the same cost.

    Args:
        log: A published log (idx, label, predict, radius, correct, time), a run or an export.
        log_samples: Samples per input that a published log was made with. Default: 100,000.
        log_alpha: The alpha that a published log was made with. Default: --alpha.
        abstained_p: The p to assume for abstentions in the log.
        repetitions: How often to simulate.
        seed: The seed of the simulated votes.
    """
    from smoothcert.plans.from_settings import plan_from, shown_radii
    from smoothcert.tasks.replay import read_population, simulate

    chosen = plan_from(plan)
    population, smoothing, remark = read_population(
        log,
        chosen,
        noise=noise.described(),
        log_samples=log_samples,
        log_alpha=log_alpha,
        abstained_p=abstained_p,
    )
    result = simulate(
        population,
        chosen,
        noise=smoothing,
        radii=shown_radii(plan.radii),
        repetitions=repetitions,
        seed=seed,
    )
    inputs = f"{number_of(result.inputs, 'input')}, {number_of(repetitions, 'repetition')}"
    table = TextTable(
        f"{log.name}: {inputs}\n{chosen}",
        ["", "ceiling", chosen.name, "fixed, same cost"],
        _replayed(result, chosen),
        caption=None if remark is None else phrase(remark, command=True),
    )
    return Output(result.plain(), [table])


def _replayed(result: Replay, plan: sc.Plan) -> list[list[str]]:
    """The rows of the table: the ceiling, the plan, and fixed sampling of the same cost."""
    columns = []
    for outcome in (result.ceiling, result.plan, result.fixed):
        figures = outcome.plain()
        figures["saved"] = 1 - figures["samples"] / result.ceiling.samples
        columns.append(figures | figures["certified_accuracy"])
    formats = {
        "average samples": ("samples", ",.0f"),
        "saved": ("saved", ".1%"),
        "ACR": ("acr", ""),
        "MAD": ("mad", ".3f"),
        "not certified" if plan.known_labels else "abstained": ("abstained", ".1%"),
    }
    for radius in columns[0]["certified_accuracy"]:
        formats[f"certified at {radius}"] = (radius, ".1%")
    rows = []
    for title, (key, digits) in formats.items():
        values = [column[key] for column in columns]
        rows.append([title, *(_figure(x, digits) for x in values)])
    return rows


def _figure(value: float | None, digits: str) -> str:
    """A figure of a replay. Average radii are rounded down, as everywhere."""
    from smoothcert.statistics.metrics import round_down

    if value is None:
        return "-"
    return format(value, digits) if digits else round_down(value)

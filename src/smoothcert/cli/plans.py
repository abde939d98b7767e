"""Commands that ask what a plan costs and guarantees, without a model: `map`, `coverage` and `replay`."""

from __future__ import annotations

from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.command import Output, Table
from smoothcert.cli.options import NoiseOptions, PlanOptions, numbers
from smoothcert.errors import number_of, phrase

if TYPE_CHECKING:
    from smoothcert.plans import Plan
    from smoothcert.plans.coverage import Coverage

_DEFAULT_AT = "0.5,0.55,0.6,0.7,0.8,0.9,0.95,0.99,0.999,0.9999,1"
_SIMULATED = (
    "Averages over simulated inputs: to go through all states of the plan would take too long."
)
_ROUNDED_TWICE = (
    "Radii are rounded down when they are computed, and again here: 0.0999 is just below 0.1."
)


def map_(*, noise: NoiseOptions, plan: PlanOptions, at: str = _DEFAULT_AT) -> Output:
    """Show how many samples an input needs, given the probability p of its class, and what they prove.

    Args:
        at: Probabilities of the class, separated by commas.
    """
    from smoothcert.plans.expected import expected
    from smoothcert.statistics.metrics import round_down

    drawn, p = noise.build(), numbers("--at", at)
    chosen = plan.build().for_noise(drawn)
    found = expected(chosen, drawn, p)
    titles, columns = list(found.proved), [column.tolist() for column in found.proved.values()]
    plain, shown = [], []
    show = partial(round_down, digits=4) if "radius" in titles else "{:.4f}".format
    for q, n, *values in zip(p, found.samples.tolist(), *columns, strict=True):
        finite = [
            value if isfinite(value) else None for value in values
        ]  # the ideal radius of p = 1
        proved: dict[str, Any] = dict(zip(titles, finite, strict=True))
        if chosen.radii is not None:
            proved = {
                "proved": {f"{r:g}": value for r, value in zip(chosen.radii, finite, strict=True)}
            }
        plain.append({"p": q, "samples": n, "share": n / chosen.samples} | proved)
        shown.append([f"{q:g}", f"{n:,.0f}", f"{n / chosen.samples:.1%}", *map(show, values)])
    remarks = [_ROUNDED_TWICE] if drawn.outcomes else [_SIMULATED] if found.simulated else []
    if pilot := found.pilot_not_counted:
        remarks.append(f"Without the pilot of {pilot:,} samples.")
    table = Table(
        f"{'Expected samples' if found.average else 'Samples'}: {chosen}\n{drawn}, alpha {chosen.alpha:g}",
        ["p", "samples", "share", *titles],
        shown,
        caption=" ".join(remarks) or None,
    )
    return Output({"map": plain, "simulated": found.simulated, "pilot_not_counted": pilot}, [table])


def coverage(*, noise: NoiseOptions, plan: PlanOptions) -> Output:
    """Compute the probability that a certificate of this plan is wrong, exactly where its states can be enumerated.

    The exit code is 1 if the probability may exceed alpha.
    """
    from smoothcert.plans.coverage import exact_coverage

    smoothing = noise.build()
    chosen = plan.build().for_noise(smoothing)
    found = exact_coverage(chosen, smoothing)
    return Output(found.plain(), [_failures(found, chosen)], code=0 if found.valid else 1)


def _failures(found: Coverage, plan: Plan) -> Table:
    alpha, simulated = found.alpha, found.simulated
    bound = "" if found.exact else f", at most ({found.theorem})"
    title = "Exact failure probability" if found.exact else "Failure probability"
    sentences = [found.sentence]
    if simulated:
        bound, title = "", "Simulated failure probability"
        sentences.append(
            f"The plan has too many states for an exact figure: in {simulated.repetitions:,} simulated inputs, its "
            f"failure lies between {simulated.at_least:.6f} and {simulated.at_most:.6f} with confidence "
            f"{simulated.confidence:g}."
        )
    if found.drawing_error >= 1e-9:  # it can change a printed digit
        sentences.append(
            f"Bounds are lowered by {found.drawing_error:.2g} for the error of drawing the noise."
        )
    where = f"worst p = {found.worst_p:.4f}" if found.exact or simulated else "any p"
    cases = {f"class fixed in advance, {where}{bound}": found.worst_failure}
    if plan.pilot and not plan.known_labels:
        cases[f"two tied classes, chosen on the pilot{bound}"] = found.tie_failure
    return Table(
        f"{title}\n{plan}; pilot {plan.pilot:,}, alpha {alpha:g}",
        ["case", "failure", "of alpha"],
        [[case, f"{p:.6f}", f"{p / alpha:.3f}" if alpha else "-"] for case, p in cases.items()],
        caption=" ".join(sentences),
    )


def replay(
    log: Path,
    *,
    noise: NoiseOptions,
    plan: PlanOptions,
    log_samples: int | None = None,
    log_alpha: float | None = None,
    abstained_p: float = 0.49,
    repetitions: int = 20,
    seed: int = 0,
) -> Output:
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
        log,
        chosen,
        noise=noise.given(),
        log_samples=log_samples,
        log_alpha=log_alpha,
        abstained_p=abstained_p,
    )
    found = simulate(
        population,
        chosen,
        noise=smoothing,
        radii=plan.shown_radii(),
        repetitions=repetitions,
        seed=seed,
    )
    columns = [found.figures(outcome) for outcome in (found.ceiling, found.plan, found.fixed)]
    accuracy = columns[0]["certified_accuracy"]
    for column in columns:
        column |= {"saved": 1 - column["samples"] / found.ceiling.samples} | column[
            "certified_accuracy"
        ]
    rows = {
        "average samples": ("samples", ",.0f"),
        "saved": ("saved", ".1%"),
        "ACR": ("acr", ".3f"),
        "MAD": ("mad", ".3f"),
        "not certified" if chosen.known_labels else "abstained": ("abstained", ".1%"),
        **{f"certified at {radius}": (radius, ".1%") for radius in accuracy},
    }
    table = Table(
        f"{log.name}: {number_of(found.inputs, 'input')}, {number_of(repetitions, 'repetition')}\n{chosen}",
        ["", "ceiling", chosen.name, "fixed, same cost"],
        [
            [
                title,
                *(
                    "-" if column[key] is None else format(column[key], digits)
                    for column in columns
                ),
            ]
            for title, (key, digits) in rows.items()
        ],
        caption=None if remark is None else phrase(remark, command=True),
    )
    return Output(found.plain(), [table])

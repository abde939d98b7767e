"""`smoothcert map`: how many samples an input needs."""

from __future__ import annotations

from math import isfinite
from typing import Any

from smoothcert.cli.groups import NoiseOptions, PlanOptions
from smoothcert.cli.options import Json, numbers, print_json, print_table

_DEFAULT_AT = "0.5,0.55,0.6,0.7,0.8,0.9,0.95,0.99,0.999,0.9999,1"

_SIMULATED = "Averages over simulated inputs: the plan has too many states to go through all of them."
_ROUNDED_TWICE = "Radii are rounded down when they are computed, and again here: 0.0999 is just below 0.1."


def command(*, noise: NoiseOptions, plan: PlanOptions, at: str = _DEFAULT_AT, json: Json = False) -> None:
    """Show how many samples an input needs, given the probability p of its class, and what they prove.

    Args:
        at: Probabilities of the class, separated by commas.
    """
    from smoothcert.plans.outlook import outlook
    from smoothcert.statistics.metrics import round_down

    drawn, p = noise.build(), numbers("--at", at)
    chosen = plan.build().for_noise(drawn)
    found = outlook(chosen, drawn, p)
    samples, titles = found.samples.tolist(), list(found.proved)
    columns = [found.proved[title].tolist() for title in titles]
    if json:
        rows = []
        for q, n, *values in zip(p, samples, *columns, strict=True):
            values = [value if isfinite(value) else None for value in values]  # the ideal radius of p = 1
            proved: dict[str, Any] = dict(zip(titles, values, strict=True))
            if chosen.radii is not None:
                proved = {"proved": {f"{r:g}": value for r, value in zip(chosen.radii, values, strict=True)}}
            rows.append({"p": q, "samples": n, "share": n / chosen.samples} | proved)
        print_json({"map": rows, "simulated": found.simulated})
        return
    print_table(
        f"{'Expected samples' if found.expected else 'Samples'}: {chosen}\n{drawn}, alpha {chosen.alpha:g}",
        ["p", "samples", "share", *titles],
        [
            [f"{q:g}", f"{n:,.0f}", f"{n / chosen.samples:.1%}", *(round_down(value, 4) for value in values)]
            for q, n, *values in zip(p, samples, *columns, strict=True)
        ],
        caption=_ROUNDED_TWICE if drawn.outcomes else _SIMULATED if found.simulated else None,
    )

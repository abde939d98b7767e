"""`smoothcert map`: how many samples an input needs."""

from __future__ import annotations

from typing import Annotated

import typer

from smoothcert.cli.options import (
    Alpha,
    Decline,
    Json,
    Kind,
    Samples,
    Sigma,
    numbers,
    print_json,
    print_table,
)

_DEFAULT_AT = "0.5,0.55,0.6,0.7,0.8,0.9,0.95,0.99,0.999,0.9999,1"


def command(
    sigma: Sigma,
    samples: Samples = 100_000,
    decline: Decline = 0.05,
    kind: Kind = "absolute",
    alpha: Alpha = 0.001,
    at: Annotated[str, typer.Option("--at", help="Probabilities of the top class, separated by commas.")] = _DEFAULT_AT,
    json: Json = False,
) -> None:
    """Show how many samples an input needs, given the probability p of its top class."""
    from smoothcert.metrics import round_down
    from smoothcert.noise import Gaussian
    from smoothcert.sample_map import SampleMap

    psi = SampleMap(Gaussian(sigma), samples, decline, kind, alpha)
    p = numbers("--at", at)
    needed = psi(p).tolist()
    if json:
        print_json({"map": [{"p": q, "samples": n} for q, n in zip(p, needed, strict=True)]})
        return
    rows = []
    for q, n in zip(p, needed, strict=True):
        kept, full = (round_down(max(float(psi.radius(k, q)), 0), 4) if k else "0" for k in (n, samples))
        rows.append([f"{q:g}", f"{n:,}", f"{n / samples:.1%}", kept, full])
    print_table(
        f"Samples that keep the radius within {decline:g} ({kind}) of the one at {samples:,} samples\n"
        f"sigma {sigma:g}, alpha {alpha:g}",
        ["p", "samples", "share", "radius", "radius at ceiling"],
        rows,
    )

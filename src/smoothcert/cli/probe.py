"""`smoothcert probe`: whether noise is too large for a model, in seconds."""

from __future__ import annotations

import sys

from smoothcert.cli.groups import SubjectOptions
from smoothcert.cli.options import Data, Ids, Json, Skip, numbers, print_json, print_table

_BAR = 24


def command(
    *,
    data: Data,
    subject: SubjectOptions,
    sigma: str | None = None,
    copies: int = 16,
    radii: str | None = None,
    samples: int = 100_000,
    skip: Skip = None,
    limit: int = 100,
    ids: Ids = None,
    json: Json = False,
) -> None:
    """Measure how often a model is right on noisy inputs, to find out which noise is too large for it.

    Args:
        sigma: Standard deviations of the noise, separated by commas. Default: 0.12,0.25,0.5,1, or those that the
            denoiser removes.
        copies: Noisy copies of each input.
        radii: Also estimate certified accuracy at these radii, from up to 4,000 more copies of an input.
        samples: The samples per input of the certificates that the estimate is about.
        limit: Take at most this many inputs, by default from all parts of the data.
    """
    from rich.console import Console

    from smoothcert.tasks.probe import Level, probe

    chosen = None if sigma is None else numbers("--sigma", sigma)
    console = Console(stderr=True)
    with console.status("loading the model") as status:

        def show(level: Level) -> None:
            status.update(f"probing: right on {level.accuracy:.0%} of inputs at sigma {level.sigma:g}")

        found = probe(
            data=data,
            sigmas=chosen,
            copies=copies,
            radii=None if radii is None else numbers("--radii", radii),
            samples=samples,
            ids=ids,
            skip=skip,
            limit=limit,
            on_level=show,
            **subject.settings(),
        )
    if json:
        print_json(found.plain())
    else:
        print_table(
            f"{found.classifier} on {found.inputs} inputs of {found.data}, {found.copies} noisy copies each",
            ["sigma", "noisy copies right", "", "majority right"],
            [
                [f"{x.sigma:g}" if x.sigma else "no noise", f"{x.accuracy:.1%}", _bar(x.accuracy), f"{x.majority:.1%}"]
                for x in found.levels
            ],
        )
        estimates = {level.sigma: level.estimated for level in found.levels if level.estimated is not None}
        if estimates:
            print_table(
                f"What {samples:,} samples per input would certify, estimated. These are not certificates.",
                ["sigma", *(f"about, at {radius:g}" for radius in next(iter(estimates.values())))],
                [
                    [f"{level:g}", *("beyond reach" if share is None else f"{share:.1%}" for share in row.values())]
                    for level, row in estimates.items()
                ],
                f"Beyond reach: no votes of {samples:,} samples prove this radius."
                if any(None in row.values() for row in estimates.values())
                else None,
            )
        print(found.reading)


def _bar(share: float) -> str:
    """A share as a bar of fixed length."""
    full, empty = "█░" if (sys.stdout.encoding or "").lower().startswith("utf") else "#."
    return (full * round(share * _BAR)).ljust(_BAR, empty)

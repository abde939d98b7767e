"""The command that measures a model before a run: `probe`."""

from __future__ import annotations

import sys

from rich.console import Console

import smoothcert as sc
from smoothcert.cli.command import Output, Table
from smoothcert.cli.options import (
    Data,
    Ids,
    InputSize,
    Skip,
    SubjectOptions,
    numbers,
    resized,
)
from smoothcert.errors import number_of

_BAR = 24  # characters


def probe(
    *,
    data: Data,
    input_size: InputSize = None,
    subject: SubjectOptions,
    sigma: str | None = None,
    copies: int = 16,
    radii: str | None = None,
    samples: int = 100_000,
    skip: Skip = None,
    limit: int = 100,
    ids: Ids = None,
) -> Output:
    """Measure how often a model is right on noisy inputs, to see which noise is too large for it.

    Args:
        sigma: Standard deviations of the noise, separated by commas. Default: 0.12,0.25,0.5,1, or
            those that the denoiser removes.
        copies: Noisy copies of each input.
        radii: Also estimate certified accuracy at these radii, from up to 4,000 more copies of an
            input.
        samples: The samples per input of the certificates that the estimate is about.
        limit: Take at most this many inputs, by default from all parts of the data.
    """
    with Console(stderr=True).status("loading the model") as status:

        def show(level: sc.Level) -> None:
            share = f"{level.accuracy:.0%} of inputs at sigma {level.sigma:g}"
            status.update(f"probing: right on {share}")

        result = sc.probe(
            data=resized(data, input_size),
            sigmas=numbers("--sigma", sigma),
            copies=copies,
            radii=numbers("--radii", radii),
            samples=samples,
            ids=ids,
            skip=skip,
            limit=limit,
            on_level=show,
            **subject.settings(),
        )
    lines: list[str | Table] = [_measured(result)]
    if radii is not None:
        lines.append(_estimated(result, samples))
    return Output(result.plain(), [*lines, result.reading])


def _measured(probe: sc.Probe) -> Table:
    """How often the model is right on noisy inputs."""
    can_draw = (sys.stdout.encoding or "").lower().startswith("utf")
    full, empty = "█░" if can_draw else "#."
    rows = []
    for level in probe.levels:
        bar = (full * round(level.accuracy * _BAR)).ljust(_BAR, empty)
        name = f"{level.sigma:g}" if level.sigma else "no noise"
        rows.append([name, f"{level.accuracy:.1%}", bar, f"{level.majority:.1%}"])
    inputs = f"{number_of(probe.inputs, 'input')} of {probe.data}"
    return Table(
        f"{probe.classifier} on {inputs}, {probe.copies} noisy copies each",
        ["sigma", "noisy copies right", "", "majority right"],
        rows,
    )


def _estimated(probe: sc.Probe, samples: int) -> Table:
    """What certificates would show, by sigma and radius."""
    rows = []
    radii: list[float] = []
    caption = None
    for level in probe.levels:
        if level.estimated is None:
            continue
        radii = list(level.estimated)
        shares = ["beyond reach" if x is None else f"{x:.1%}" for x in level.estimated.values()]
        rows.append([f"{level.sigma:g}", *shares])
        if None in level.estimated.values():
            caption = f"Beyond reach: no votes of {samples:,} samples prove this radius."
    return Table(
        f"What {samples:,} samples per input would certify, estimated. These are not certificates.",
        ["sigma", *(f"about, at {radius:g}" for radius in radii)],
        rows,
        caption=caption,
    )

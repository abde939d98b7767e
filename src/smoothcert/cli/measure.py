"""Commands that measure a model or a machine before a run: `probe` and `bench`."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict

from smoothcert.cli.command import Output, Table
from smoothcert.cli.options import STARTED, Data, Ids, NoiseOptions, Skip, SubjectOptions, numbers
from smoothcert.errors import number_of

_BAR = 24


def probe(
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
) -> Output:
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

    with Console(stderr=True).status("loading the model") as status:

        def show(level: Level) -> None:
            status.update(
                f"probing: right on {level.accuracy:.0%} of inputs at sigma {level.sigma:g}"
            )

        found = probe(
            data=data,
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
    full, empty = "█░" if (sys.stdout.encoding or "").lower().startswith("utf") else "#."

    def bar(share: float) -> str:
        return (full * round(share * _BAR)).ljust(_BAR, empty)

    measured = Table(
        f"{found.classifier} on {number_of(found.inputs, 'input')} of {found.data}, {found.copies} noisy copies each",
        ["sigma", "noisy copies right", "", "majority right"],
        [
            [
                f"{x.sigma:g}" if x.sigma else "no noise",
                f"{x.accuracy:.1%}",
                bar(x.accuracy),
                f"{x.majority:.1%}",
            ]
            for x in found.levels
        ],
    )
    shown: list[str | Table] = [measured]
    if estimates := {
        level.sigma: level.estimated for level in found.levels if level.estimated is not None
    }:
        beyond = any(None in row.values() for row in estimates.values())
        estimated = Table(
            f"What {samples:,} samples per input would certify, estimated. These are not certificates.",
            ["sigma", *(f"about, at {radius:g}" for radius in next(iter(estimates.values())))],
            [
                [
                    f"{sigma:g}",
                    *(
                        "beyond reach" if share is None else f"{share:.1%}"
                        for share in row.values()
                    ),
                ]
                for sigma, row in estimates.items()
            ],
            caption=f"Beyond reach: no votes of {samples:,} samples prove this radius."
            if beyond
            else None,
        )
        shown.append(estimated)
    return Output(found.plain(), [*shown, found.reading])


def bench(
    *, noise: NoiseOptions, subject: SubjectOptions, data: str | None = None, seconds: float = 10.0
) -> Output:
    """Measure samples per second: the classifier alone, the sampler, and the loop of published programs.

    Args:
        data: Inputs to use. Default: random ones.
        seconds: Seconds for each measurement.
    """
    from smoothcert.smoothed import Subject
    from smoothcert.tasks.bench import bench

    imported = time.perf_counter() - STARTED
    smoothed = Subject(**subject.settings(), noise=noise.build())
    loaded = time.perf_counter() - STARTED
    found = bench(
        smoothed,
        data,
        seconds=seconds,
        say=lambda message: print(message, file=sys.stderr, flush=True),
    )
    speedups = {size: found.speedup(size) for size in found.published}
    table = Table(
        f"{found.device}, {found.dtype}, compile {found.compile}, batch {found.batch}",
        ["", "samples/s", "sampler is x times"],
        [
            ["classifier alone (the limit)", f"{found.forward:,.0f}", f"{found.of_limit:.2f}"],
            *(
                [f"published loop, float32, batch {size}", f"{rate:,.0f}", f"{speedups[size]:.2f}"]
                for size, rate in found.published.items()
            ),
            ["sampler, end to end", f"{found.sampler:,.0f}", ""],
        ],
        caption=f"{found.counted_rows:.1%} of rows counted; {found.disagreement:.3%} of votes differ from float32's; "
        f"prepared in {found.prepare_seconds:.1f} s, first certificate {found.first_certificate_seconds:.1f} s later",
    )
    setup = {"import": imported, "load": loaded - imported} | found.setup
    return Output(
        asdict(found) | {"setup": setup, "of_limit": found.of_limit, "speedup": speedups}, [table]
    )

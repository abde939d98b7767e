"""`smoothcert bench`: how fast this machine samples."""

from __future__ import annotations

import sys
import time

from smoothcert.cli.groups import NoiseOptions, SubjectOptions
from smoothcert.cli.options import STARTED, Json, print_json, print_table


def command(
    *,
    noise: NoiseOptions,
    subject: SubjectOptions,
    data: str | None = None,
    seconds: float = 10.0,
    json: Json = False,
) -> None:
    """Measure samples per second: the classifier alone, the sampler, and the loop of published programs.

    Args:
        data: Inputs to use. Default: random ones.
        seconds: Seconds for each measurement.
    """
    from dataclasses import asdict

    from smoothcert.smoothed import Smoothed
    from smoothcert.tasks.bench import bench

    imported = time.perf_counter() - STARTED
    smoothed = Smoothed(**subject.settings(), noise=noise.build())
    loaded = time.perf_counter() - STARTED
    found = bench(smoothed, data, seconds=seconds, say=_say)
    if json:
        speedups = {str(size): found.speedup(size) for size in found.published}
        setup = {"import": imported, "load": loaded - imported} | found.setup
        print_json(asdict(found) | {"setup": setup} | {"of_limit": found.of_limit, "speedup": speedups})
        return
    rows = [
        ["classifier alone (the limit)", f"{found.forward:,.0f}", f"{found.of_limit:.2f}"],
        *(
            [f"published loop, float32, batch {size}", f"{rate:,.0f}", f"{found.speedup(size):.2f}"]
            for size, rate in found.published.items()
        ),
        ["sampler, end to end", f"{found.sampler:,.0f}", ""],
    ]
    print_table(
        f"{found.device}, {found.dtype}, compile {found.compile}, batch {found.batch}",
        ["", "samples/s", "sampler is x times"],
        rows,
        caption=(
            f"{found.counted_rows:.1%} of rows counted; {found.disagreement:.3%} of votes differ from float32's; "
            f"prepared in {found.prepare_seconds:.1f} s, first certificate "
            f"{found.first_certificate_seconds:.1f} s later"
        ),
    )


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)

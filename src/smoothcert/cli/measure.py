"""The command that measures a model before a run: `probe`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

import smoothcert as sc
from smoothcert.cli.command import Output
from smoothcert.cli.options import (
    Data,
    Ids,
    InputSize,
    Skip,
    SubjectOptions,
    resized,
)


def probe(
    *,
    data: Data,
    input_size: InputSize = None,
    subject: SubjectOptions,
    sigma: Sequence[float] | None = None,
    copies: int = 16,
    radii: Sequence[float] | None = None,
    samples: int = 100_000,
    skip: Skip = None,
    limit: int = 100,
    ids: Ids = None,
) -> Output:
    """Measure how often a model is right on noisy inputs, to see which noise is too large for it.

    Args:
        sigma: Standard deviations of the noise. Default: 0.12,0.25,0.5,1, or
            those that the denoiser removes.
        copies: Noisy copies of each input.
        radii: Also estimate certified accuracy at these radii, from up to 4,000 more copies of an
            input.
        samples: The samples per input of the certificates that the estimate is about.
        limit: Take at most this many inputs, by default from all parts of the data.
    """
    with Console(stderr=True).status("probing"):
        result = sc.probe(
            data=resized(data, input_size),
            sigmas=sigma,
            copies=copies,
            radii=radii,
            samples=samples,
            ids=ids,
            skip=skip,
            limit=limit,
            **vars(subject),
        )
    return Output(result.plain(), [str(result)])

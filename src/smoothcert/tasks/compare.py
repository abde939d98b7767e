"""`compare`: is B as robust as A? For two runs, or for two models until the answer is clear."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from smoothcert.errors import InvalidInput, setting
from smoothcert.plans.two_stage import Bound
from smoothcert.runs.comparison import Comparison, compare_runs
from smoothcert.statistics.metrics import CONFIDENCE


def compare(
    a: Any,
    b: Any,
    data: Any = None,
    labels: Any = None,
    *,
    radius: float | Sequence[float] | None = None,
    margin: float = 0.0,
    confidence: float = CONFIDENCE,
    out: str | Path | None = None,
    samples: int = 100_000,
    alpha: float = 0.001,
    bound: Bound = "binary",
    ids: str | Sequence[int] | None = None,
    skip: int | None = None,
    limit: int | None = None,
    model: str | None = None,
    on_part: Callable[[Comparison], None] = lambda comparison: None,
    **settings: Any,
) -> Comparison:
    """Compare two runs on their common inputs, or two models on the same data.

    Models are certified at the radii, on more and more inputs in random order, until the difference
    is clear at every radius or the inputs are used up. Both runs are kept in `out`, and the same
    call resumes. The intervals allow for the choice of when to stop.

    Args:
        a: What B is compared with: results or their folder or file; with `data`, a model as for
            `certify`, a `Smoothed`, or a checkpoint.
        b: The same for B.
        data: The data, for models.
        labels: The labels, if `data` holds only inputs.
        radius: The radius of certified accuracy, or several. The intervals then hold together.
            Default for runs: those that the plans decide, or those of a table.
        margin: How many points of certified accuracy B may lose and still count as not worse.
            Default: 0, which asks for a difference in either direction.
        confidence: The confidence of the intervals. It has nothing to do with the alpha of a
            certificate.
        out: models: The folder of both runs.
        samples: models: The ceiling for each input. With few samples, what so few certify is
            compared.
        alpha: models: The largest probability that one certificate is wrong.
        bound: models: "binary", or "runner-up", which certifies more.
        ids: models: The inputs to choose from, as for `certify`.
        skip: models: Choose from every `skip`-th input.
        limit: models: Choose from the first inputs.
        model: models: The architecture of checkpoints that do not state it.
        on_part: models: Called with the comparison so far whenever inputs were added.
        **settings: models: The settings of `Smoothed`, such as `sigma=`, for those that are not
            one.

    Returns:
        The comparison. `write_report` makes a page of it.
    """
    about: dict[str, Any] = {"radius": radius, "margin": margin, "confidence": confidence}
    if data is None:
        if settings or any(value is not None for value in (out, ids, skip, limit, model)):
            raise InvalidInput(
                "settings-of-models",
                "to compare models, give {data} as well; runs need no such settings",
                data=setting("data"),
            )
        return compare_runs(a, b, **about)
    if radius is None or out is None:
        missing = setting("radius", "R") if radius is None else setting("out", "DIR")
        raise InvalidInput(
            "missing-setting", "to compare models, give {missing} as well", missing=missing
        )
    from smoothcert.tasks.compare_models import compare_models  # it needs torch

    return compare_models(
        a,
        b,
        data,
        labels,
        out=Path(out),
        plan={"radii": radius, "samples": samples, "alpha": alpha, "bound": bound},
        selection={"ids": ids, "skip": skip, "limit": limit},
        architecture=model,
        settings=settings,
        about=about,
        on_part=on_part,
    )

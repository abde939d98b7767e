"""`compare`: is B as robust as A? For two runs, or for two models until the answer is clear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from smoothcert.errors import InvalidInput, setting
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
    **models: Any,
) -> Comparison:
    """Compare two runs on their common inputs, or two models on the same data.

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
        **models: How to certify models: further arguments of `compare_models`.

    Returns:
        The comparison. `write_report` makes a page of it.
    """
    about: dict[str, Any] = {"margin": margin, "confidence": confidence}
    if data is None and not models:
        return compare_runs(a, b, radius=radius, **about)
    needed = [
        (data, setting("data")),
        (radius, setting("radius", "R")),
        (models.get("out"), setting("out", "DIR")),
    ]
    missing = [option for given, option in needed if given is None]
    if missing or radius is None:  # the second is for the type checker
        wanted = " and ".join(missing)
        raise InvalidInput(
            "missing-setting", "to compare models, give {wanted} as well", wanted=wanted
        )
    from smoothcert.tasks.compare_models import compare_models  # it needs torch

    return compare_models(a, b, data, labels, radius=radius, **about, **models)

"""What results say in one number or one phrase, for tables, words and figures."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.noises import Noise, Transformed
from smoothcert.runs.results import Results, p_correct
from smoothcert.statistics import metrics
from smoothcert.statistics.bounds import Interval

_MAJORITY = 0.501
"""One half, and what the rounding of a noise may add to it."""
_MOST_GROUPS = 6
"""Groups that are named in one line."""


def share_above_band(results: Results, p: ArrayLike) -> Interval:
    """The 95% band of each `share_above` over inputs."""
    return metrics.certified_accuracy_band(p_correct(results), np.isfinite(results.p), p)


def p_reached_by(results: Results, share: float) -> float | None:
    """The largest p that this share of all inputs reaches, as in 0.5; None if votes are unknown.

    It is also unknown where it would be about inputs that may have won the vote, and yet have no
    certificate.
    """
    if not np.any(results.counted):
        return None
    inputs = max(math.ceil(share * len(results)), 1)
    reached = float(np.sort(np.nan_to_num(p_correct(results)))[-inputs])
    more_than_majority = least_certificate(results.noise, results.decided_radii) is not None
    return None if reached == 0 and more_than_majority else reached


def least_certificate(
    noise: Noise | None, radii: Sequence[float] | None
) -> tuple[float, float] | None:
    """The smallest radius that an input can get, and the probability of the class that it needs.

    None if a majority is enough, or if no single probability proves a radius. A majority is not
    enough if radii have steps, or if the plan decides other `radii`.
    """
    if noise is None or isinstance(noise, Transformed):
        return None
    radius = min(radii) if radii else np.nextafter(0.0, 1.0)
    p = float(noise.probability(radius))
    return (max(radius, float(noise.radius(p))), p) if p > _MAJORITY else None


def certified_radii(results: Results) -> dict[str, float] | None:
    """The smallest, median and mean radius of the inputs that have a certificate, if any."""
    radii = results.radius[~results.abstained]
    if not len(radii):
        return None
    return {
        "smallest": float(radii.min()),
        "median": float(np.median(radii)),
        "mean": float(radii.mean()),
    }


def question_in_words(results: Results) -> str | None:
    """What is certified if it is not the class: a group, or a place among the top k."""
    words = []
    groups = results.groups
    if groups is not None:
        words.append(f"{groups.title}: {', '.join(groups.names[:_MOST_GROUPS])}")
        if groups.count > _MOST_GROUPS:
            words[0] += f" and {groups.count - _MOST_GROUPS} more"
    if results.plan is not None and results.plan.top > 1:
        words.append(f"top {results.plan.top}")
    return "; ".join(words) or None


def sensitive_place(results: Results) -> int:
    """Where a cheap input with divided votes stands. If the classifier changes, its votes change
    first.
    """
    is_cheap = results.samples <= np.median(results.samples)
    return int(np.argmin(np.where(is_cheap, np.nan_to_num(results.p, nan=1.0), np.inf)))


def usual_radii(results: Sequence[Results]) -> list[float]:
    """The radii to show CA at: those that the plans decide, or steps up to the largest radius."""
    decided = {radius for r in results for radius in r.decided_radii or ()}
    if decided:
        return sorted(decided)
    return metrics.default_radii(max(float(r.radius.max(initial=0.0)) for r in results))


def same_inputs(a: Results, b: Results) -> bool:
    """Whether two results are about the same inputs with the same labels."""
    return np.array_equal(a.id, b.id) and np.array_equal(a.label, b.label)

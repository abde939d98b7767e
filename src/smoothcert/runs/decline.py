"""MAD: the largest decline of a radius against a run at the full ceiling, on the same noise."""

from __future__ import annotations

import numpy as np

from smoothcert.runs.results import Results
from smoothcert.statistics import metrics


def largest_decline(results: Results, reference: Results) -> float | None:
    """MAD, the largest decline of a radius; None if the two cannot be compared.

    They can be compared if they have the same draws, if `reference` has every input of the results,
    and if both plans have the same basis, so that both bounds count from the same sample on.

    Args:
        results: The results.
        reference: Results at the full ceiling.
    """
    if why_not_comparable(results, reference) is not None:
        return None
    places = np.searchsorted(reference.id, results.id)
    return metrics.largest_decline(results.radius, reference.radius[places])


def why_not_comparable(results: Results, reference: Results) -> str | None:
    """Why radii cannot be compared with those of a reference one by one; None if they can."""
    bases = []
    for one in (results, reference):
        plan = one.certified_by
        if plan is None:
            return f"the plan of {one.name} is unknown"
        bases.append(plan.basis())
        if bases[-1] is None:
            return f"the radii of {one.name} ({plan}) cannot be compared with those of other plans"
    if results.noise != reference.noise:
        return f"the noise of {results.name} is {results.noise}, not {reference.noise}"
    manifest = results.manifest
    others = reference.manifest
    if manifest is None or others is None or not manifest.same_draws(others):
        return f"{results.name} has another model, data, seed or number format, and so other votes"
    if not np.all(np.isin(results.id, reference.id)):
        return f"{results.name} has inputs that {reference.name} has not"
    if bases[0] != bases[1]:
        return (
            f"the plans of {results.name} and {reference.name} differ in pilot, alpha, bound or "
            "known labels"
        )
    return None

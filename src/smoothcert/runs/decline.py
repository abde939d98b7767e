"""MAD: the largest decline of a radius against a run at the full ceiling, on the same noise."""

from __future__ import annotations

import numpy as np

from smoothcert.plans import Plan
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
    plan, other_plan = results.certified_by, reference.certified_by
    if plan is None:
        return f"the plan of {results.name} is unknown"
    if other_plan is None:
        return f"the plan of {reference.name} is unknown"
    if results.noise != reference.noise:
        return f"the noise of {results.name} is {results.noise}, not {reference.noise}"
    if not _same_draws(results, reference):
        return f"{results.name} has another model, data, seed or number format, and so other votes"
    if not np.all(np.isin(results.id, reference.id)):
        return f"{results.name} has inputs that {reference.name} has not"
    return _other_basis(results, plan, reference, other_plan)


def _other_basis(results: Results, plan: Plan, reference: Results, other_plan: Plan) -> str | None:
    """How the samples differ that the bounds rest on; None if they do not differ."""
    for name, one in ((results.name, plan), (reference.name, other_plan)):
        if one.basis() is None:
            return f"the radii of {name} ({one}) cannot be compared with those of other plans"
    if plan.basis() != other_plan.basis():
        return (
            f"the plans of {results.name} and {reference.name} differ in pilot, alpha, bound or "
            "known labels"
        )
    return None


def _same_draws(results: Results, reference: Results) -> bool:
    if results.manifest is None or reference.manifest is None:
        return False
    return results.manifest.same_draws(reference.manifest)

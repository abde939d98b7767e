"""Plans in words, for reports and warnings."""

from __future__ import annotations

from smoothcert.plans.at_radii import AtRadii
from smoothcert.plans.base import Plan
from smoothcert.plans.combined import Combined, primary
from smoothcert.plans.coverage import Coverage, closed_form
from smoothcert.plans.dispatch import keeps_rule
from smoothcert.plans.exact import Exact
from smoothcert.plans.fixed import Fixed
from smoothcert.plans.input_specific import InputSpecific
from smoothcert.plans.pilot import PilotPlan
from smoothcert.plans.price import Price


def kind(plan: Plan) -> str:
    """The name of the built-in rule that a plan follows; "pilot" for another rule of two looks, else empty."""
    for known in (Fixed, InputSpecific, Price, AtRadii, Exact, Combined):
        if isinstance(plan, known) and keeps_rule(type(plan), known):
            return known.name
    return "pilot" if isinstance(plan, PilotPlan) and keeps_rule(type(plan), PilotPlan) else ""


def caveat(plan: Plan) -> str | None:
    """A sentence about what the plan does not guarantee; None if a theorem says that it keeps its alpha."""
    plan = primary(plan)
    if plan.pilot_counts:
        return (
            f"the pilot is counted again, as published: a certificate can be wrong more often than alpha "
            f"({plan.alpha:g}) says; `coverage` computes how often"
        )
    if plan.samples and closed_form.known_for(plan) is None:  # a plan without samples certifies nothing
        return f"nothing proves that this plan keeps its alpha ({plan.alpha:g}); `coverage` looks for where it fails"
    return None


def verdict(found: Coverage) -> str:
    """Whether a plan keeps its alpha, in a sentence."""
    alpha = found.alpha
    if found.proved:
        return f"The plan keeps its alpha of {alpha:g}."
    if found.valid:
        return f"The search found no p at which the plan exceeds its alpha of {alpha:g}. This is not a proof."
    if found.exceeds:
        return f"The plan does NOT keep its alpha of {alpha:g}."
    if found.simulated:
        return f"The simulation does not tell whether the plan keeps its alpha of {alpha:g}."
    return f"Nothing proves that the plan keeps its alpha of {alpha:g}: the pilot that chooses the class also counts."

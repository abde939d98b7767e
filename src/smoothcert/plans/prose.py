"""Plans in full sentences, for reports and warnings."""

from __future__ import annotations

from collections.abc import Sequence

from smoothcert.plans.at_radii import AtRadii
from smoothcert.plans.base import Plan
from smoothcert.plans.combined import Combined, primary
from smoothcert.plans.coverage import Coverage, closed_form
from smoothcert.plans.dispatch import ByRule
from smoothcert.plans.exact import Exact
from smoothcert.plans.fixed import Fixed
from smoothcert.plans.input_specific import InputSpecific
from smoothcert.plans.pilot import PilotPlan
from smoothcert.plans.price import Price
from smoothcert.statistics.boundaries import default_looks


@ByRule
def explanation(plan: Plan) -> str:
    """The plan for a report: what it does, what it is good for, and what it guarantees."""
    sentences = [f'The plan "{plan}" spends up to {plan.most_samples:,} samples on each input.']
    if plan.radii is not None:
        sentences.append(f"It decides whether the radius is above {listed(plan.radii)}.")
    guarantee = f"Each certificate is wrong with a probability of at most {plan.alpha:g}."
    return " ".join([*sentences, _choice(plan), _promise(plan, guarantee)])


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


@explanation.register(PilotPlan)
def _(plan: PilotPlan) -> str:
    return _of_pilot_plan(plan, [f'The plan "{plan}" spends up to {plan.most_samples:,} samples on each input.'])


@explanation.register(Fixed)
def _(plan: Fixed) -> str:
    purpose = [
        f"Fixed sampling: every input gets the same {plan.samples:,} samples.",
        "It is the standard of the literature. It gives ACR and the whole curve of certified accuracy, and it suits "
        "runs where neither the radii of interest nor an acceptable decline is known in advance.",
    ]
    return _of_pilot_plan(plan, purpose)


@explanation.register(InputSpecific)
def _(plan: InputSpecific) -> str:
    decline = f"{plan.decline:g}" if plan.kind == "absolute" else f"{100 * plan.decline:g}%"
    reference = f"the radius that {plan.samples:,} samples would prove."
    if plan.reference == "ideal":
        reference = (
            f"the ideal radius, which only endless sampling would prove. No input gets more than {plan.samples:,} "
            "samples, so where nearly all votes agree, the radius can stay further below."
        )
    purpose = [
        f"Input-specific sampling: a pilot of {plan.pilot:,} samples shows how sure the votes are. Then each input "
        f"gets as many samples as it needs to come within {decline} of {reference}",
        "It suits ACR and large radii at a lower cost than fixed sampling, which certifies more inputs at small radii "
        "for the same number of samples. The decline is planned for the expected votes, so single inputs can lose a "
        "little more.",
    ]
    return _of_pilot_plan(plan, purpose)


@explanation.register(Price)
def _(plan: Price) -> str:
    purpose = [
        f"A price for samples: a pilot of {plan.pilot:,} samples shows how sure the votes are. Then each input gets "
        f"samples for as long as each is expected to add {plan.price:.3g} to its radius, up to {plan.samples:,}.",
        "It gives the largest ACR for its cost, so it suits a budget of samples or minutes. At small radii, fixed "
        "sampling of the same cost can certify more inputs.",
    ]
    return _of_pilot_plan(plan, purpose)


@explanation.register(AtRadii)
def _(plan: AtRadii) -> str:
    first, *_ = looks = default_looks(plan.samples)
    guarantee = (
        "The boundaries are exact for all looks and all radii together: each certificate is wrong with a probability "
        f"of at most {plan.alpha:g}, and giving up does not change that."
    )
    if plan.remembers:
        guarantee = (
            "At every look, the plan bets that the class beats each other class everywhere within each radius, so it "
            "can certify a class that leads without a majority. A bet on a false claim gains nothing on average. So "
            f"its wealth grows to 1/alpha with a probability of at most {plan.alpha:g}, wherever sampling stops, and "
            "the run can be continued with more samples or larger radii."
        )
    return " ".join(
        [
            f"Deciding radii: the plan looks at the votes up to {len(looks)} times, first after {first:,} samples "
            f"and last after {plan.samples:,}. It stops as soon as it is decided whether the radius is above "
            f"{listed(plan.radii)}: each radius is proved, or given up because a proof became unlikely.",
            "It suits tables of certified accuracy at these radii, because most inputs need only a small part of the "
            "samples. It does not measure how large a radius is in between, so ACR counts only these radii.",
            _choice(plan),
            guarantee,
        ]
    )


@explanation.register(Exact)
def _(plan: Exact) -> str:
    outcomes = f"each of the {plan.samples:,} outcomes" if plan.samples else "every outcome"
    return " ".join(
        [
            f"Exact counting: the classifier answers {outcomes} of the noise once, so the share of a class is its "
            "exact probability.",
            _choice(plan),
            "Nothing is random: alpha is 0, and the certificates are exact.",
        ]
    )


@explanation.register(Combined)
def _(plan: Combined) -> str:
    names = "; ".join(map(str, plan.plans))
    return (
        "Combined sampling: several plans share the same samples, at the cost of the most expensive one "
        f"({names}). Each sees exactly the votes that it would see alone. It suits comparisons of plans. The "
        f"certificates of the run are those of the first plan. {explanation(plan.plans[0])}"
    )


def listed(values: Sequence[float]) -> str:
    """Numbers in a sentence.

    >>> listed([0, 0.25, 0.5])
    '0, 0.25 or 0.5'
    """
    *most, last = (f"{value:g}" for value in values)
    return f"{', '.join(most)} or {last}" if most else last


def _of_pilot_plan(plan: PilotPlan, purpose: list[str]) -> str:
    choice = [_choice(plan)]
    if plan.uses_rivals:
        choice.append(
            "They also show which other classes are strong. The runner-up bound limits the probability of the class "
            "from below and that of every other class from above. So it can certify a class that leads without a "
            "majority."
        )
    what = "The bounds share alpha" if plan.uses_rivals else "The Clopper-Pearson bound is exact for every input"
    guarantee = f"{what}: each certificate is wrong with a probability of at most {plan.alpha:g}."
    return " ".join([*purpose, *choice, _promise(plan, guarantee)])


def _choice(plan: Plan) -> str:
    """How the class is chosen."""
    use = "count for the bound as well" if plan.pilot_counts else "do not count for the bound"
    if not plan.known_labels:
        first = f"The first {plan.pilot:,} samples choose the class and {use}."
        return first if plan.pilot else "The class is the one with most votes."
    pilot = f" The first {plan.pilot:,} samples are a pilot and {use}." if plan.pilot else " Every sample counts."
    return (
        f'The class is the label of the input.{pilot} An input without a certificate is "not certified": nobody knows '
        "whether the answer for it is wrong."
    )


def _promise(plan: Plan, guarantee: str) -> str:
    """What is guaranteed, or why it is not."""
    if doubt := caveat(plan):
        start = "The plan does not keep its promise in every case. " if primary(plan).pilot_counts else ""
        return f"{start}{doubt[0].upper()}{doubt[1:]}."
    return guarantee

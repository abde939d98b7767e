"""Plans: how many samples an input gets, and what its votes prove.

There is one file per plan, and one machine that follows all of them. To add one, copy `fixed.py`
(or see `examples/own_plan.py` for a plan outside of this package) and list it here.
"""

from smoothcert.plans.at_radii import AtRadii
from smoothcert.plans.base import Plan, Proof
from smoothcert.plans.base import Rule as Rule
from smoothcert.plans.base import SingleDraw as SingleDraw
from smoothcert.plans.betting_radii import BettingRadii
from smoothcert.plans.certificate import Certificate
from smoothcert.plans.combined import Combined
from smoothcert.plans.coverage import Coverage, exact_coverage
from smoothcert.plans.exact import Exact
from smoothcert.plans.fixed import Fixed
from smoothcert.plans.follow import Case as Case
from smoothcert.plans.input_specific import InputSpecific
from smoothcert.plans.input_specific import plan_or_default as plan_or_default
from smoothcert.plans.price import Price
from smoothcert.plans.two_stage import TwoStagePlan as TwoStagePlan
from smoothcert.plans.votes import Cell as Cell
from smoothcert.plans.votes import Look, Tally
from smoothcert.plans.votes import Votes as Votes
from smoothcert.plans.walk import Walk

METHODS = {plan.name: plan for plan in (AtRadii, Exact, Fixed, InputSpecific, Price, Walk)}
"""Plans by their names on the command line."""

__all__ = [  # what is public, as smoothcert.NAME
    "AtRadii",
    "BettingRadii",
    "Certificate",
    "Combined",
    "Coverage",
    "Exact",
    "Fixed",
    "InputSpecific",
    "Look",
    "Plan",
    "Price",
    "Proof",
    "Tally",
    "Walk",
    "exact_coverage",
]

"""Plans: how many samples an input gets, and what its votes prove. One file per plan, and one `machine` for all.

To add one, copy `fixed.py` (or see `examples/own_plan.py` for a plan outside of this package).
"""

from smoothcert.plans.at_radii import AtRadii
from smoothcert.plans.base import Plan
from smoothcert.plans.certificate import Certificate
from smoothcert.plans.combined import Combined
from smoothcert.plans.exact import Exact
from smoothcert.plans.fixed import Fixed
from smoothcert.plans.input_specific import InputSpecific, plan_or_default
from smoothcert.plans.machine import Case
from smoothcert.plans.one_look import OneLook
from smoothcert.plans.pilot import PilotPlan
from smoothcert.plans.price import Price
from smoothcert.plans.records import Look, Proof, State, Votes

__all__ = [
    "AtRadii",
    "Case",
    "Certificate",
    "Combined",
    "Exact",
    "Fixed",
    "InputSpecific",
    "Look",
    "OneLook",
    "PilotPlan",
    "Plan",
    "Price",
    "Proof",
    "State",
    "Votes",
    "plan_or_default",
]

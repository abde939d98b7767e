"""Plans: how many samples an input gets, and what its votes prove. One file per plan, and one machine for all.

To add one, copy `fixed.py` (or see `examples/own_plan.py` for a plan outside of this package) and list it here.
"""

from smoothcert.plans.at_radii import AtRadii as AtRadii
from smoothcert.plans.base import Plan as Plan
from smoothcert.plans.base import Proof as Proof
from smoothcert.plans.base import Rule as Rule
from smoothcert.plans.betting_radii import BettingRadii as BettingRadii
from smoothcert.plans.certificate import Certificate as Certificate
from smoothcert.plans.combined import Combined as Combined
from smoothcert.plans.exact import Exact as Exact
from smoothcert.plans.fixed import Fixed as Fixed
from smoothcert.plans.follow import Case as Case
from smoothcert.plans.input_specific import InputSpecific as InputSpecific
from smoothcert.plans.input_specific import plan_or_default as plan_or_default
from smoothcert.plans.price import Price as Price
from smoothcert.plans.rules import SingleDraw as SingleDraw
from smoothcert.plans.tally import Tally as Tally
from smoothcert.plans.two_stage import TwoStagePlan as TwoStagePlan
from smoothcert.plans.votes import Look as Look
from smoothcert.plans.votes import Votes as Votes

METHODS = {plan.name: plan for plan in (AtRadii, Exact, Fixed, InputSpecific, Price)}
"""Plans by their names on the command line."""

"""Plans: how many samples an input gets, and what its votes prove. One file per plan, and one `machine` for all.

To add one, copy `fixed.py` (or see `examples/own_plan.py` for a plan outside of this package).
"""

from smoothcert.plans.at_radii import AtRadii as AtRadii
from smoothcert.plans.base import Look as Look
from smoothcert.plans.base import Plan as Plan
from smoothcert.plans.base import Proof as Proof
from smoothcert.plans.base import State as State
from smoothcert.plans.base import Votes as Votes
from smoothcert.plans.certificate import Certificate as Certificate
from smoothcert.plans.combined import Combined as Combined
from smoothcert.plans.exact import Exact as Exact
from smoothcert.plans.fixed import Fixed as Fixed
from smoothcert.plans.input_specific import InputSpecific as InputSpecific
from smoothcert.plans.input_specific import plan_or_default as plan_or_default
from smoothcert.plans.machine import Case as Case
from smoothcert.plans.pilot import OneLook as OneLook
from smoothcert.plans.pilot import PilotPlan as PilotPlan
from smoothcert.plans.price import Price as Price

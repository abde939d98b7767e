"""How many samples an input gets: one file per rule, the common ground in `base`."""

from smoothcert.plans.base import Look, PilotPlan, Plan, Tally
from smoothcert.plans.fixed import Fixed
from smoothcert.plans.input_specific import InputSpecific
from smoothcert.plans.together import Together

__all__ = ["Fixed", "InputSpecific", "Look", "PilotPlan", "Plan", "Tally", "Together"]

"""Functions that live beside plans: one for each kind of plan, and never for a subclass that changes the rule."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import getattr_static
from typing import Any, Generic, TypeVar

from smoothcert.plans.base import Plan

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., Any])

_NO_PART_OF_A_RULE = {"for_noise", "smallest_request"}  # called before the first look; fills batches


class ByRule(Generic[Result]):
    """A function of a plan with other spellings for some kinds of plans.

    What is registered for a class holds for its subclasses only if they keep its rule. A closed form was derived for
    one rule, and another rule may prove too much.

    Args:
        default: What holds for every plan.
    """

    def __init__(self, default: Callable[..., Result]) -> None:
        self._default = default
        self._known: dict[type, Callable[..., Result]] = {}
        self.__doc__ = default.__doc__

    def register(self, kind: type) -> Callable[[Function], Function]:
        """Decorate the function for one kind of plan."""

        def keep(function: Function) -> Function:
            self._known[kind] = function
            return function

        return keep

    def __call__(self, plan: Plan, *args: Any) -> Result:
        return (self.known_for(plan) or self._default)(plan, *args)

    def known_for(self, plan: Plan) -> Callable[..., Result] | None:
        """What is registered for the rule of a plan."""
        kinds = [kind for kind in type(plan).__mro__ if kind in self._known and keeps_rule(type(plan), kind)]
        return self._known[kinds[0]] if kinds else None


@cache
def keeps_rule(cls: type, kind: type) -> bool:
    """Whether a subclass overrides no method and no property of a class, except abstract ones.

    Fields, class variables and names such as `__str__` may differ: they do not change the rule.

    >>> from smoothcert.plans import Fixed, PilotPlan
    >>> keeps_rule(Fixed, PilotPlan)
    True
    """
    own = {name for base in cls.__mro__[: cls.__mro__.index(kind)] for name in vars(base)} - _NO_PART_OF_A_RULE
    overridden = [getattr_static(kind, name, None) for name in own if not name.startswith("__")]
    rules = [member for member in overridden if callable(member) or hasattr(member, "__get__")]
    return all(getattr(member, "__isabstractmethod__", False) for member in rules)

"""The plan that settings describe: one language for Python and the command line."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from smoothcert import _check
from smoothcert._registry import class_named, named_subclasses
from smoothcert._settings import PlanSettings
from smoothcert.errors import InvalidInput, either, setting
from smoothcert.plans import METHODS, AtRadii, Combined, InputSpecific, Plan, Price

PROTOCOLS = {
    "cohen": PlanSettings(
        method="fixed", samples=100_000, pilot=100, pilot_use="fresh", alpha=0.001, bound="binary"
    ),
    "iss": PlanSettings(
        method="input-specific",
        pilot_use="reuse",
        grid="paper",
        reference="ceiling",
        alpha=0.001,
        bound="binary",
    ),
}
"""What was published, by name. Both also have plain Gaussian noise and float32."""

_NOT_OF_A_PLAN = ("method", "protocol", "radii")
"""Settings that choose a plan. Radii are also shown beside a plan that does not decide them."""


def plan_from(settings: PlanSettings, *, budget: bool = False) -> Plan:
    """The plan that settings describe.

    Args:
        settings: The settings.
        budget: Whether a budget will set the price or the ceiling.
    """
    if settings.protocol is not None:
        settings = _of_protocol(settings, budget=budget)
    method = settings.method or _default_method(settings, budget=budget)
    plans = named_subclasses(Plan, METHODS)
    option = either("method", "--method")
    chosen = {name: class_named(option, name, plans) for name in method.split(",")}
    known = {name for cls in chosen.values() for name in _parameters_of(cls)}
    for name in _of_a_plan(settings) - known:
        raise _option_of_another(name, method, plans)
    parts = [_plan(name, cls, settings, budget=budget) for name, cls in chosen.items()]
    return parts[0] if len(parts) == 1 else Combined(tuple(parts))


def _option_of_another(name: str, method: str, plans: Mapping[str, Any]) -> InvalidInput:
    """The error for a setting that no chosen plan knows."""
    owners = [key for key, cls in plans.items() if name in _parameters_of(cls)]
    *most, last = [setting("method", owner) for owner in owners]
    return InvalidInput(
        "option-of-another-method",
        "{given} is for {owners}: leave it out with `method={method}`",
        given=setting(name),
        owners=f"{', '.join(most)} or {last}" if most else last,
        method=method,
        option=name,
    )


def plan_of_version_1(settings: PlanSettings, plan: Plan) -> Plan | None:
    """The plan that version 1 had for the same settings; None if it had this one, or none.

    Without a method, it only showed the radii.
    """
    if settings.method is not None or plan.radii is None or settings.give_up is not None:
        return None
    return plan_from(replace(settings, method=InputSpecific.name))


def shown_radii(radii: Any) -> list[float] | None:
    """Radii to show certified accuracy at, in increasing order; None if none are given."""
    return None if radii is None else sorted(set(_check.radii(radii)))


def _of_protocol(settings: PlanSettings, *, budget: bool) -> PlanSettings:
    """The settings of a protocol, with what it leaves open as given."""
    name = _check.one_of("protocol", settings.protocol, tuple(PROTOCOLS))
    published = PROTOCOLS[name]
    if budget:
        raise contradicts_protocol(name, either("a budget", "--budget and --minutes"))
    for key, value in settings.given.items():
        if key in ("protocol", "radii") or value == vars(published)[key]:
            continue
        if key == "known_labels" or vars(published)[key] is not None:
            raise contradicts_protocol(name, setting(key, value))
    return replace(settings, **published.given, protocol=None)


def contradicts_protocol(protocol: str, given: str) -> InvalidInput:
    """The error for a setting that a protocol does not allow."""
    return InvalidInput(
        "contradicts-protocol",
        "{given} contradicts `protocol={named}`. For another protocol, give its settings instead "
        "and change them: {settings}, `dtype=float32` and, instead of `sigma`, a noise such as "
        "`Gaussian(0.5)|--noise gaussian:0.5`",
        given=given,
        named=protocol,
        settings=", ".join(setting(key, value) for key, value in PROTOCOLS[protocol].given.items()),
        protocol=protocol,
    )


def _default_method(settings: PlanSettings, *, budget: bool) -> str:
    if budget:
        return Price.name
    decides = settings.radii is not None and _parameters_of(AtRadii).keys() >= _of_a_plan(settings)
    return AtRadii.name if decides else InputSpecific.name


def _of_a_plan(settings: PlanSettings) -> set[str]:
    """The names of the given settings that a plan has to know."""
    return settings.given.keys() - set(_NOT_OF_A_PLAN)


def _plan(name: str, cls: Any, settings: PlanSettings, *, budget: bool) -> Plan:
    """One plan, from those of the settings that it knows."""
    parameters = _parameters_of(cls)
    values = {key: value for key, value in settings.given.items() if key in parameters}
    if "pilot" in values:  # a plan takes 0 for its default
        values["pilot"] = _check.whole("pilot", settings.pilot, least=1)
    if budget and "price" in parameters:
        values.setdefault("price", 0.0)
    # A plan has `radii` of None unless it decides them, so they always seem to have a default.
    needed = [key for key, one in parameters.items() if one.default is one.empty or key == "radii"]
    missing = [key for key in needed if key not in values]
    if missing:
        has_option = missing[0] in vars(settings)
        raise InvalidInput(
            "missing-setting",
            "{how}: the plan {method!r} needs {missing}",
            how=f"give {setting(missing[0])}" if has_option else "make the plan in Python",
            method=name,
            missing=", ".join(missing),
        )
    plan: Plan = cls(**values)
    return plan


def _parameters_of(cls: Any) -> dict[str, inspect.Parameter]:
    """The settings of a plan by name."""
    _, *parameters = inspect.signature(cls.__init__).parameters.items()
    return dict(parameters)

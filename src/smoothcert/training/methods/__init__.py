"""Training methods, one file each. To add one, write a frozen dataclass with an `objective` and name it here."""

from __future__ import annotations

from dataclasses import fields

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.training.methods.base import Method, Objective
from smoothcert.training.methods.consistency import Consistency
from smoothcert.training.methods.gaussian import Gaussian
from smoothcert.training.methods.macer import Macer
from smoothcert.training.methods.smoothadv import SmoothAdv

__all__ = ["METHODS", "Consistency", "Gaussian", "Macer", "Method", "Objective", "SmoothAdv", "method_named"]

METHODS: dict[str, type[Method]] = {kind.name: kind for kind in (Gaussian, Consistency, Macer, SmoothAdv)}


def method_named(name: str, *, sigma: float, **constants: float | None) -> Method:
    """A method by name, with its paper's constants where none (None) is given."""
    kind = METHODS[_check.one_of("method", name, tuple(METHODS))]
    given = {key: value for key, value in constants.items() if value is not None}
    known = [field.name for field in fields(kind) if field.name != "sigma"]
    if foreign := [key for key in given if key not in known]:
        raise InvalidInput(f"method {name} has no {', '.join(foreign)}; it has {', '.join(known) or 'no constants'}")
    return kind.published(_check.between("sigma", sigma, 0), **given)

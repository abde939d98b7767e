"""A classifier from the user's own code: `package.module:factory` or `file.py:factory`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from smoothcert._users_code import import_users_module, users_code
from smoothcert.errors import InvalidInput
from smoothcert.models.base import Classifier, Weights, check_classes, fresh_weights
from smoothcert.models.checkpoint import Checkpoint


def load(name: str, *, weights: Weights, classes: int | None) -> Classifier:
    """A classifier from the user's own code; see `Source.load`.

    The name refers to a module, or to a function without arguments that returns one. Instead of a module, it may also
    return a function from batches to logits or labels. If the number of classes is not given, it is the attribute
    `classes` of what is returned, or else the number of its logits. The module stays in the mode in which the function
    returns it.
    """
    name, made = make(name)
    kind = type(made).__name__
    if isinstance(weights, Checkpoint) and not isinstance(made, nn.Module):
        raise InvalidInput(f"{name} returned a {kind}, which cannot take the weights of {weights.path}")
    if isinstance(made, Classifier):
        check_classes(name, made.classes, classes)
        return replace(made, name=name)
    if not callable(made):
        raise InvalidInput(f"{name} returned a {kind}: expected a torch module or a function")
    known = classes or getattr(made, "classes", None)
    return Classifier(module=made, classes=known if isinstance(known, int) else 0, name=name)


def make(spec: str) -> tuple[str, Any]:
    """What a function of the user returns, or a module of the user itself; and its name with a module, not a file."""
    place, _, attribute = spec.rpartition(":")
    module = import_users_module(place)
    name, file = f"{module.__name__}:{attribute}", getattr(module, "__file__", None)
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise InvalidInput(f"{place} ({file or 'built in'}) has no function {attribute!r}")
    with fresh_weights(), users_code(f"calling {name}", near=file):
        return name, factory if isinstance(factory, nn.Module) else factory()

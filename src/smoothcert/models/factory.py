"""A classifier from the user's own code: `package.module:factory` or `file.py:factory`."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import nn

from smoothcert.errors import InvalidInput, SmoothcertError, first_line, place_of
from smoothcert.models.base import Classifier, Weights, checked_classes, fresh_weights
from smoothcert.models.checkpoint import Checkpoint
from smoothcert.models.identity import state_hash


def load(name: str, *, weights: Weights, classes: int | None, sigma: float | None) -> Classifier:
    """A classifier from the user's own code; see `Source.load`.

    The name refers to a module, or to a function without arguments that returns one. Instead of a module, it may also
    return a function from batches to logits or labels. If the number of classes is not given, it is the attribute
    `classes` or `num_classes` of the module, or the width of its last linear layer. The check before a run compares it
    with the output of the module. The module stays in the mode in which the function returns it.
    """
    name = as_module(name)
    made = make(name)
    kind = type(made).__name__
    if isinstance(weights, Checkpoint) and not isinstance(made, nn.Module):
        raise InvalidInput(f"{name} returned a {kind}, which cannot take the weights of {weights.path}")
    if isinstance(made, Classifier):
        return checked_classes(replace(made, name=name), classes)
    if not callable(made):
        raise InvalidInput(f"{name} returned a {kind}: expected a torch module or a function")
    if isinstance(weights, Checkpoint):
        weights.load_into(made, name=name)
    return Classifier(
        module=made,
        classes=classes or _find_classes(made),
        name=name,
        weights_hash=state_hash(made) if isinstance(made, nn.Module) else None,
        trained_sigma=weights.sigma if isinstance(weights, Checkpoint) else None,
    )


def make(name: str) -> Any:
    """What a function of the user returns, or a module of the user itself."""
    name = as_module(name)
    factory = _factory(name)
    if required := _required_arguments(factory):
        raise InvalidInput(f"{name} cannot be called without {', '.join(required)}: name a function without arguments")
    try:
        with fresh_weights():
            return factory if isinstance(factory, nn.Module) else factory()
    except SmoothcertError:
        raise
    except SystemExit as error:
        raise InvalidInput(f"{name} ended the program when called (sys.exit, exit code {error.code})") from error
    except Exception as error:  # a factory may raise any error
        where = place_of(error, near=getattr(sys.modules.get(factory.__module__), "__file__", None))
        raise InvalidInput(f"{name} fails when called ({type(error).__name__}): {first_line(error)}{where}") from error


def as_module(name: str) -> str:
    """The name with a module instead of a file. Python then also looks for modules in the folder of the file."""
    if not _names_file(name):
        return name
    file, _, attribute = name.rpartition(":")
    path = Path(file)
    path = path if path.suffix == ".py" else path.with_name(f"{path.name}.py")
    if not path.is_file():
        raise InvalidInput(f"no file {path} for {name!r}")
    if not path.stem.isidentifier():
        raise InvalidInput(f"{path} cannot be imported: its name must be letters, digits and underscores")
    if (folder := str(path.parent.resolve())) not in sys.path:
        sys.path.insert(0, folder)
    return f"{path.stem}:{attribute}"


def _names_file(name: str) -> bool:
    """Whether a name is that of a file and a function in it, as in "models/own.py:network"."""
    path = Path(file := name.rpartition(":")[0])
    return path.suffix == ".py" or path.name != file


def _factory(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:  # an installed command does not search the current folder by default
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise _failed_import(module_name, name, error) from error
        raise InvalidInput(f"cannot import {module_name!r} of {name!r}: no such module, not even in {here}") from None
    except SmoothcertError:
        raise
    except SystemExit as error:  # as from argparse, which does not know our options
        raise InvalidInput(
            f"importing {module_name!r} of {name!r} ended the program (exit code {error.code}): put what a script does "
            'below if __name__ == "__main__":'
        ) from error
    except Exception as error:  # the user's module may raise any error
        raise _failed_import(module_name, name, error) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        file = getattr(module, "__file__", "built in")
        raise InvalidInput(f"{module_name} ({file}) has no function {attribute!r}")
    return factory


def _failed_import(module_name: str, name: str, error: Exception) -> InvalidInput:
    """The error for a module of the user that exists but fails when it is imported."""
    spec = find_spec(module_name) if "." not in module_name else None
    where = place_of(error, near=None if spec is None else spec.origin)
    reason = error.msg if isinstance(error, SyntaxError) else first_line(error)
    return InvalidInput(f"cannot import {module_name!r} of {name!r}: {type(error).__name__}: {reason}{where}")


def _required_arguments(factory: Any) -> list[str]:
    """The arguments without a default."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # some functions in C have no signature
        return []
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _find_classes(made: Any) -> int:
    """The number of classes from an attribute or from the last linear layer; 0 if there is neither."""
    for attribute in ("classes", "num_classes"):
        if isinstance(value := getattr(made, attribute, None), int):
            return value
    layers = list(made.modules()) if isinstance(made, nn.Module) else []
    return next((layer.out_features for layer in reversed(layers) if isinstance(layer, nn.Linear)), 0)

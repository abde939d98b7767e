"""A classifier from the user's own code: `package.module:factory` or `file.py:factory`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import nn

from smoothcert.errors import InvalidInput, SmoothcertError, first_line, place_of
from smoothcert.models.base import Classifier, Weights, check_classes, fresh_weights
from smoothcert.models.checkpoint import Checkpoint


def load(name: str, *, weights: Weights, classes: int | None) -> Classifier:
    """A classifier from the user's own code; see `Source.load`.

    The name refers to a module, or to a function without arguments that returns one. Instead of a module, it may also
    return a function from batches to logits or labels. If the number of classes is not given, it is the attribute
    `classes` of what is returned, or else the number of its logits. The module stays in the mode in which the function
    returns it.
    """
    name = as_module(name)
    made = make(name)
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


def make(name: str) -> Any:
    """What a function of the user returns, or a module of the user itself."""
    name = as_module(name)
    factory = _factory(name)
    if required := _required_arguments(factory):
        raise InvalidInput(f"{name} cannot be called without {', '.join(required)}: name a function without arguments")
    file = getattr(sys.modules.get(factory.__module__), "__file__", None)
    with fresh_weights(), _reported(f"calling {name}", near=file):
        return factory if isinstance(factory, nn.Module) else factory()


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
    spec = None if "." in module_name else find_spec(module_name)
    with _reported(f"importing {module_name!r} of {name!r}", near=None if spec is None else spec.origin):
        try:
            module = import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise
            raise InvalidInput(
                f"cannot import {module_name!r} of {name!r}: no such module, not even in {here}"
            ) from None
    factory = getattr(module, attribute, None)
    if not callable(factory):
        file = getattr(module, "__file__", "built in")
        raise InvalidInput(f"{module_name} ({file}) has no function {attribute!r}")
    return factory


@contextmanager
def _reported(doing: str, *, near: str | None) -> Iterator[None]:
    """In this context, an error in code of the user is one sentence with its place, preferably in the file `near`."""
    try:
        yield
    except SmoothcertError:
        raise
    except SystemExit as error:  # as from argparse, which does not know our options
        raise InvalidInput(
            f"{doing} ended the program (exit code {error.code}): put what a script does below "
            'if __name__ == "__main__":'
        ) from error
    except Exception as error:  # code of the user may raise any error
        reason = error.msg if isinstance(error, SyntaxError) else first_line(error)
        raise InvalidInput(f"{doing} fails: {type(error).__name__}: {reason}{place_of(error, near=near)}") from error


def _required_arguments(factory: Any) -> list[str]:
    """The arguments without a default."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # some functions in C have no signature
        return []
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]

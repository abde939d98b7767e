"""Plans and noises as plain dictionaries, and back: what a manifest records about them.

A built-in class is recorded by its name and its fields. A class from a user's own file also records the module that
defines it. When a run is read, only modules that are imported already are searched for the class. A run folder may come
from a stranger, so it never makes us import a module. The file is recorded for the error message only.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from smoothcert.errors import InvalidInput, SmoothcertError, either, first_line, place_of

_PACKAGE = __name__.partition(".")[0]
_SIMPLE = (bool, int, float, str, type(None))
LATER = {"recorded": "if used"}
"""Metadata of a field that came later: it is recorded only if it is used, so that the records of others stay as they
were."""

Configuration = TypeVar("Configuration", bound="Recorded")


class Recorded:
    """Base of everything that a manifest records: frozen dataclasses whose subclasses register themselves."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _REGISTERED[home(cls), cls.__name__] = cls


_REGISTERED: dict[tuple[str | None, str], type[Recorded]] = {}


def describe(config: Recorded) -> dict[str, Any]:
    """A plan or noise as a dictionary that JSON can hold; `restore` is the inverse.

    Raises:
        InvalidInput: It is not a dataclass, or a field holds something that JSON cannot.
    """
    cls = type(config)
    if not is_dataclass(config):
        raise InvalidInput(f"{cls.__name__} cannot be recorded: make it a frozen dataclass (@dataclass(frozen=True))")
    if "<locals>" in cls.__qualname__:
        raise InvalidInput(f"{cls.__name__} is defined inside a function, so no run can name it: move it out of it")
    module = home(cls)
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    origin = {} if module is None else {"module": module, "file": file}
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    unused = {f.name for f in fields(config) if f.metadata == LATER and values[f.name] == f.default}
    settings = {name: _plain(cls, name, value) for name, value in values.items() if name not in unused}
    return {"name": cls.__name__} | origin | settings


def restore(description: Mapping[str, Any] | None) -> Any:
    """The plan or noise that `describe` described; None stays None.

    >>> import smoothcert.noises  # classes register when they are imported
    >>> restore({"name": "Gaussian", "sigma": 0.5})
    Gaussian(sigma=0.5)
    """
    if description is None:
        return None
    settings = dict(description)
    name, module, file = (settings.pop(key, None) for key in ("name", "module", "file"))
    cls = _find(str(name), module, file)
    values = {key: _restored(value) for key, value in settings.items()}
    try:
        return cls(**values)
    except TypeError as error:
        raise InvalidInput(f"the settings of {name} were written by another version: {error}") from None


def check_recordable(config: Recorded) -> None:
    """Raise, before anything is written, if a run could not be read again because of this plan or noise."""
    if restore(describe(config)) != config:
        raise InvalidInput(f"{config!r} does not come back from its own record: its fields must determine it")


@contextmanager
def naming_users_code() -> Iterator[None]:
    """In this context, an error in a plan or noise of the user is reported with its class and method."""
    try:
        yield
    except SmoothcertError:
        raise
    except Exception as error:  # code of the user may raise any error
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        theirs = [frame for frame in frames if frame.f_globals.get("__name__", "").partition(".")[0] != _PACKAGE]
        methods = [frame for frame in theirs if isinstance(frame.f_locals.get("self"), Recorded)]
        if not methods:
            raise
        cls, code = type(methods[-1].f_locals["self"]), methods[-1].f_code
        raise InvalidInput(
            f"{cls.__name__}.{code.co_name} fails ({type(error).__name__}): {first_line(error)}"
            f"{place_of(error, near=code.co_filename)}"
        ) from error


def home(cls: type) -> str | None:
    """The module that defines a user's class, under the name by which others can import it; None for our own."""
    if cls.__module__.partition(".")[0] == _PACKAGE:
        return None
    if cls.__module__ != "__main__":
        return cls.__module__
    file = getattr(sys.modules["__main__"], "__file__", None)
    return Path(file).stem if file else "__main__"


def _find(name: str, module: str | None, file: str | None) -> type[Recorded]:
    if (module, name) in _REGISTERED:
        return _REGISTERED[module, name]
    known = sorted(other for home, other in _REGISTERED if home == module)
    if not known:
        where = f"module {module!r}" + (f" ({file})" if file else "")
        raise InvalidInput(
            f"{name} is defined in {where}, and code that a run names is not executed: import it "
            f"{either('first', 'with smoothcert --import FILE')}"
        )
    where = "this version of smoothcert" if module is None else f"module {module!r}"
    raise InvalidInput(f"there is no plan or noise {name!r} in {where}; it has {', '.join(known)}")


def _plain(cls: type, field: str, value: Any) -> Any:
    if isinstance(value, Recorded):
        return describe(value)
    if isinstance(value, (tuple, list)):
        return [_plain(cls, field, part) for part in value]
    if isinstance(value, _SIMPLE):
        return value
    raise InvalidInput(
        f"{cls.__name__}.{field} cannot be recorded: fields may be numbers, strings, None, plans, noises and tuples of "
        f"these, got {type(value).__name__}"
    )


def _restored(value: Any) -> Any:
    if isinstance(value, Mapping):
        return restore(value)
    return tuple(_restored(part) for part in value) if isinstance(value, list) else value

"""Plans and noises as plain dictionaries, and back: what a manifest records about them, and how two records differ.

A built-in class is recorded by its name and its fields. A class from a user's own file also records the module that
defines it. When a run is read, only modules that are imported already are searched for the class. A run folder may come
from a stranger, so it never makes us import a module. The file is recorded for the error message only.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from smoothcert.errors import InvalidInput, either, setting

_PACKAGE = __name__.partition(".")[0]
_LONGEST = 120
"""Characters of a value that a message shows."""
_SIMPLE = (bool, int, float, str, type(None))
LATER = {"recorded": "if used"}
"""Metadata of a field that came later: it is recorded only if it is used, so that the records of others stay as they
were."""

Configuration = TypeVar("Configuration", bound="Recorded")


class Recorded:
    """Base of everything that a manifest records: frozen dataclasses whose subclasses register themselves."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _REGISTERED[defining_module(cls), cls.__name__] = cls


_REGISTERED: dict[tuple[str | None, str], type[Recorded]] = {}

_FORMER: dict[str, tuple[str, dict[str, str | None]]] = {
    "OneLook": ("SingleDraw", {"pilot": "samples", "alpha": None}),
}
"""Built-in classes of runs of version 1: their name now, and their fields by former name, None for one that is gone."""


def describe(config: Recorded) -> dict[str, Any]:
    """A plan or noise as a dictionary that JSON can hold; `restore` is the inverse.

    Raises:
        InvalidInput: It is not a dataclass, or a field holds something that JSON cannot.
    """
    cls = type(config)
    if not is_dataclass(config):
        raise InvalidInput(
            f"{cls.__name__} cannot be recorded: make it a frozen dataclass (@dataclass(frozen=True))"
        )
    if "<locals>" in cls.__qualname__:
        raise InvalidInput(
            f"{cls.__name__} is defined inside a function, so no run can name it: move it out of it"
        )
    module = defining_module(cls)
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    origin = {} if module is None else {"module": module, "file": file}
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    unused = {f.name for f in fields(config) if f.metadata == LATER and values[f.name] == f.default}
    settings = {
        name: _plain(cls, name, value) for name, value in values.items() if name not in unused
    }
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
    if module is None and name in _FORMER:
        name, renamed = _FORMER[name]
        now = {key: renamed.get(key, key) for key in settings}
        settings = {new: settings[key] for key, new in now.items() if new is not None}
    cls = _find(str(name), module, file)
    values = {key: _restored(value) for key, value in settings.items()}
    try:
        return cls(**values)
    except TypeError as error:
        raise InvalidInput(
            f"the settings of {name} were written by another version: {error}"
        ) from None


def check_recordable(config: Recorded) -> None:
    """Raise, before anything is written, if a run could not be read again because of this plan or noise."""
    if restore(describe(config)) != config:
        raise InvalidInput(
            f"{config!r} does not come back from its own record: its fields must determine it"
        )


def check_settings(folder: object, differing: Sequence[str], *, what: str, hint: str = "") -> None:
    """Refuse to mix two configurations in one folder; the error names every setting that differs."""
    if differing:
        found = "; ".join(differing)
        raise InvalidInput(
            f"{folder} holds another {what}: it differs in {found}{hint}; choose another {setting('out', 'DIR')}"
        )


def differences(there: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What differs, down to the setting: `plan.decline` rather than the whole plan.

    >>> differences({"noise": {"name": "Gaussian", "sigma": 0.25}}, {"noise": {"name": "Gaussian", "sigma": 0.5}})
    ['noise.sigma (there 0.25, now 0.5)']
    """
    found: list[str] = []
    for key in {**now, **there}:
        a, b = there.get(key), now.get(key)
        if a == b:
            continue
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if a.get("name") != b.get("name"):  # of another kind, which has other settings
                a, b = (
                    {k: v for k, v in one.items() if k in other} for one, other in ((a, b), (b, a))
                )
            found += differences(a, b, f"{prefix}{key}.")
            continue
        found.append(f"{prefix}{key} (there {_shown(a)}, now {_shown(b)})")
    return found


def defining_module(cls: type) -> str | None:
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
    known = sorted(other for place, other in _REGISTERED if place == module)
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


def _shown(value: Any) -> str:
    text = "the default" if value is None else str(value)
    if len(text) == 64 and " " not in text:  # a hash
        return f"{text[:8]}..."
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."

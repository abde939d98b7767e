"""Plans and noises as plain dictionaries, and back; and how two records differ.

A built-in class is recorded by its name and its fields. A class from a user's own file also records
the module that defines it. When a run is read, only modules that are imported already are searched
for the class. A run folder may come from a stranger, so it never makes us import a module. The file
is recorded for the error message only.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from smoothcert.errors import InvalidInput, did_you_mean

_PACKAGE = __name__.partition(".")[0]
_LONGEST = 120
"""Characters of a value that a message shows."""
_SIMPLE = (bool, int, float, str, type(None))
LATER = {"recorded": "if used"}
"""Metadata of a field that came later. It is recorded only if it differs from its default, so that
the records of plans that do not use it stay as they were."""


def formerly(value: Any) -> dict[str, Any]:
    """Metadata of a field that came later, and whose default is new.

    It is recorded only if it differs from this value, which records without the field stand for.

    Args:
        value: What plans did before the field existed.
    """
    return {"formerly": value}


Configuration = TypeVar("Configuration", bound="Recorded")


class Recorded:
    """Base of what a manifest records: frozen dataclasses, which register themselves here."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _REGISTERED[defining_module(cls), cls.__name__] = cls


_REGISTERED: dict[tuple[str | None, str], type[Recorded]] = {}

_FORMER: dict[str, tuple[str, dict[str, str | None]]] = {
    "OneLook": ("SingleDraw", {"pilot": "samples", "alpha": None}),
}
"""Built-in classes of runs of version 1: their name now, and their fields by former name, where
None stands for a field that is gone."""


def describe(config: Recorded) -> dict[str, Any]:
    """A plan or noise as a dictionary that JSON can hold; `restore` is the inverse.

    Raises:
        InvalidInput: It is not a dataclass, or a field holds something that JSON cannot.
    """
    cls = type(config)
    if not is_dataclass(config):
        raise InvalidInput(
            "not-dataclass",
            "{kind} cannot be recorded: make it a frozen dataclass (@dataclass(frozen=True))",
            kind=cls.__name__,
        )
    if "<locals>" in cls.__qualname__:
        raise InvalidInput(
            "local-class",
            "{kind} is defined inside a function, so no run can name it: move it out of it",
            kind=cls.__name__,
        )
    record: dict[str, Any] = {"name": cls.__name__}
    module = defining_module(cls)
    if module is not None:
        record["module"] = module
        record["file"] = getattr(sys.modules.get(cls.__module__), "__file__", None)
    for field in fields(config):
        value = getattr(config, field.name)
        unused = field.metadata == LATER and value == field.default
        if not unused and field.metadata != formerly(value):
            record[field.name] = _plain(cls, field.name, value)
    return record


def restore(description: Mapping[str, Any] | None) -> Any:
    """The plan or noise that `describe` described; None stays None.

    >>> import smoothcert.noises  # classes register when they are imported
    >>> restore({"name": "Gaussian", "sigma": 0.5})
    Gaussian(sigma=0.5)
    """
    if description is None:
        return None
    settings = dict(description)
    name = str(settings.pop("name", None))
    module = settings.pop("module", None)
    file = settings.pop("file", None)
    if module is None and name in _FORMER:
        name, renamed = _FORMER[name]
        now = {key: renamed.get(key, key) for key in settings}
        settings = {new: settings[key] for key, new in now.items() if new is not None}
    cls = _find(name, module, file)
    values = {
        field.name: field.metadata["formerly"]
        for field in fields(cls)  # type: ignore[arg-type]
        if "formerly" in field.metadata
    }
    values |= {key: _restored(value) for key, value in settings.items()}
    try:
        return cls(**values)
    except TypeError as error:
        raise InvalidInput(
            "other-configuration",
            "the settings of {name} were written by another version: {error}",
            name=name,
            error=str(error),
        ) from None


def check_recordable(config: Recorded) -> None:
    """Refuse a plan or noise because of which a run could not be read again."""
    if restore(describe(config)) != config:
        raise InvalidInput(
            "not-recordable",
            "{config!r} does not come back from its own record: its fields must determine it",
            config=config,
        )


def check_settings(folder: object, differing: Sequence[str], *, what: str, hint: str = "") -> None:
    """Refuse to mix two configurations in one folder; name every setting that differs."""
    if differing:
        raise InvalidInput(
            "other-configuration",
            "{folder} holds another {what}: it differs in {differing}{hint}; choose another "
            "`out=DIR`",
            folder=folder,
            what=what,
            differing="; ".join(differing),
            names=[difference.partition(" (")[0] for difference in differing],
            hint=hint,
        )


def differences(there: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What differs, down to the setting: `plan.decline` rather than the whole plan.

    >>> there = {"noise": {"name": "Gaussian", "sigma": 0.25}}
    >>> differences(there, {"noise": {"name": "Gaussian", "sigma": 0.5}})
    ['noise.sigma (there 0.25, now 0.5)']
    """
    different: list[str] = []
    for key in {**now, **there}:
        a = there.get(key)
        b = now.get(key)
        if a == b:
            continue
        if not isinstance(a, Mapping) or not isinstance(b, Mapping):
            different.append(f"{prefix}{key} (there {_shown(a)}, now {_shown(b)})")
            continue
        if a.get("name") != b.get("name"):  # another class: compare the settings that both have
            common = a.keys() & b.keys()
            a = {name: value for name, value in a.items() if name in common}
            b = {name: value for name, value in b.items() if name in common}
        different += differences(a, b, f"{prefix}{key}.")
    return different


def defining_module(cls: type) -> str | None:
    """The module that defines a user's class, by the name to import it; None for our classes."""
    if cls.__module__.partition(".")[0] == _PACKAGE:
        return None
    if cls.__module__ != "__main__":
        return cls.__module__
    file = getattr(sys.modules["__main__"], "__file__", None)
    return Path(file).stem if file else "__main__"


def offered_subclasses(cls: Any) -> list[Any]:
    """All public subclasses: ours that are complete, and all of the user's."""
    below = [found for sub in cls.__subclasses__() for found in (*offered_subclasses(sub), sub)]
    return [sub for sub in below if not sub.__name__.startswith("_") and _is_offered(sub)]


def _is_offered(cls: Any) -> bool:
    return defining_module(cls) is not None or not inspect.isabstract(cls)


def named_subclasses(cls: Any, ours: Mapping[str, Any]) -> dict[str, Any]:
    """Our subclasses, and those in code of the user that have a name of their own, by name."""
    users = [sub for sub in offered_subclasses(cls) if defining_module(sub) is not None]
    named = [(sub.name, sub) for sub in users if isinstance(vars(sub).get("name"), str)]
    return by_name([*ours.items(), *named])


def by_name(classes: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Classes by their names. No class of the user may have the name of one of ours."""
    named: dict[str, Any] = {}
    for name, cls in classes:
        of_user = [one for one in (cls, named.get(name, cls)) if defining_module(one) is not None]
        if name in named and len(of_user) == 1:
            raise InvalidInput(
                "name-taken",
                "{kind} of module {module} has the name {name!r} of a built-in one: give it "
                "another name",
                kind=of_user[0].__name__,
                module=of_user[0].__module__,
                name=name,
            )
        named[name] = cls
    return named


def class_named(option: str, name: str, classes: Mapping[str, Any]) -> Any:
    """The class that the user names, after a check that it can be used.

    Args:
        option: The option with which it is named.
        name: Its name.
        classes: The classes by name.
    """
    if name not in classes:
        raise InvalidInput(
            "unknown-name",
            "{option} must be one of {names}, got {value!r}{hint}",
            option=option,
            names=", ".join(sorted(classes)),
            value=name,
            hint=did_you_mean(name, classes),
        )
    cls = classes[name]
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        raise InvalidInput(
            "incomplete-class",
            "{name} of module {module} cannot be used: it does not define {missing}",
            name=cls.__name__,
            module=cls.__module__,
            missing=" and ".join(missing),
        )
    if not is_dataclass(cls):
        raise InvalidInput(
            "not-a-dataclass",
            "{name} cannot be used: make it a frozen dataclass (@dataclass(frozen=True))",
            name=cls.__name__,
        )
    return cls


def from_text(
    option: str, text: str, classes: Mapping[str, Any], *given: Any, example: str = "0.5"
) -> Any:
    """An object that a text describes by a name and numbers, as in gaussian:0.5.

    Args:
        option: The option that has the text.
        text: The text.
        classes: The classes by name.
        *given: Arguments that stand before the numbers.
        example: A number, for messages.
    """
    name, _, numbers = text.partition(":")
    kind = class_named(option, name, classes)
    try:
        return kind(*given, *map(float, filter(None, numbers.split(","))))
    except InvalidInput:
        raise
    except (TypeError, ValueError):
        raise InvalidInput(
            "unfit-numbers",
            "{option} {text}: write the numbers that {name} takes after a colon, as in "
            "{name}:{example}",
            option=option,
            text=text,
            name=name,
            example=example,
        ) from None


def _find(name: str, module: str | None, file: str | None) -> type[Recorded]:
    if (module, name) in _REGISTERED:
        return _REGISTERED[module, name]
    known = sorted(other for place, other in _REGISTERED if place == module)
    if not known:
        raise InvalidInput(
            "not-imported",
            "{name} is defined in module {module!r}{file}, and code that a run names is not "
            "executed: import it `first|with smoothcert --import FILE`",
            name=name,
            module=module,
            file=f" ({file})" if file else "",
        )
    raise InvalidInput(
        "unknown-class",
        "there is no plan or noise {name!r} in {where}; it has {known}",
        name=name,
        where="this version of smoothcert" if module is None else f"module {module!r}",
        known=", ".join(known),
    )


def _plain(cls: type, field: str, value: Any) -> Any:
    if isinstance(value, Recorded):
        return describe(value)
    if isinstance(value, (tuple, list)):
        return [_plain(cls, field, part) for part in value]
    if isinstance(value, _SIMPLE):
        return value
    raise InvalidInput(
        "field-not-recordable",
        "{kind}.{field} cannot be recorded: fields may be numbers, strings, None, plans, noises "
        "and tuples of these, got {type}",
        kind=cls.__name__,
        field=field,
        type=type(value).__name__,
    )


def _restored(value: Any) -> Any:
    if isinstance(value, Mapping):
        return restore(value)
    if isinstance(value, list):
        return tuple(_restored(part) for part in value)
    return value


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value.get("name", dict(value))
    text = "the default" if value is None else str(value)
    if len(text) == 64 and " " not in text:  # a hash
        return f"{text[:8]}..."
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."

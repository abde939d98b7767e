"""Files of groups: levels from coarse to fine, in TOML.

Each table is a level, from coarse to fine, and each entry a group with its
classes, by name or by number:

    [kind]
    vehicle = ["airplane", "automobile", "ship", "truck"]
    animal = "2-7"                        # numbers and ranges in one text

    [group]
    "cat or dog" = ["cat", "dog"]         # a class in no group of a level is a group of its own
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from smoothcert import _check
from smoothcert.errors import InvalidInput, did_you_mean
from smoothcert.plans.groups import Groups

CLASS_LEVEL = "class"
"""The title of the level where each class is a group of its own."""
GroupsSource: TypeAlias = str | Path | Mapping[str, Any]
"""A file, as in "groups.toml" or "groups.toml:kind", or what such a file holds."""


def read_levels(
    source: GroupsSource, classes: int, class_names: Sequence[str] | None
) -> list[Groups]:
    """The levels of a file of groups, from coarse to fine.

    Args:
        source: The file or its content. "groups.toml:kind" takes one level.
        classes: The number of classes.
        class_names: Their names, if they are known.
    """
    content, where, chosen = _content(source)
    if not any(isinstance(part, Mapping) for part in content.values()):
        content = {"group": content}  # a single level needs no table
    levels = [_level(title, part, classes, class_names, where) for title, part in content.items()]
    if chosen is not None:
        levels = [level for level in levels if level.title == chosen]
    if not levels:
        raise InvalidInput(
            "no-level",
            "{where} has no level {chosen}: it has {titles}",
            where=where,
            chosen="" if chosen is None else repr(chosen),
            titles=", ".join(content) or "none",
        )
    for coarse, fine in pairwise(levels):
        _check_nested(coarse, fine, where)
    return levels


def read_level(source: GroupsSource, classes: int, class_names: Sequence[str] | None) -> Groups:
    """The only level of a file of groups, or the one that is chosen as in "groups.toml:kind"."""
    levels = read_levels(source, classes, class_names)
    if len(levels) > 1:
        raise InvalidInput(
            "several-levels",
            "{source} has the levels {titles}: choose one, as in {example}, or ask a run about "
            "all of them with `finest=True`",
            source=source,
            titles=", ".join(level.title for level in levels),
            example=f"{source}:{levels[0].title}",
        )
    return levels[0]


def as_text(source: GroupsSource) -> str:
    """A source as the text that a setting holds: the name of a file, or its content in JSON."""
    return json.dumps(source) if isinstance(source, Mapping) else str(source)


def _content(source: GroupsSource) -> tuple[Mapping[str, Any], str, str | None]:
    """The content of a source, what to call it, and the level that is chosen; None for all."""
    if isinstance(source, Mapping):
        return source, "groups", None
    text = str(source)
    place, _, chosen = text.partition(".toml:")
    path = Path(f"{place}.toml" if chosen else text)
    try:
        if text.startswith("{"):
            return json.loads(text), "groups", None
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(
            "unreadable-groups",
            "cannot read groups from {path}: {why}",
            path=path,
            why=getattr(error, "strerror", None) or error,
        ) from None
    return content, str(path), chosen or None


def _level(
    title: str, part: Any, classes: int, class_names: Sequence[str] | None, where: str
) -> Groups:
    """One level of a file."""
    if not isinstance(part, Mapping) or not part:
        raise InvalidInput(
            "not-a-level",
            '{where}: the level {title!r} must hold groups, as in animal = ["cat", "dog"]',
            where=where,
            title=title,
        )
    members = {
        name: _members(listed, classes, class_names, f"{where}: the group {name!r}")
        for name, listed in part.items()
    }
    counts = Counter(c for chosen in members.values() for c in chosen)
    for c, count in counts.items():
        if count > 1:
            raise InvalidInput(
                "class-in-two-groups",
                "{where}: class {number} is in two groups of the level {title!r}",
                where=where,
                number=c,
                title=title,
            )
    level = Groups.of_members(title, members, classes, class_names)
    if level.count == 1:
        raise InvalidInput(
            "one-group",
            "{where}: the level {title!r} has all classes in one group, so every answer is right: "
            "give at least two groups",
            where=where,
            title=title,
        )
    return level


def _members(
    members: Any, classes: int, class_names: Sequence[str] | None, which: str
) -> list[int]:
    """The classes of one group: names, numbers and ranges, in a list or in one text."""
    listed = members.split(",") if isinstance(members, str) else members
    if not isinstance(listed, Sequence) or not listed:
        raise InvalidInput(
            "no-members",
            '{which} must list classes, as in ["cat", 5, "10-20"], got {members!r}',
            which=which,
            members=members,
        )
    known = {name: c for c, name in enumerate(class_names or ())}
    chosen: list[int] = []
    for member in listed:
        name = str(member).strip()
        span = [known[name]] if name in known else _check.span(name)
        if not span or span[-1] >= classes:
            raise _unknown_class(name, known, classes, which)
        chosen += span
    return chosen


def _unknown_class(name: str, known: Mapping[str, int], classes: int, which: str) -> InvalidInput:
    hint = did_you_mean(name, known)
    if not known:
        hint = ", and the names of the classes are not known"
    return InvalidInput(
        "unknown-class",
        "{which}: there is no class {name!r} among the classes 0 to {last}{hint}",
        which=which,
        name=name,
        last=classes - 1,
        hint=hint,
    )


def _check_nested(coarse: Groups, fine: Groups, where: str) -> None:
    """Refuse a group of the finer level that lies in two groups of the coarser one."""
    above: dict[int, int] = {}
    for outer, inner in zip(coarse.of, fine.of, strict=True):
        if above.setdefault(inner, outer) != outer:
            raise InvalidInput(
                "levels-not-nested",
                "{where}: {group!r} of the level {fine!r} lies in two groups of {coarse!r}; levels "
                "go from coarse to fine",
                where=where,
                group=fine.names[inner],
                fine=fine.title,
                coarse=coarse.title,
            )

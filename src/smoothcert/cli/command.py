"""How a function becomes a command: its signature gives names, types and defaults, and its docstring gives the help.

A command that returns an `Output` has the option --json, and prints what it returns.

Parameters before `*` become arguments, the others become options. A parameter whose type is a `Group` stands for the
fields of that class. In a docstring, a section with another title than "Args" is a panel of the help. What is not said
there, such as the name of a placeholder, stands in an annotation with `typer.Option`.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, fields
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import typer

_SECTION = re.compile(r"^([A-Z][\w ]*):\n(?= {4}\w+: )", re.M)
_JSON = inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False)
_ENTRY = re.compile(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", re.M)


@dataclass(frozen=True)
class Group:
    """Base of the classes whose fields are options of several commands."""

    def settings(self) -> dict[str, Any]:
        """The options by name."""
        return dict(vars(self))


class Table(NamedTuple):
    """A table. The first column is aligned to the left, all others to the right."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    caption: str | None = None

    def print(self) -> None:
        """Print the table."""
        from rich import box, console, table

        made = table.Table(title=self.title, caption=self.caption, box=box.SIMPLE_HEAD)
        made.title_justify = made.caption_justify = "left"
        for column in self.columns:
            made.add_column(column, justify="right" if column != self.columns[0] else "left")
        for row in self.rows:
            made.add_row(*row)
        console.Console().print(made)


@dataclass(frozen=True)
class Output:
    """What a command has found, in both forms, and its exit code.

    Args:
        plain: What --json prints, or a function that finds it.
        shown: What is printed otherwise.
        code: The exit code.
    """

    plain: dict[str, Any] | Callable[[], dict[str, Any]]
    shown: Iterable[str | Table]
    code: int = 0

    def print(self, *, as_json: bool) -> None:
        """Print one of the two forms, and end with the exit code."""
        if as_json:
            plain = self.plain() if callable(self.plain) else self.plain
            print(json.dumps(plain, indent=2, allow_nan=False))
        for part in () if as_json else self.shown:
            print(part) if isinstance(part, str) else part.print()
        if self.code:
            raise typer.Exit(self.code)


def add_command(app: typer.Typer, function: Callable[..., Output | None], *, panel: str) -> None:
    """Make a function a command of the application, in a panel of its help."""
    hints = get_type_hints(function)
    groups = {
        key: hint
        for key, hint in hints.items()
        if isinstance(hint, type) and issubclass(hint, Group)
    }
    prints = hints["return"] is Output

    def command(**values: Any) -> None:
        for key, group in groups.items():
            values[key] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        as_json = values.pop("json") if prints else False
        if (found := function(**values)) is not None:
            found.print(as_json=as_json)

    parameters = list(_parameters(function, groups))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    name = function.__name__.rstrip("_")  # `map_` has the name of a builtin
    app.command(
        name, help=_SECTION.split(inspect.getdoc(function) or "")[0], rich_help_panel=panel
    )(command)


def _parameters(
    of: Callable[..., Any], groups: dict[str, type[Group]]
) -> Iterator[inspect.Parameter]:
    """The parameters of a function, or of a group, as typer takes them."""
    hints = get_type_hints(of, include_extras=True)
    parameters = dict(inspect.signature(of).parameters)
    helped = {"json": {"help": "Print JSON instead of a table."}}
    if hints.get("return") is Output:
        parameters["json"], hints["json"] = _JSON, bool
    # A group also has the fields of its base classes, and their docstrings.
    for documented in reversed(of.__mro__) if isinstance(of, type) else [of]:
        helped |= _help_texts(documented.__doc__)
    for name, parameter in parameters.items():
        if name in groups:
            yield from _parameters(groups[name], {})
            continue
        kind, *own = (
            get_args(hints[name]) if hasattr(hints[name], "__metadata__") else (hints[name],)
        )
        flags = [f"--{name.replace('_', '-')}"] if kind is bool else []
        is_option = isinstance(of, type) or parameter.kind is parameter.KEYWORD_ONLY
        info = copy(own[0]) if own else typer.Option(*flags) if is_option else typer.Argument()
        vars(info).update(helped.get(name, {}))
        for number, parser in ((int, _whole), (float, _number)):
            if kind in (number, number | None):
                info.parser, info.metavar = parser, f"<{number.__name__}>"
        yield parameter.replace(
            annotation=Annotated[kind, info], kind=inspect.Parameter.KEYWORD_ONLY
        )


def _help_texts(docstring: str | None) -> dict[str, dict[str, Any]]:
    """The help of each parameter, and its panel: the title of its section."""
    _, *sections = _SECTION.split(inspect.cleandoc(docstring or ""))
    return {
        name: {
            "help": " ".join(text.split()),
            "rich_help_panel": None if title == "Args" else title,
        }
        for title, section in zip(sections[::2], sections[1::2], strict=True)
        for name, text in _ENTRY.findall(section)
    }


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"expected a number, got {text!r}") from None


def _whole(text: str) -> int:
    """A whole number, also in the form 1e4."""
    with suppress(ValueError):
        return int(text)
    if not (number := _number(text)).is_integer():
        raise typer.BadParameter(f"expected a whole number, got {text!r}")
    return int(number)

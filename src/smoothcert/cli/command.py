"""How a function becomes a command.

Its signature gives names, types and defaults, and its docstring gives the help. A command that
returns an `Output` has the option --json, and prints what it returns.

Parameters before `*` become arguments, the others become options. A parameter whose type is a
dataclass stands for its fields. In a docstring, a section with another title than
"Args" is a panel of the help. What is not said there, such as the name of a placeholder, stands in
an annotation with `typer.Option`.

A command with many options shows the most used ones in its help, and all with --help-all.

We read docstrings ourselves, although cyclopts does: machines that certify often have typer alone.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from itertools import chain
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from smoothcert._text_table import TextTable
from smoothcert.cli.options import PANELS

_SECTION = re.compile(r"^([A-Z][\w ]*):\n(?= {4}\w+: )", re.M)
_ENTRY = re.compile(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", re.M)
_FEW_OPTIONS = 16
"""A command with more options has panels in its help."""


@dataclass(frozen=True)
class Output:
    """What a command has found, in both forms, and its exit code.

    Args:
        plain: What --json prints, or what computes it.
        shown: What is printed otherwise.
        code: The exit code.
    """

    plain: dict[str, Any] | Callable[[], dict[str, Any]]
    shown: Iterable[str | TextTable]
    code: int = 0

    def print(self, *, as_json: bool) -> None:
        """Print one of the two forms, and end with the exit code."""
        if as_json:
            plain = self.plain() if callable(self.plain) else self.plain
            print(json.dumps(plain, indent=2, allow_nan=False))
        else:
            for part in self.shown:
                typer.echo(part)
        if self.code:
            raise typer.Exit(self.code)


def add_command(app: typer.Typer, function: Callable[..., Output | None], *, panel: str) -> None:
    """Make a function a command of the application.

    Args:
        app: The application.
        function: The function.
        panel: The panel of the command in the help of the application.
    """
    hints = get_type_hints(function)
    returned = hints.pop("return")
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}

    def command(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        as_json = values.pop("json", False)
        values.pop("help_all", None)
        output = function(**values)
        if output is not None:
            output.print(as_json=as_json)

    parameters = list(_parameters(function, groups))
    if returned is Output:
        parameters.append(_JSON)
    kind: type[TyperCommand] = TyperCommand
    if len(parameters) > _FEW_OPTIONS:
        kind = _CommandWithPanels
        parameters.append(_HELP_ALL)
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    name = function.__name__.rstrip("_")  # `map_` has the name of a builtin
    text = _SECTION.split(inspect.getdoc(function) or "")[0]
    app.command(name, cls=kind, help=text, rich_help_panel=panel)(command)


class _CommandWithPanels(TyperCommand):
    """A command whose help has panels. It shows the most used options, or all."""

    shows_all = False

    def format_help(self, ctx: Any, formatter: Any) -> None:
        places = {
            name: (number, title)
            for number, (title, options) in enumerate(PANELS.items())
            for name in chain(*options)
        }
        hidden = {name for _, others in PANELS.values() for name in others}
        if self.shows_all:
            hidden = set()
        shown = copy(self)
        shown.params = [copy(one) for one in self.params if one.name not in hidden]
        shown.params.sort(key=lambda one: places.get(one.name or "", (-1, ""))[0])
        for one in shown.params:
            if one.name in places:
                vars(one)["rich_help_panel"] = places[one.name][1]
        TyperCommand.format_help(shown, ctx, formatter)


def _show_all(ctx: typer.Context, is_given: bool) -> None:
    """Show the help with all options."""
    if is_given:
        vars(ctx.command)["shows_all"] = True
        print(ctx.get_help())
        raise typer.Exit()


def _flag(name: str, help: str, **options: Any) -> inspect.Parameter:
    """An option that every command of a kind has."""
    flag = typer.Option(f"--{name.replace('_', '-')}", help=help, **options)
    annotation = Annotated[bool, flag]
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=False, annotation=annotation)


_JSON = _flag("json", "Print the results as JSON.")
_HELP_ALL = _flag("help_all", "Show all options and exit.", is_eager=True, callback=_show_all)


def _parameters(of: Callable[..., Any], groups: dict[str, Any]) -> Iterator[inspect.Parameter]:
    """The parameters of a function, or of a group, as typer takes them."""
    hints = get_type_hints(of, include_extras=True)
    documented = _documented(of)
    for name, parameter in inspect.signature(of).parameters.items():
        if name in groups:
            yield from _parameters(groups[name], {})
        else:
            is_option = isinstance(of, type) or parameter.kind is parameter.KEYWORD_ONLY
            yield _for_typer(parameter, hints[name], documented.get(name, {}), is_option=is_option)


def _documented(of: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """By parameter: its help and the panel of the help, from the docstring."""
    documented = {}
    # A group also has the fields of its base classes, and their docstrings.
    for place in reversed(of.__mro__) if isinstance(of, type) else [of]:
        _, *sections = _SECTION.split(inspect.cleandoc(place.__doc__ or ""))
        for title, section in zip(sections[::2], sections[1::2], strict=True):
            panel = None if title == "Args" else title
            for name, text in _ENTRY.findall(section):
                documented[name] = {"help": " ".join(text.split()), "rich_help_panel": panel}
    return documented


def _for_typer(
    parameter: inspect.Parameter, hint: Any, documented: dict[str, Any], *, is_option: bool
) -> inspect.Parameter:
    """A parameter with the annotation that typer reads."""
    kind = hint
    if hasattr(hint, "__metadata__"):
        kind, annotated = get_args(hint)
        info = copy(annotated)
    elif not is_option:
        info = typer.Argument()
    elif kind is bool:
        info = typer.Option(f"--{parameter.name.replace('_', '-')}")  # without --no-
    else:
        info = typer.Option()
    vars(info).update(documented)
    for number, (parser, metavar) in _NUMBERS.items():
        if kind in (number, number | None):
            info.parser = parser
            info.metavar = info.metavar or metavar
    return parameter.replace(annotation=Annotated[kind, info], kind=parameter.KEYWORD_ONLY)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"expected a number, got {text!r}") from None


def _whole(text: str) -> int:
    """A whole number, also in the form 1e4."""
    with suppress(ValueError):
        return int(text)
    number = _number(text)
    if not number.is_integer():
        raise typer.BadParameter(f"expected a whole number, got {text!r}")
    return int(number)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected numbers separated by commas, got {text!r}") from None


_NUMBERS: dict[Any, tuple[Callable[[str], Any], str]] = {
    int: (_whole, "<int>"),
    float: (_number, "<float>"),
    Sequence[float]: (_numbers, "<float,...>"),
}
"""How options with numbers are read, and how the help writes them."""

"""Write the reference of commands and of the Python interface from the source: `make docs`."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from smoothcert.cli import app

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
ROOMS = (
    *("classifiers", "datasets", "training", "executors", "plans"),
    *("bounds", "metrics", "coverage", "replay", "audit", "bench", "figures"),
)
"""Beside the top of the package: what else may be imported, in this order."""
HEAD = "<!-- Written by `make docs` from the source; do not edit. -->"


def pages() -> dict[Path, str]:
    """Every page of the reference, as it should be."""
    return {FOLDER / "commands.md": commands(), FOLDER / "api.md": api()}


def commands() -> str:
    """One section per command, from its function."""
    parts = [HEAD, "# Commands", str(app.info.help), "Every command explains itself with `--help`."]
    for info in app.registered_commands:
        parts += [f"## smoothcert {info.name}", inspect.getdoc(info.callback) or "", *_parameters(info.callback)]
    return "\n\n".join(parts) + "\n"


def _parameters(command: Any) -> Iterator[str]:
    hints = get_type_hints(command, include_extras=True)
    arguments, options = ["| argument | |", "|---|---|"], ["| option | values | default | |", "|---|---|---|---|"]
    for parameter in inspect.signature(command).parameters.values():
        hint, info = get_args(hints[parameter.name])
        text = _cell(info.help)
        if isinstance(info, typer.models.ArgumentInfo):
            many = " ..." if get_origin(hint) is list else ""
            arguments.append(f"| `{info.metavar or parameter.name.upper()}{many}` | {text} |")
            continue
        flag = info.param_decls[0] if info.param_decls else "--" + parameter.name.replace("_", "-")
        default = "" if parameter.default is None or parameter.default is False else f"`{parameter.default}`"
        if parameter.default is parameter.empty:
            default = "required"
        options.append(f"| `{flag}` | {_values(hint)} | {default} | {text} |")
    yield from ("\n".join(table) for table in (arguments, options) if len(table) > 2)


def _values(hint: Any) -> str:
    """What an option takes, in a word or as a choice."""
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(hint))
    return {bool: "", int: "integer", float: "number", str: "text", Path: "path"}[hint]


def api() -> str:
    """The names of `smoothcert`, then those of its rooms."""
    top = import_module("smoothcert")
    parts = [HEAD, "# Python interface", "`import smoothcert as sc`. Everything here is typed; what starts with an"]
    parts[-1] += " underscore, or is not listed, may change without notice."
    seen: set[int] = set()
    for module in (top, *(import_module(f"smoothcert.{room}") for room in ROOMS)):
        shown = [(name, value) for name, value in _public(module) if id(value) not in seen]
        seen.update(id(value) for _, value in shown)
        parts += [f"## {module.__name__}", _markdown(module.__doc__)]
        for name, value in shown:
            parts += _class(name, value) if inspect.isclass(value) else _function(name, value)
    return "\n\n".join(part for part in parts if part) + "\n"


def _public(module: Any) -> list[tuple[str, Any]]:
    """Classes and functions that a module offers: its list, or what it defines itself."""
    listed = getattr(module, "__all__", None)
    names = listed or [
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    ]
    return [
        (name, value)
        for name in names
        if not name.startswith("_") and (inspect.isclass(value := getattr(module, name)) or inspect.isfunction(value))
    ]


def _function(name: str, function: Any) -> list[str]:
    return [f"### {name}", _code(f"{name}{_signature(function)}"), _markdown(function.__doc__)]


def _class(name: str, cls: Any) -> list[str]:
    inherited = {member: owner for owner in reversed(_parents(cls)) for member in vars(owner)}
    explained = _fields(cls)
    members = [f"- `{field}`: {text}" for field, text in explained.items()]
    for member, owner in sorted(inherited.items()):
        value = vars(owner)[member]
        if member.startswith("_") or member in explained:
            continue
        if isinstance(value, property):
            members.append(f"- `{member}`{_sentence(value.fget)}")
        elif isinstance(value, types.FunctionType | classmethod):
            function = getattr(value, "__func__", value)
            members.append(f"- `{member}{_signature(function, method=True)}`{_sentence(function)}")
    own_signature = (cls.__doc__ or "").startswith(f"{name}(")  # what a dataclass without a docstring has there
    built = not inspect.isabstract(cls) and not issubclass(cls, Exception) and not getattr(cls, "_is_protocol", False)
    return [
        f"### {name}",
        _code(f"{name}{_signature(cls)}") if built else "",
        _markdown("" if own_signature else cls.__doc__),
        "\n".join(members),
    ]


def _parents(cls: Any) -> list[Any]:
    return [parent for parent in cls.__mro__ if parent.__module__.startswith("smoothcert")]


def _fields(cls: Any) -> dict[str, str]:
    """Fields that are explained by a string below them, parents' included."""
    found: dict[str, str] = {}
    for parent in reversed(_parents(cls)):
        body = ast.parse(textwrap.dedent(inspect.getsource(parent))).body[0].body  # type: ignore[attr-defined]
        for field, text in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return found


def _signature(of: Any, *, method: bool = False) -> str:
    """As written in the source: annotations without quotes."""
    signature = inspect.signature(of)
    parameters = list(signature.parameters.values())[1 if method else 0 :]
    shown, starred = [], False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not starred:
            shown, starred = [*shown, "*"], True
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        starred = starred or p.kind is p.VAR_POSITIONAL
        annotation = "" if p.annotation is p.empty else f": {_annotation(p.annotation)}"
        default = "" if p.default is p.empty else " = ..." if callable(p.default) else f" = {p.default!r}"
        shown.append(f"{stars}{p.name}{annotation}{default}")
    returns = signature.return_annotation
    arrow = "" if inspect.isclass(of) or returns in (signature.empty, None, "None") else f" -> {_annotation(returns)}"
    return f"({', '.join(shown)}){arrow}"


def _annotation(annotation: Any) -> str:
    text = getattr(annotation, "__forward_arg__", annotation)
    return text if isinstance(text, str) else inspect.formatannotation(text)


def _code(text: str) -> str:
    """A signature, broken over lines where it is long."""
    if len(text) > 100:
        name, _, rest = text.partition("(")
        inside, _, after = rest.rpartition(")")
        text = name + "(\n" + "".join(f"    {part},\n" for part in _split(inside)) + ")" + after
    return f"```\n{text}\n```"


def _split(parameters: str) -> Iterator[str]:
    """At the commas outside of brackets."""
    depth, start = 0, 0
    for i, c in enumerate(parameters):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and not depth:
            yield parameters[start:i].strip()
            start = i + 1
    yield parameters[start:].strip()


def _markdown(docstring: str | None) -> str:
    """A docstring with its examples fenced."""
    paragraphs = inspect.cleandoc(docstring or "").split("\n\n")
    return "\n\n".join(f"```pycon\n{text}\n```" if text.startswith(">>>") else text for text in paragraphs)


def _sentence(function: Any) -> str:
    """The first paragraph of a docstring, after a colon."""
    first = (inspect.getdoc(function) or "").partition("\n\n")[0]
    return f": {' '.join(first.split())}" if first else ""


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(path)

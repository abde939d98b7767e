"""Errors for mistakes of the caller.

Each message is one sentence with the value and what is allowed.
"""

from __future__ import annotations

import ast
import contextlib
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

_OPEN, _BETWEEN, _CLOSE = "\ue000", "\ue001", "\ue002"
"""Characters for private use. They mark what Python and the command line phrase differently."""
_NOT_OF_THE_USER = (str(Path(__file__).parent), contextlib.__file__, "<")
"""How the names of files begin that stand between the user's line and a warning."""
_PARAMETER = re.compile(r"`(\w+)(?:=([^`|]*))?`")
_TWO_FORMS = re.compile(r"`([^`|]+)\|([^`|]+)`")
_EITHER = re.compile(f"{_OPEN}(.*?){_BETWEEN}(.*?){_CLOSE}", re.S)


def either(python: str, command: str) -> str:
    """A part of a message in the words of Python and in those of the command line."""
    return f"{_OPEN}{python}{_BETWEEN}{command}{_CLOSE}"


def setting(name: str, value: object = "") -> str:
    """A parameter in a message: `out=DIR` in Python, `--out DIR` on the command line."""
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, str):
        plain = not value or value.isupper()  # DIR stands for the user's own value
        return either(
            f"{name}={value}" if plain else f'{name}="{value}"', f"{flag} {value}".rstrip()
        )
    if value is True:
        return either(f"{name}=True", flag)
    listed = value
    if isinstance(value, (list, tuple)):
        listed = ",".join(f"{x:g}" if isinstance(x, float) else str(x) for x in value)
    return either(f"{name}={value}", f"{flag} {listed}")


def phrase(message: str, *, command: bool = False) -> str:
    """A message in the words of Python, or in those of the command line."""
    return _EITHER.sub(r"\2" if command else r"\1", message)


class _Phrased(Exception):
    """Base of errors and warnings for the user: a code, one sentence, and the values in it.

    Programs and tests tell errors apart by `code` and `fields`, so that every sentence can be
    improved. The sentence is a template: `InvalidInput("too-small", "{name} must be at least
    {least}", name="samples", least=10)`. It names parameters between backquotes, as in `out=DIR` or
    `batch={least}`, where braces name a field; see `setting`. Between backquotes may also stand
    other words for Python and for the command line, with a bar in between; see `either`.

    Args:
        code: What is wrong, in a word or two.
        sentence: The sentence, with the names of fields in braces.
        **fields: The values.
    """

    def __init__(self, code: str, sentence: str | None = None, /, **fields: Any) -> None:
        if sentence is None:
            code, sentence = "", code
        super().__init__(code, sentence)
        self.code = code
        self.sentence = sentence
        self.fields = fields

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.code, self.sentence, self.fields)

    @property
    def message(self) -> str:
        """The sentence with its values, whose parameters are still marked for `phrase`."""
        if not self.code:
            return self.sentence
        sentence = _TWO_FORMS.sub(lambda forms: either(*forms.groups()), self.sentence)
        return _PARAMETER.sub(self._parameter, sentence).format(**self.fields)

    def _parameter(self, match: re.Match[str]) -> str:
        """A parameter between backquotes, marked for `phrase`."""
        name, text = match.groups(default="")
        value: Any = text
        if text.startswith("{"):
            value = self.fields[text.strip("{}")]
        elif text == "True" or text.isdecimal():
            value = ast.literal_eval(text)
        return setting(name, value).replace("{", "{{").replace("}", "}}")

    def __str__(self) -> str:
        return phrase(self.message)


def _restore(kind: type[_Phrased], code: str, sentence: str, fields: dict[str, Any]) -> _Phrased:
    """The error that another process has raised."""
    error = kind.__new__(kind, code, sentence)
    _Phrased.__init__(error, code, sentence, **fields)
    return error


class SmoothcertError(_Phrased):
    """Base of all errors for the user. The command line prints the sentence and exits with 2."""


class SmoothcertWarning(_Phrased, UserWarning):
    """A warning for the user."""


def warn(code: str, sentence: str | None = None, /, **fields: Any) -> None:
    """Warn at the line of the user's own code that called this package.

    The arguments are those of `SmoothcertWarning`; a sentence alone is a warning, too.
    """
    level = 1
    frame = sys._getframe().f_back
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_OF_THE_USER):
        frame = frame.f_back
        level += 1
    warnings.warn(SmoothcertWarning(code, sentence, **fields), stacklevel=level + 1)


class InvalidInput(SmoothcertError, ValueError):
    """A value that is not allowed."""


class UnreadableInput(InvalidInput):
    """An input that cannot be read, or cannot be certified as it is.

    Args:
        message: Why.
        id: The input.
        cause: The error that says so; its code and fields are kept.
    """

    def __init__(self, message: str, id: int, cause: InvalidInput | None = None) -> None:
        code = "unreadable-input"
        fields: dict[str, Any] = {}
        if cause is not None and cause.code:
            code = cause.code
            fields = cause.fields
        super().__init__(code, "{why}", **(fields | {"why": message, "id": id}))

    @property
    def id(self) -> int:
        """The number of the input."""
        id: int = self.fields["id"]
        return id


class ModelFailed(InvalidInput):
    """The user's model raised an error, the cause of this one, after the check before a run."""


class MissingExtra(SmoothcertError, ImportError):
    """An optional dependency is not installed.

    Args:
        what: What needs the dependency.
        extra: The extra of smoothcert that installs it.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            "missing-extra",
            "{what} needs an optional dependency: pip install 'smoothcert[{extra}]'",
            what=what,
            extra=extra,
        )


@contextmanager
def needs(extra: str, *, what: str) -> Iterator[None]:
    """In this context, an import that fails is that of an optional dependency of `what`."""
    try:
        yield
    except ImportError:
        raise MissingExtra(what, extra) from None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the most similar known names, if there are any.

    >>> did_you_mean("radi", ["fixed", "radii"])
    ': did you mean radii?'
    """
    similar = get_close_matches(name, list(known))
    return f": did you mean {', '.join(similar)}?" if similar else ""


def number_of(count: int, noun: str) -> str:
    """A number with its noun.

    >>> number_of(1, "input"), number_of(2_000, "input")
    ('1 input', '2,000 inputs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the name of its class if it has no message.

    An error in TorchScript begins with a traceback, so its last line is taken.
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if "TorchScript interpreter" in lines[0]:
        return lines[-1]
    return lines[0]

"""Errors for mistakes of the caller. Each message is one sentence with the value and what is allowed."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

_OPEN, _BETWEEN, _CLOSE = "\ue000", "\ue001", "\ue002"
"""Characters for private use, which mark the part of a message that Python and the command line phrase differently."""
_EITHER = re.compile(f"{_OPEN}(.*?){_BETWEEN}(.*?){_CLOSE}", re.S)


def either(python: str, command: str) -> str:
    """A part of a message in the words of Python and in those of the command line."""
    return f"{_OPEN}{python}{_BETWEEN}{command}{_CLOSE}"


def setting(name: str, value: object = "") -> str:
    """A parameter in a message: `out=DIR` in Python, `--out DIR` on the command line."""
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, str):
        plain = not value or value.isupper()  # DIR stands for the user's own value
        return either(f"{name}={value}" if plain else f'{name}="{value}"', f"{flag} {value}".rstrip())
    if value is True:
        return either(f"{name}=True", flag)
    listed = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
    return either(f"{name}={value}", f"{flag} {listed}")


def phrase(message: str, *, command: bool = False) -> str:
    """A message in the words of Python, or in those of the command line."""
    return _EITHER.sub(r"\2" if command else r"\1", message)


class _Phrased:
    """Base of errors and warnings whose messages name parameters with `setting`."""

    args: tuple[object, ...]

    @property
    def message(self) -> str:
        """The message with its parameters marked, to become a part of another message."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        return phrase(self.message)


class SmoothcertError(_Phrased, Exception):
    """Base of all errors whose message is for the user. The command line prints the message and exits with code 2."""


class SmoothcertWarning(_Phrased, UserWarning):
    """A warning whose message names parameters."""


class InvalidInput(SmoothcertError, ValueError):
    """A value that is not allowed."""


class UnreadableInput(InvalidInput):
    """An input that cannot be read, or cannot be certified as it is.

    Args:
        message: Why.
        id: The input.
    """

    def __init__(self, message: str, id: int) -> None:
        super().__init__(message, id)
        self.id = id


class ModelFailed(InvalidInput):
    """The user's model raised an error after the check before a run. That error is the cause of this one."""


class MissingExtra(SmoothcertError, ImportError):
    """An optional dependency is not installed.

    Args:
        what: What needs the dependency.
        extra: The extra of smoothcert that installs it.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency: pip install -e '.[{extra}]' in the clone of smoothcert")


@contextmanager
def needs(extra: str, *, what: str) -> Iterator[None]:
    """In this context, an import that fails is that of an optional dependency, which `what` needs."""
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
    """The first line of an error's message, or the name of its class if it has no message."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)

"""What smoothcert raises when the mistake is the caller's: one sentence with the value and what is allowed."""

import traceback
from pathlib import Path

_PACKAGE = str(Path(__file__).parent)


class SmoothcertError(Exception):
    """Base of all errors with a message meant for the user; the command line prints it and exits with 2."""


class InvalidInput(SmoothcertError, ValueError):
    """A value outside of what is allowed."""


class MissingExtra(SmoothcertError, ImportError):
    """An optional dependency that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency: pip install 'smoothcert[{extra}]'")


def place_of(error: BaseException, near: str | None = None) -> str:
    """The file and line where an error of somebody else's code was raised, as in " (model.py, line 3)".

    Args:
        error: The error.
        near: The file of that code: the last line in it counts, not one in a library that it calls.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}, line {error.lineno})"
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    outside = [f for f in frames if not f[0].startswith("<frozen") and not f[0].startswith(_PACKAGE)]
    own = [f for f in outside if near is not None and f[0] == near] or outside
    return f" ({own[-1][0]}, line {own[-1][1]})" if own else ""


def first_line(error: BaseException) -> str:
    """What somebody else's error says, in one line; its kind if it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)

"""What smoothcert raises when the mistake is the caller's: one sentence with the value and what is allowed."""


class SmoothcertError(Exception):
    """Base of all errors with a message meant for the user; the command line prints it and exits with 2."""


class InvalidInput(SmoothcertError, ValueError):
    """A value outside of what is allowed."""


class MissingExtra(SmoothcertError, ImportError):
    """An optional dependency that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency: pip install 'smoothcert[{extra}]'")


def first_line(error: BaseException) -> str:
    """What somebody else's error says, in one line; its kind if it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)

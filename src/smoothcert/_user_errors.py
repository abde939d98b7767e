"""Code of the user: import it, and report its errors as one sentence with their place."""

from __future__ import annotations

import importlib
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, ModuleType

from smoothcert._registry import Recorded
from smoothcert.errors import InvalidInput, SmoothcertError, first_line

_PACKAGE = str(Path(__file__).parent)
_LIBRARIES = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
_NOT_OF_THE_USER = ("<", _PACKAGE, *_LIBRARIES)
"""How the names of files begin that the user has not written."""


def import_users_module(place: str) -> ModuleType:
    """Import a module by its name or its file.

    Its folder stays in the search path, so that other processes find it.
    """
    is_name = Path(place).name == place and not place.endswith(".py")
    if is_name:
        name = place
        folder = Path.cwd()  # an installed command does not search the current folder
    else:
        path = _existing_file(place)
        name = path.stem
        folder = path.parent.resolve()
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    spec = None if "." in name else find_spec(name)
    with user_errors(f"importing {name}", near=None if spec is None else spec.origin):
        return importlib.import_module(name)


def _existing_file(place: str) -> Path:
    """The file of a module, which is given with or without its suffix."""
    path = Path(place)
    if path.suffix != ".py":
        path = path.with_name(f"{path.name}.py")
    if not path.is_file():
        raise InvalidInput("no-file", "there is no file {path}", path=path)
    if not path.stem.isidentifier():
        raise InvalidInput(
            "not-importable",
            "{path} cannot be imported: its name must be letters, digits and underscores",
            path=path,
        )
    return path


@contextmanager
def user_errors(doing: str, *, near: str | None = None, hint: str = "") -> Iterator[None]:
    """In this context, an error in code of the user is one sentence with its place.

    Args:
        doing: What fails, as in "calling model".
        near: The file whose line is preferred as the place.
        hint: Added to the sentence.
    """
    try:
        yield
    except SmoothcertError:
        raise
    except SystemExit as error:  # as from argparse, which does not know our options
        raise InvalidInput(
            "program-ended",
            "{doing} ended the program (exit code {exit}): put what a script does below "
            'if __name__ == "__main__":',
            doing=doing,
            exit=error.code,
        ) from error
    except Exception as error:  # code of the user may raise any error
        raise _failure(doing, error, near, hint) from error


@contextmanager
def naming_user_errors() -> Iterator[None]:
    """Errors in a plan, noise or training method of the user name its class and method here."""
    try:
        yield
    except SmoothcertError:
        raise
    except Exception as error:  # code of the user may raise any error
        methods = [frame for frame, _ in _frames(error) if _is_users_method(frame)]
        if not methods:
            raise
        cls = type(_receiver(methods[-1]))
        code = methods[-1].f_code
        raise _failure(f"{cls.__name__}.{code.co_name}", error, code.co_filename) from error


def _is_users_method(frame: FrameType) -> bool:
    """Whether this is a call of a method that a class of the user defines.

    Modules are compared, because methods that dataclasses generate have no file.
    """
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    ours = __name__.partition(".")[0]
    return package != ours and isinstance(_receiver(frame), Recorded)


def _receiver(frame: FrameType) -> object:
    """The first argument of a call, which methods usually call self."""
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    return frame.f_locals.get(names[0]) if names else None


def is_our_own(error: BaseException) -> bool:
    """Whether code of this package raised an error, and not code that it calls."""
    return any(frame.f_code.co_filename.startswith(_PACKAGE) for frame, _ in _frames(error)[-1:])


def _failure(doing: str, error: Exception, near: str | None, hint: str = "") -> InvalidInput:
    """An error of the user's code in one sentence, with its place."""
    return InvalidInput(
        "user-code-failed",
        "{doing} fails ({error}): {reason}{place}{hint}",
        doing=doing,
        error=type(error).__name__,
        reason=error.msg if isinstance(error, SyntaxError) else first_line(error),
        place=where_raised(error, near),
        hint=f"; {hint}" if hint else "",
    )


def where_raised(error: BaseException, near: str | None = None) -> str:
    """Where an error comes from in code of the user, as in " (model.py, line 3)".

    The last line in the file `near` is preferred. The answer is empty for an error in installed
    packages that does not pass through other code.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}, line {error.lineno})"
    lines = [(frame.f_code.co_filename, line) for frame, line in _frames(error)]
    preferred = [(file, line) for file, line in lines if file == near]
    users = [(file, line) for file, line in lines if not file.startswith(_NOT_OF_THE_USER)]
    for file, line in reversed(preferred or users):
        return f" ({file}, line {line})"
    return ""


def _frames(error: BaseException) -> list[tuple[FrameType, int]]:
    return list(traceback.walk_tb(error.__traceback__))

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
_INSTALLED = (
    "<",
    _PACKAGE,
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)
"""How the names of files begin that the user has not written."""


def import_users_module(place: str) -> ModuleType:
    """Import a module by its name or its file. Its folder stays in the search path, so that other processes find it."""
    path, folder, name = (
        Path(place),
        Path.cwd(),
        place,
    )  # an installed command does not search the current folder
    if path.suffix == ".py" or path.name != place:
        path = path if path.suffix == ".py" else path.with_name(f"{path.name}.py")
        if not path.is_file():
            raise InvalidInput(f"there is no file {path}")
        if not path.stem.isidentifier():
            raise InvalidInput(
                f"{path} cannot be imported: its name must be letters, digits and underscores"
            )
        folder, name = path.parent.resolve(), path.stem
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    spec = None if "." in name else find_spec(name)
    with user_errors(f"importing {name}", near=None if spec is None else spec.origin):
        return importlib.import_module(name)


@contextmanager
def user_errors(doing: str, *, near: str | None = None, hint: str = "") -> Iterator[None]:
    """In this context, an error in code of the user is one sentence with its place, preferably in the file `near`.

    The hint is added to the sentence.
    """
    try:
        yield
    except SmoothcertError:
        raise
    except SystemExit as error:  # as from argparse, which does not know our options
        raise InvalidInput(
            f"{doing} ended the program (exit code {error.code}): put what a script does below "
            'if __name__ == "__main__":'
        ) from error
    except Exception as error:  # code of the user may raise any error
        raise _failure(doing, error, near, hint) from error


@contextmanager
def naming_user_errors() -> Iterator[None]:
    """In this context, an error in a plan or noise of the user is reported with its class and method."""
    try:
        yield
    except SmoothcertError:
        raise
    except Exception as error:  # code of the user may raise any error
        ours = __name__.partition(".")[
            0
        ]  # by module, because methods that dataclasses generate have no file
        theirs = [
            frame
            for frame, _ in _frames(error)
            if frame.f_globals.get("__name__", "").split(".")[0] != ours
        ]
        methods = [frame for frame in theirs if isinstance(frame.f_locals.get("self"), Recorded)]
        if not methods:
            raise
        cls, code = type(methods[-1].f_locals["self"]), methods[-1].f_code
        raise _failure(f"{cls.__name__}.{code.co_name}", error, code.co_filename) from error


def is_our_own(error: BaseException) -> bool:
    """Whether code of this package raised an error, and not code that it calls."""
    return any(frame.f_code.co_filename.startswith(_PACKAGE) for frame, _ in _frames(error)[-1:])


def _failure(doing: str, error: Exception, near: str | None, hint: str = "") -> InvalidInput:
    """An error of the user's code in one sentence, with its place."""
    reason = error.msg if isinstance(error, SyntaxError) else first_line(error)
    return InvalidInput(
        f"{doing} fails ({type(error).__name__}): {reason}{where_raised(error, near)}{hint and f'; {hint}'}"
    )


def where_raised(error: BaseException, near: str | None = None) -> str:
    """Where an error comes from in code of the user, as in " (model.py, line 3)", preferably in the file `near`.

    Empty for an error in installed packages that does not pass through other code.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}, line {error.lineno})"
    frames = [(frame.f_code.co_filename, line) for frame, line in _frames(error)]
    users = [found for found in frames if not found[0].startswith(_INSTALLED)]
    file, line = ([found for found in frames if found[0] == near] or users or [("", 0)])[-1]
    return f" ({file}, line {line})" if file else ""


def _frames(error: BaseException) -> list[tuple[FrameType, int]]:
    return list(traceback.walk_tb(error.__traceback__))

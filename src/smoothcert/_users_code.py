"""Code of the user: import it, and report its errors as one sentence with their place."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from smoothcert.errors import InvalidInput, SmoothcertError, first_line, place_of


def import_users_module(place: str) -> ModuleType:
    """Import a module by its name or its file. Its folder stays in the search path, so that other processes find it."""
    path, folder, name = Path(place), Path.cwd(), place  # an installed command does not search the current folder
    if path.suffix == ".py" or path.name != place:
        path = path if path.suffix == ".py" else path.with_name(f"{path.name}.py")
        if not path.is_file():
            raise InvalidInput(f"there is no file {path}")
        if not path.stem.isidentifier():
            raise InvalidInput(f"{path} cannot be imported: its name must be letters, digits and underscores")
        folder, name = path.parent.resolve(), path.stem
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    spec = None if "." in name else find_spec(name)
    with users_code(f"importing {name}", near=None if spec is None else spec.origin):
        return import_module(name)


@contextmanager
def users_code(doing: str, *, near: str | None = None) -> Iterator[None]:
    """In this context, an error in code of the user is one sentence with its place, preferably in the file `near`."""
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
        reason = error.msg if isinstance(error, SyntaxError) else first_line(error)
        raise InvalidInput(f"{doing} fails ({type(error).__name__}): {reason}{place_of(error, near=near)}") from error

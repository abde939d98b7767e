"""Write files safely: one process per folder, and a file is written completely or not at all."""

from __future__ import annotations

import os
import tomllib
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from smoothcert.errors import InvalidInput

JOURNAL = "journal.sqlite"
"""The file with the certificates of a run."""
_LOCK = ".lock"
_FILES_OF_A_RUN = {_LOCK, *(JOURNAL + ending for ending in ("", "-wal", "-shm", "-journal"))}
"""SQLite adds these endings to the name of a database, for files of its own."""
_SQLITE = b"SQLite format 3\0"
_TOLD_BY_BYTES = 4
"""A binary format is told by so many bytes at its start."""
_TESTED_BYTES = 1024
"""Text is told from binary data by so many bytes at its start."""


@contextmanager
def exclusive(out: str | Path) -> Iterator[Path]:
    """Create a folder if it does not exist, and lock it until this process ends.

    If an error occurs before anything is written into a new folder, the folder is removed.

    Raises:
        InvalidInput: Another process has locked the folder, or it cannot be written.
    """
    if out is None or not str(out):
        raise InvalidInput(
            "no-folder",
            "out is empty: name a folder, as in `out=runs/mine`",
        )
    folder = Path(out)
    lock = FileLock(folder / _LOCK, timeout=0)
    try:
        new = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise InvalidInput(
            "folder-in-use",
            "{folder} is in use by another process: wait until it ends, or stop it",
            folder=folder,
        ) from None
    except OSError as error:
        raise InvalidInput(
            "cannot-write-into",
            "cannot write into {folder}: {reason}; choose another `out=DIR`",
            folder=folder,
            reason=error.strerror or str(error),
        ) from None
    try:
        yield folder
    except BaseException:
        _remove_unused(new)
        raise
    finally:
        lock.release()


def _remove_unused(folders: list[Path]) -> None:
    """Remove folders, the innermost first, if they hold nothing but the lock."""
    with suppress(OSError):  # in the end, the folders do not matter
        if folders and [path.name for path in folders[0].iterdir()] == [_LOCK]:
            (folders[0] / _LOCK).unlink()
            for folder in folders:
                folder.rmdir()


def write_output(path: str | Path, content: bytes, *, reads: Iterable[object] = ()) -> None:
    """Write a file that the user asked for, completely or not at all, after `check_output`."""
    check_output(path, reads=reads, begins=content)
    write_whole(path, content)


def check_output(
    path: str | Path, *, reads: Iterable[object] = (), begins: bytes | None = b""
) -> None:
    """Refuse to write a file where it would replace something that cannot be made again.

    A file of a run is never replaced, neither by its name nor by another one. Other binary data,
    such as weights, images or arrays, is only replaced by data of the same format.

    Args:
        path: The file to write.
        reads: What the command reads: files, also as in "net.py:function" or "onnx:net.onnx".
            Everything else, such as folders and the names of models, is ignored.
        begins: The first bytes to write, b"" for a text, None if they are not known yet.
    """
    advice = "choose another file"
    try:
        target = Path(path).resolve()
        start = _first_bytes(target)
        is_read = any(_is_same_file(target, read) for read in reads)
    except (OSError, RuntimeError) as error:  # such as links that lead in a circle
        raise _cannot_write(path, error) from None
    if target.is_dir():
        raise InvalidInput(
            "output-is-a-folder", "cannot write {path}: Is a directory; name a file", path=path
        )
    if is_read:
        raise InvalidInput(
            "output-is-read", "{path} would replace what is read: " + advice, path=path
        )
    # Any other SQLite database is treated in the same way.
    if target.name.lower() in _FILES_OF_A_RUN or start.startswith(_SQLITE):
        raise InvalidInput("output-is-a-run", "{path} would replace a run: " + advice, path=path)
    if begins is not None and _is_other_format(start, begins):
        raise InvalidInput(
            "output-of-another-format",
            "{path} holds data of another format, which is not replaced: " + advice,
            path=path,
        )


def _is_same_file(target: Path, read: object) -> bool:
    """Whether something that a command reads is this file."""
    if not isinstance(read, (str, Path)):
        return False
    before, _, after = str(read).partition(":")
    for name in (str(read), before, after):
        with suppress(OSError, ValueError):  # it names something else than a file
            if os.path.samefile(os.path.expanduser(name), target):
                return True
    return False


def _is_other_format(existing: bytes, begins: bytes) -> bool:
    return not _is_text(existing) and existing[:_TOLD_BY_BYTES] != begins[:_TOLD_BY_BYTES]


def _is_text(start: bytes) -> bool:
    """Whether bytes at the start of a file are text in UTF-8, perhaps cut within a character."""
    try:
        getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return False
    return b"\0" not in start


def _first_bytes(path: Path) -> bytes:
    """The start of a file; nothing if there is none, or if it is no regular file."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(_TESTED_BYTES)


def _cannot_write(path: str | Path, error: Exception) -> InvalidInput:
    reason = getattr(error, "strerror", None) or str(error)
    return InvalidInput("cannot-write", "cannot write {path}: {reason}", path=path, reason=reason)


def write_whole(path: str | Path, content: bytes) -> None:
    """Write a file of our own, and create its folder if it does not exist.

    If writing fails, an existing file stays unchanged.
    """
    target = Path(path).resolve()  # a link stays a link to the new content
    partial = target.parent / f"{target.name}.partial"  # renamed once it is on disk
    try:
        if target.exists() and not target.is_file():  # such as /dev/stdout
            target.write_bytes(content)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)  # it may be a link to something else
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise _cannot_write(path, error) from None


def read_toml(path: str | Path) -> dict[str, Any]:
    """The content of a TOML file of the user."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(
            "unreadable-file", "cannot read {path}: {why}", path=path, why=error.strerror
        ) from None
    except ValueError as error:
        raise InvalidInput(
            "not-toml", "{path} is not a file in TOML: {why}", path=path, why=error
        ) from None

"""Write files safely: one process per folder, and a file is written completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from smoothcert.errors import InvalidInput, setting

_LOCK = ".lock"


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
            "out is empty: name a folder, as in {example}",
            example=setting("out", "runs/mine"),
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
            "cannot write into {folder}: {reason}; choose another {out}",
            folder=folder,
            reason=error.strerror or str(error),
            out=setting("out", "DIR"),
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


def write_whole(path: str | Path, content: bytes) -> None:
    """Write a file, and create its folder if it does not exist. If writing fails, an existing file stays unchanged."""
    target = Path(path).resolve()  # a link stays a link to the new content
    partial = target.parent / f"{target.name}.partial"  # renamed once it is on disk
    try:
        if target.exists() and not target.is_file():  # such as /dev/stdout
            target.write_bytes(content)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise InvalidInput(f"cannot write {path}: {error.strerror or error}") from None

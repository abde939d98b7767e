"""NumPy archives with the arrays `x` or `images`, and `y` or `labels`."""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path

import numpy as np

from smoothcert.data.arrays import ArrayDataset
from smoothcert.errors import InvalidInput, first_line

_DAMAGED = (EOFError, ValueError, MemoryError, NotImplementedError, zipfile.BadZipFile, zlib.error)


def load(path: Path, *, name: str | None = None, class_names: tuple[str, ...] | None = None) -> ArrayDataset:
    """An `.npz` file. If it has no labels, all labels are unknown."""
    if not path.is_file():
        raise InvalidInput(f"no data at {path}: the file does not exist")
    found = {}
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as content:
            size = sum(entry.file_size for entry in content.infolist())
        if size <= (memory := _memory()):
            with np.load(path, allow_pickle=False) as archive:
                found = {name: archive[name] for name in ("labels", "y", "images", "x") if name in archive}
                names = archive.files
    except _DAMAGED as error:
        raise InvalidInput(f"{path} is damaged, or no .npz file of plain arrays: {first_line(error)}") from None
    if size > memory:
        raise InvalidInput(f"{path} needs {size:,} bytes of {memory:,} in memory: split it, or save images as uint8")
    inputs, labels = found.get("x", found.get("images")), found.get("y", found.get("labels"))
    if inputs is None:
        raise InvalidInput(f"{path} has no array x or images; it has {', '.join(names) or 'none'}")
    return ArrayDataset(inputs, labels, name=name or path.stem, class_names=class_names)


def _memory() -> int:
    """The memory of this machine in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 2**63

"""NumPy archives with the arrays `x` or `images`, and `y` or `labels`."""

from __future__ import annotations

import os
import zipfile
import zlib
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.arrays import ArrayDataset
from smoothcert.errors import InvalidInput, first_line


def load(path: Path, *, name: str | None = None, class_names: tuple[str, ...] | None = None) -> ArrayDataset:
    """An `.npz` file. If it has no labels, all labels are unknown."""
    if not path.is_file():
        raise InvalidInput(f"no data at {path}: the file does not exist")
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise InvalidInput(f"{path} is not an .npz file, or it is damaged")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            inputs = _first(archive, path, "x", "images")
            labels = _first(archive, path, "y", "labels")
            names = archive.files
    except InvalidInput:
        raise
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise InvalidInput(f"{path} is damaged: {first_line(error)}") from None
    if inputs is None:
        raise InvalidInput(f"{path} has no array x or images; it has {', '.join(names) or 'none'}")
    return ArrayDataset(inputs, labels, name=name or path.stem, class_names=class_names)


def _first(archive: np.lib.npyio.NpzFile, path: Path, *names: str) -> NDArray[np.generic] | None:
    """The first array with one of the names."""
    for name in names:
        if name in archive:
            _check_header(archive, name, path)
            return archive[name]
    return None


def _check_header(archive: np.lib.npyio.NpzFile, name: str, path: Path) -> None:
    """Refuse an array that cannot be read before NumPy reserves memory for it."""
    content = archive.zip
    assert content is not None  # it is None only after the archive is closed
    stored = content.getinfo(f"{name}.npy" if f"{name}.npy" in content.namelist() else name)
    with content.open(stored) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        start = file.tell()
    if dtype.hasobject:
        raise InvalidInput(f"{path} holds Python objects ({name}), which are not loaded: save plain numeric arrays")
    needed = prod(shape) * dtype.itemsize
    if needed != stored.file_size - start:
        raise InvalidInput(
            f"{path} is damaged: {name} of shape {shape} needs {needed:,} bytes, the file holds "
            f"{stored.file_size - start:,}"
        )
    if needed > (memory := _memory()):
        raise InvalidInput(
            f"{path} does not fit into memory: {name} needs {needed:,} bytes of {memory:,}; split the file, or save "
            "images as uint8"
        )


def _memory() -> int:
    """The memory of this machine in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 2**63

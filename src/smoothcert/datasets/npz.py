"""NumPy archives with the arrays `x` or `images`, and `y` or `labels`."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.arrays import ArrayDataset
from smoothcert.errors import InvalidInput


def load(path: Path, *, name: str | None = None, class_names: tuple[str, ...] | None = None) -> ArrayDataset:
    """An `.npz` file. If it has no labels, all labels are unknown.

    Args:
        path: The file.
        name: The name of the data set; by default the name of the file.
        class_names: The names of the classes, in the order of the labels.
    """
    if not path.is_file():
        raise InvalidInput(f"no data at {path}: the file does not exist")
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise InvalidInput(f"{path} is not an .npz file, or it is damaged")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            inputs = _first(archive, "x", "images")
            labels = _first(archive, "y", "labels")
            names = archive.files
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InvalidInput(f"{path} is damaged: {error}") from None
    except ValueError:
        raise InvalidInput(f"{path} holds Python objects, which are not loaded: save plain numeric arrays") from None
    if inputs is None:
        raise InvalidInput(f"{path} has no array x or images; it has {', '.join(names) or 'none'}")
    return ArrayDataset(inputs, labels, name=name or path.stem, class_names=class_names)


def _first(archive: np.lib.npyio.NpzFile, *names: str) -> NDArray[np.generic] | None:
    """The first array with one of the names."""
    found = [name for name in names if name in archive]
    return archive[found[0]] if found else None

"""CIFAR-10 (Krizhevsky 2009) in its original files: the python version or the binary version."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.arrays import ArrayDataset
from smoothcert.data.base import require_files
from smoothcert.data.download import downloaded
from smoothcert.errors import InvalidInput

CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
DOWNLOAD = "leave out the folder to download it, or get cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html"
_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_Batch: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.integer[Any]]]


def load(place: str | None, *, train: bool) -> ArrayDataset:
    """CIFAR-10 from its original files, in either version; without a place, they are downloaded."""
    place = place or str(downloaded("cifar10"))
    batches = [f"data_batch_{i}" for i in range(1, 6)] if train else ["test_batch"]
    parts: list[_Batch] = []
    for folder in (Path(place), Path(place) / "cifar-10-batches-py", Path(place) / "cifar-10-batches-bin"):
        if (folder / batches[0]).is_file():
            parts = [_read_python(file) for file in require_files(folder, batches, download=DOWNLOAD)]
        elif (folder / f"{batches[0]}.bin").is_file():
            files = require_files(folder, [f"{batch}.bin" for batch in batches], download=DOWNLOAD)
            parts = [_read_binary(file) for file in files]
        if parts:
            images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
            return ArrayDataset(images.reshape(-1, *_SHAPE), labels, name="cifar10", class_names=CLASS_NAMES)
    raise InvalidInput(f"no CIFAR-10 at {place} (looked for {batches[0]} and {batches[0]}.bin): {DOWNLOAD}")


def _read_binary(file: Path) -> _Batch:
    """Read records of one byte for the label and 3,072 bytes for the pixels."""
    content = np.fromfile(file, np.uint8)
    if not content.size or content.size % (1 + _PIXELS):
        raise InvalidInput(f"{file} is damaged: {content.size} bytes are not a multiple of an image: {DOWNLOAD}")
    records = content.reshape(-1, 1 + _PIXELS)
    return records[:, 1:], records[:, 0]


def _read_python(file: Path) -> _Batch:
    """Read a dictionary with `data` and `labels` that Python 2 pickled."""
    try:
        with file.open("rb") as opened:
            content = _ArraysOnly(opened, encoding="bytes").load()
        images, labels = content[b"data"], np.asarray(content[b"labels"], np.int64)
        if images.dtype != np.uint8 or images.shape != (len(labels), _PIXELS):
            raise ValueError(f"data of shape {images.shape}")
    except InvalidInput:
        raise
    except Exception as error:  # a damaged pickle can raise any error
        raise InvalidInput(f"{file} is not a batch of CIFAR-10, or it is damaged ({error!r}): {DOWNLOAD}") from None
    return images, labels


class _ArraysOnly(pickle.Unpickler):
    """Loads plain values and NumPy arrays only. It refuses everything else before any import."""

    _ALLOWED = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
        ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }

    def find_class(self, module_name: str, global_name: str) -> Any:
        """The object for a name in the pickle, if it is allowed."""
        try:
            return self._ALLOWED[module_name, global_name]
        except KeyError:
            raise InvalidInput(
                f"the batch asks for {module_name}.{global_name}, which CIFAR-10 does not contain, so it is not "
                f"loaded: {DOWNLOAD}"
            ) from None

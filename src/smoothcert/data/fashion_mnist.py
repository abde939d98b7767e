"""Fashion-MNIST (Xiao et al. 2017): 500 bundled test images, or all images from the four original files.

The training images come from the Debian package dataset-fashion-mnist if it is installed, else they are downloaded.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.data import npz
from smoothcert.data.arrays import ArrayDataset
from smoothcert.data.base import require_files
from smoothcert.data.download import downloaded
from smoothcert.errors import InvalidInput

_DEBIAN = "/usr/share/datasets/fashion-mnist"
BUNDLED = Path(__file__).parents[1] / "assets" / "fashion-mnist-500.npz"
CLASS_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
DOWNLOAD = "leave out the folder to download the files"


def load(place: str | None, *, train: bool) -> ArrayDataset:
    """Fashion-MNIST from its original files, or the bundled test images."""
    if place is None and not train:
        return npz.load(BUNDLED, name="fashion-mnist", class_names=CLASS_NAMES)
    if place is None:
        place = _DEBIAN if Path(_DEBIAN).is_dir() else str(downloaded("fashion-mnist"))
    return load_idx(Path(place), train=train, name="fashion-mnist", class_names=CLASS_NAMES)


def load_idx(folder: Path, *, train: bool, name: str, class_names: tuple[str, ...] | None = None) -> ArrayDataset:
    """Images and labels from two of the four files that MNIST and its relatives have."""
    part = "train" if train else "t10k"
    names = [f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz"]
    images, labels = map(read_idx, require_files(folder, names, download=DOWNLOAD))
    return ArrayDataset(images, labels, name=name, class_names=class_names)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read a gzipped IDX file of bytes.

    The file consists of two zeros, the type 8, the number of axes, the length of each axis as a big-endian integer, and
    the data.
    """
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput(f"{path} cannot be read as a gzip file ({error}): {DOWNLOAD}") from None
    if content[:3] != b"\0\0\x08" or len(content) < 4 + 4 * content[3]:
        raise InvalidInput(f"{path} is not an IDX file of bytes: {DOWNLOAD}")
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4).astype(int)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * content[3])
    if values.size != shape.prod():
        raise InvalidInput(f"{path} is damaged: it holds {values.size} of {shape.prod()} bytes: {DOWNLOAD}")
    return values.reshape(tuple(shape))

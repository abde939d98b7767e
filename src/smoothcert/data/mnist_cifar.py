"""MNIST, Fashion-MNIST and CIFAR-10 in their original files.

torchvision downloads the files once and checks them.
"""

from __future__ import annotations

import gzip
import os
import pickle
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from urllib.error import URLError

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.base import ArrayDataset, load_npz
from smoothcert.errors import InvalidInput, first_line, needs

BUNDLED = Path(__file__).parents[1] / "assets" / "fashion-mnist-500.npz"
CLOTHES = (
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
_OBJECTS = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_DOWNLOAD = "leave out the folder to download the files"
_DOWNLOAD_CIFAR10 = (
    f"{_DOWNLOAD}, or get cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html"
)
_CIFAR10_VERSIONS = (
    ("", ""),
    ("", ".bin"),
    ("cifar-10-batches-py", ""),
    ("cifar-10-batches-bin", ".bin"),
)
"""Where the files of CIFAR-10 are, and how their names end: those of the binary version in .bin."""
_PIXELS = 3 * 32 * 32
_Batch: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.integer[Any]]]


def load_mnist(place: str | None, *, train: bool) -> ArrayDataset:
    """MNIST (LeCun et al. 1998)."""
    return _load_idx(place or downloaded("mnist"), train=train, name="mnist")


def load_fashion_mnist(place: str | None, *, train: bool) -> ArrayDataset:
    """Fashion-MNIST (Xiao et al. 2017). Without a place, the test part is 500 bundled images."""
    name = "fashion-mnist"
    if place is None and not train:
        return load_npz(BUNDLED, name=name, class_names=CLOTHES)
    return _load_idx(place or downloaded(name), train=train, name=name, class_names=CLOTHES)


def load_cifar10(place: str | None, *, train: bool) -> ArrayDataset:
    """CIFAR-10 (Krizhevsky 2009), the python version or the binary version."""
    names = [f"data_batch_{i}" for i in range(1, 6)] if train else ["test_batch"]
    folder = Path(place or downloaded("cifar10"))
    versions = [
        [folder / subfolder / f"{name}{suffix}" for name in names]
        for subfolder, suffix in _CIFAR10_VERSIONS
    ]
    files = next((files for files in versions if files[0].is_file()), versions[0])
    _require(files, _DOWNLOAD_CIFAR10)
    read = _read_binary if files[0].suffix else _read_python
    images, labels = map(np.concatenate, zip(*map(read, files), strict=True))
    pictures = images.reshape(-1, 3, 32, 32)
    return ArrayDataset(pictures, labels, name="cifar10", class_names=_OBJECTS)


def downloaded(name: str) -> str:
    """The folder with the files of a data set. Missing or damaged files are downloaded."""
    files = _files_of(name)
    from torchvision.datasets.utils import download_url

    cache = os.environ.get("SMOOTHCERT_DATA") or Path.home() / ".cache" / "smoothcert"
    folder = Path(cache, name)
    for url, md5 in files.items():
        file = folder / url.rpartition("/")[2]
        try:
            download_url(url, folder, md5=md5)
            if file.name.endswith(".tar.gz"):
                with tarfile.open(file) as archive:
                    archive.extractall(folder, filter="data")
        except (OSError, URLError, RuntimeError, tarfile.TarError) as error:
            raise InvalidInput(
                "download-failed",
                "cannot download {name} from {url} ({reason}): check the connection, or give the "
                "folder with its files, as in {name}:DIR",
                name=name,
                url=url,
                reason=first_line(error),
            ) from None
    return str(folder)


def _files_of(name: str) -> dict[str, str]:
    """Where torchvision finds each file of a data set, and its MD5."""
    with needs("vision", what=f"the download of {name}"):
        from torchvision.datasets import CIFAR10, MNIST, FashionMNIST

    if name == "cifar10":
        return {CIFAR10.url: CIFAR10.tgz_md5}
    kind = MNIST if name == "mnist" else FashionMNIST
    return {f"{kind.mirrors[0]}{file}": md5 for file, md5 in kind.resources}


def _require(files: list[Path], download: str) -> None:
    """Refuse a folder that lacks one of these files."""
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise InvalidInput(
            "missing-files",
            "{folder} has no {missing}: {download}",
            folder=files[0].parent,
            missing=", ".join(missing),
            download=download,
        )


def _load_idx(
    folder: str, *, train: bool, name: str, class_names: tuple[str, ...] | None = None
) -> ArrayDataset:
    """Images and labels from two of the four files that MNIST and its relatives have."""
    part = "train" if train else "t10k"
    files = [Path(folder, f"{part}-{name}-ubyte.gz") for name in ("images-idx3", "labels-idx1")]
    _require(files, _DOWNLOAD)
    images, labels = map(read_idx, files)
    return ArrayDataset(images, labels, name=name, class_names=class_names)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read a gzipped IDX file of bytes.

    The file consists of two zeros, the type 8, the number of axes, the length of each axis as a
    big-endian integer, and the data.
    """
    with _reading(path, _DOWNLOAD):
        content = gzip.decompress(path.read_bytes())
        if content[:3] != b"\0\0\x08":
            raise ValueError("it is not an IDX file of bytes")
        shape = np.frombuffer(content, ">u4", count=content[3], offset=4).tolist()
        return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


def _read_binary(file: Path) -> _Batch:
    """Read records of one byte for the label and 3,072 bytes for the pixels."""
    with _reading(file, _DOWNLOAD_CIFAR10):
        records = np.fromfile(file, np.uint8).reshape(-1, 1 + _PIXELS)
        if not len(records):
            raise ValueError("it is empty")
    return records[:, 1:], records[:, 0]


def _read_python(file: Path) -> _Batch:
    """Read a dictionary with `data` and `labels` that Python 2 pickled."""
    with _reading(file, _DOWNLOAD_CIFAR10), file.open("rb") as opened:
        content = _ArraysOnly(opened, encoding="bytes").load()
        images = content[b"data"]
        labels = np.asarray(content[b"labels"], np.int64)
        if images.dtype != np.uint8 or images.shape != (len(labels), _PIXELS):
            raise ValueError(f"it has data of shape {images.shape}")
    return images, labels


@contextmanager
def _reading(path: Path, download: str) -> Iterator[None]:
    """In this context, an error in the content of a file says that it is damaged."""
    try:
        yield
    except PermissionError:
        raise
    except Exception as error:  # a damaged pickle can raise any error
        raise InvalidInput(
            "damaged-file",
            "{path} is damaged ({reason}): {download}",
            path=path,
            reason=first_line(error),
            download=download,
        ) from None


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
        if (module_name, global_name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}")
        return self._ALLOWED[module_name, global_name]

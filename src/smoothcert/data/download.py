"""Data sets that download themselves: torchvision fetches their original files once and compares checksums."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from urllib.error import URLError

from smoothcert.errors import InvalidInput, MissingExtra, first_line

_FILES = {  # where each file is, and its MD5
    "cifar10": {
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
    },
    "fashion-mnist": {
        f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{file}.gz": md5
        for file, md5 in {
            "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
        }.items()
    },
    "mnist": {
        f"https://ossci-datasets.s3.amazonaws.com/mnist/{file}.gz": md5
        for file, md5 in {
            "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
        }.items()
    },
}


def cache() -> Path:
    """Where downloads are kept: `SMOOTHCERT_DATA`, or a folder in the user's cache."""
    return Path(os.environ.get("SMOOTHCERT_DATA") or Path.home() / ".cache" / "smoothcert")


def downloaded(name: str) -> Path:
    """The folder with the files of a data set. Files that are missing or damaged are downloaded."""
    try:
        from torchvision.datasets.utils import download_url
    except ImportError:
        raise MissingExtra(f"the download of {name}", "vision") from None
    folder = cache() / name
    for url, md5 in _FILES[name].items():
        file = folder / url.rpartition("/")[2]
        try:
            download_url(url, folder, md5=md5)
            if file.name.endswith(".tar.gz"):
                with tarfile.open(file) as archive:
                    archive.extractall(folder, filter="data")
        except (OSError, URLError, RuntimeError, tarfile.TarError) as error:
            raise InvalidInput(
                f"cannot download {name} from {url} ({first_line(error)}): check the connection, or give the folder "
                f"with its files, as in {name}:DIR"
            ) from None
    return folder

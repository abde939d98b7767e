"""Data sets that download themselves: torchvision fetches their original files once and compares checksums."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from urllib.error import URLError

from smoothcert.errors import InvalidInput, MissingExtra, first_line


def cache() -> Path:
    """Where downloads are kept: `SMOOTHCERT_DATA`, or a folder in the user's cache."""
    return Path(os.environ.get("SMOOTHCERT_DATA") or Path.home() / ".cache" / "smoothcert")


def files_of(name: str) -> dict[str, str]:
    """Where torchvision finds each file of a data set, and its MD5."""
    try:
        from torchvision.datasets import CIFAR10, MNIST, FashionMNIST
    except ImportError:
        raise MissingExtra(f"the download of {name}", "vision") from None
    if name == "cifar10":
        return {CIFAR10.url: CIFAR10.tgz_md5}
    kind = MNIST if name == "mnist" else FashionMNIST
    return {f"{kind.mirrors[0]}{file}": md5 for file, md5 in kind.resources}


def downloaded(name: str) -> Path:
    """The folder with the files of a data set. Files that are missing or damaged are downloaded."""
    files, folder = files_of(name), cache() / name
    from torchvision.datasets.utils import download_url

    for url, md5 in files.items():
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

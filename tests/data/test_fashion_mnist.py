"""Fashion-MNIST: the bundled images, and the four original files."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import torch
from tests.refusals import refused

from smoothcert.data import load_dataset

RANDOM = np.random.default_rng(1)


def write_idx(path: Path, values: np.ndarray) -> None:
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    path.write_bytes(gzip.compress(header + values.tobytes()))


def write_fashion_mnist(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    images, labels = RANDOM.integers(0, 256, (6, 28, 28), np.uint8), np.arange(6, dtype=np.uint8)
    for part in ("train", "t10k"):
        write_idx(
            folder / f"{part}-images-idx3-ubyte.gz", images if part == "train" else images[::-1]
        )
        write_idx(
            folder / f"{part}-labels-idx1-ubyte.gz", labels if part == "train" else labels[::-1]
        )
    return images, labels


def test_the_bundled_images_are_the_first_of_the_test_set() -> None:
    data = load_dataset("fashion-mnist")
    assert [data[i][1] for i in range(10)] == [
        9,
        2,
        1,
        1,
        6,
        1,
        4,
        6,
        5,
        7,
    ]  # the labels of the published test set
    assert len(data) == 500
    assert data[0][0].shape == (1, 28, 28)
    assert data[0][0].max() == 1
    assert data.class_names is not None
    assert data.class_names[9] == "Ankle boot"


def test_fashion_mnist_files_are_read_by_part(tmp_path: Path) -> None:
    images, labels = write_fashion_mnist(tmp_path)
    train, test = (
        load_dataset(f"fashion-mnist:{tmp_path}", train=train) for train in (True, False)
    )
    for i in range(6):
        assert torch.equal(train[i][0], torch.from_numpy(images[i : i + 1] / np.float32(255)))
        assert (train[i][1], test[i][1]) == (labels[i], labels[5 - i])


def test_fashion_mnist_mistakes_say_what_to_download(tmp_path: Path) -> None:
    with refused("missing-files"):
        load_dataset(f"fashion-mnist:{tmp_path}")
    write_fashion_mnist(tmp_path)
    file = tmp_path / "t10k-images-idx3-ubyte.gz"
    content = file.read_bytes()
    plain = gzip.decompress(content)
    for broken, reason in [
        (content[:1000], "Compressed file ended"),
        (b"<html>", "Not a gzipped file"),
        (gzip.compress(plain[:-5]), "cannot reshape array of size 4699"),
        (gzip.compress(b"\0\0\x0d" + plain[3:]), "it is not an IDX file of bytes"),
        (gzip.compress(b""), "it is not an IDX file of bytes"),
    ]:
        file.write_bytes(broken)
        with refused("damaged-file", path=file) as raised:
            load_dataset(f"fashion-mnist:{tmp_path}")
        assert raised.value.fields["reason"].startswith(reason)

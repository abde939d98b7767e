"""CIFAR-10 in both published versions."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.refusals import refused

from smoothcert.data import load_dataset

RANDOM = np.random.default_rng(1)


class Python2Pickler(pickle._Pickler):
    """Writes bytes as Python 2 wrote strings, as in the published batches."""

    dispatch = {**pickle._Pickler.dispatch}  # noqa: RUF012

    def save_string(self, value: bytes) -> None:
        self.write(b"T" + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    dispatch[bytes] = save_string


def write_python_batch(path: Path, images: np.ndarray, labels: list[int]) -> None:
    with path.open("wb") as file:
        content = {
            b"batch_label": b"a batch",
            b"labels": labels,
            b"data": images,
            b"filenames": [b"x.png"],
        }
        Python2Pickler(file, protocol=2).dump(content)
    path.write_bytes(
        path.read_bytes().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")
    )


@pytest.fixture(params=["python", "binary"])
def cifar(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """A small CIFAR-10 with 4 images in each of the 6 batches; the test batch is the first one."""
    images, labels = (
        RANDOM.integers(0, 256, (24, 3072), np.uint8),
        RANDOM.integers(0, 10, 24, np.uint8),
    )
    python = request.param == "python"
    folder = tmp_path / ("cifar-10-batches-py" if python else "cifar-10-batches-bin")
    folder.mkdir()
    for i, name in enumerate(["test_batch", *(f"data_batch_{i}" for i in range(1, 6))]):
        part = slice(4 * i, 4 * i + 4)
        if python:
            write_python_batch(folder / name, images[part], labels[part].tolist())
        else:
            np.hstack([labels[part, None], images[part]]).tofile(folder / f"{name}.bin")
    return folder, images, labels


def test_cifar10_is_read_in_both_versions(cifar: tuple[Path, np.ndarray, np.ndarray]) -> None:
    folder, images, labels = cifar
    test, train = (
        load_dataset(f"cifar10:{folder}"),
        load_dataset(f"cifar10:{folder.parent}", train=True),
    )
    assert (len(test), len(train)) == (4, 20)
    for number, (x, label) in enumerate(
        [*(test[i] for i in range(4)), *(train[i] for i in range(20))]
    ):
        assert torch.equal(x, torch.from_numpy(images[number].reshape(3, 32, 32) / np.float32(255)))
        assert label == labels[number]


def test_a_missing_batch_is_named(cifar: tuple[Path, np.ndarray, np.ndarray]) -> None:
    folder = cifar[0]
    file = next(folder.glob("data_batch_3*"))
    file.unlink()
    with refused("missing-files", missing=file.name) as raised:
        load_dataset(f"cifar10:{folder}", train=True)
    assert "https://www.cs.toronto.edu" in str(raised.value)


def test_a_damaged_batch_is_named(cifar: tuple[Path, np.ndarray, np.ndarray]) -> None:
    file = next(cifar[0].glob("test_batch*"))
    for length in (0, 10, 3000, 9001):
        file.write_bytes(file.read_bytes()[:length] if length else b"")
        with refused("damaged-file"):
            load_dataset(f"cifar10:{cifar[0]}")


def test_a_folder_without_cifar10_says_what_to_download(tmp_path: Path) -> None:
    with refused("missing-files", folder=tmp_path, missing="test_batch") as raised:
        load_dataset(f"cifar10:{tmp_path}")
    assert "leave out the folder" in str(raised.value)


def test_a_label_beyond_ten_classes_is_refused(tmp_path: Path) -> None:
    np.full((1, 3073), 77, np.uint8).tofile(tmp_path / "test_batch.bin")
    with refused("label-out-of-range", label=77, id=0):
        load_dataset(f"cifar10:{tmp_path}")


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, ("exploded",))


def test_code_in_a_cifar10_pickle_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("test_batch").write_bytes(pickle.dumps({b"data": Bomb(), b"labels": []}))
    with refused("damaged-file") as raised:
        load_dataset("cifar10:.")
    assert ".mkdir" in raised.value.fields["reason"]
    assert not Path("exploded").exists()

"""NumPy archives."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.refusals import refused

from smoothcert.data import load_dataset

RANDOM = np.random.default_rng(1)


@pytest.mark.parametrize(("x", "y"), [("x", "y"), ("images", "labels")])
def test_npz_is_loaded_under_both_names(x: str, y: str, tmp_path: Path) -> None:
    values = RANDOM.integers(0, 256, (5, 8, 8), np.uint8)
    np.savez(tmp_path / "mine.npz", **{x: values, y: np.arange(5).reshape(5, 1)})
    data = load_dataset(tmp_path / "mine.npz")
    assert (len(data), data.name, data[4][1]) == (5, "mine", 4)
    torch.testing.assert_close(data[4][0], torch.from_numpy(values[4:] / np.float32(255)))


def test_npz_with_objects_is_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", x=np.array([{"a": 1}], object))
    np.savez(tmp_path / "labels.npz", x=np.zeros((1, 2)), y=np.array(["cat"], object))
    for name in ("objects", "labels"):
        with refused("objects-in-npz", path=tmp_path / f"{name}.npz"):
            load_dataset(tmp_path / f"{name}.npz")


def test_npz_names_its_classes(tmp_path: Path) -> None:
    for key in ("names", "class_names"):
        np.savez(tmp_path / "x.npz", x=np.zeros((1, 2)), **{key: np.array(["cat", "dog"])})
        assert load_dataset(tmp_path / "x.npz").class_names == ("cat", "dog")


def test_npz_mistakes_are_one_sentence(tmp_path: Path) -> None:
    np.savez(tmp_path / "names.npz", features=np.zeros((2, 2)))
    np.savez(tmp_path / "whole.npz", x=RANDOM.random((20, 20)))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:900])
    (tmp_path / "text.npz").write_text("<html>")
    content = bytearray((tmp_path / "whole.npz").read_bytes())
    content[1000] ^= 1
    (tmp_path / "flipped.npz").write_bytes(content)
    mistakes = {
        "names": "no-inputs-in-file",
        "cut": "damaged-npz",
        "text": "damaged-npz",
        "flipped": "damaged-npz",
        "nowhere": "no-file",
    }
    for name, code in mistakes.items():
        with refused(code, path=tmp_path / f"{name}.npz"):
            load_dataset(tmp_path / f"{name}.npz")


def with_header(path: Path, **entries: object) -> Path:
    """An archive whose array x has another header than its content."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (2, 2)} | entries
    with zipfile.ZipFile(path, "w") as archive, archive.open("x.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.write(np.zeros(4, np.float32).tobytes())
    return path


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ({"shape": (2**40, 2**20)}, "damaged-npz"),
        ({"shape": (3, 3)}, "damaged-npz"),
        ({"descr": "<f9"}, "damaged-npz"),
        ({"descr": "|O"}, "objects-in-npz"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(tmp_path: Path, entries: dict, code: str) -> None:
    with refused(code, path=tmp_path / "x.npz"):
        load_dataset(with_header(tmp_path / "x.npz", **entries))

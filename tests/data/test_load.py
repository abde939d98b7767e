"""A name leads to a data set, or to an error that lists the choices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.refusals import refused

from smoothcert.data import load_dataset
from smoothcert.errors import InvalidInput


@pytest.mark.parametrize(
    "spec", ["nowhere", "mnist", "cifar10", "cifar10:", "imagenet", "hf", "fashion-mnist:"]
)
def test_the_error_for_an_unknown_name_says_what_to_write(spec: str) -> None:
    with pytest.raises(InvalidInput, match=r":DIR|hf:NAME"):
        load_dataset(spec)


def test_the_error_for_a_single_array_says_how_to_save_a_data_set(tmp_path: Path) -> None:
    (tmp_path / "x.npy").touch()
    with refused("unknown-data", spec=str(tmp_path / "x.npy")):
        load_dataset(tmp_path / "x.npy")


@pytest.mark.parametrize("spec", ["~/d.npz", "cifar10:~/d", "~/d"])
def test_the_home_folder_is_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "d").mkdir()
    with pytest.raises(InvalidInput, match=str(tmp_path / "d")):
        load_dataset(spec)


@pytest.mark.parametrize("spec", ["d.npz", "cifar10:d", "d"])
def test_the_error_for_unreadable_data_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    def refuse(path: Path, *args: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.chdir(tmp_path)
    (tmp_path / "d" / "cifar-10-batches-bin").mkdir(parents=True)
    (tmp_path / "d" / "cifar-10-batches-bin" / "test_batch.bin").touch()
    (tmp_path / "d.npz").touch()
    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "iterdir", refuse)
    monkeypatch.setattr("numpy.fromfile", refuse)
    with refused("unreadable-data", reason="Permission denied"):
        load_dataset(spec)


def test_data_is_loaded_and_read_without_torch() -> None:
    """Reports show inputs, and torch takes seconds to import."""
    code = (
        "import sys; from smoothcert.data import load_dataset; "
        "from smoothcert.data.base import values_of; "
        "print(values_of(load_dataset('fashion-mnist'), 0).shape, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(1, 28, 28) False"

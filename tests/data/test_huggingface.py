"""Hugging Face data sets, saved to a folder and loaded offline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.refusals import refused

from smoothcert.data import load_dataset
from smoothcert.data.huggingface import HuggingFaceDataset
from smoothcert.errors import MissingExtra

datasets = pytest.importorskip("datasets")
PIXELS = np.random.default_rng(3).integers(0, 256, (4, 6, 8, 3), np.uint8)


def table(rows: slice, **columns: Any) -> Any:
    features = {
        "id": datasets.Value("int64"),
        "img": datasets.Image(),
        "kind": datasets.ClassLabel(names=["no", "yes"]),
    }
    images = [Image.fromarray(pixels) for pixels in PIXELS[rows]]
    content = {
        "id": list(range(len(images))),
        "img": images,
        "kind": [i % 2 for i in range(len(images))],
        **columns,
    }
    return datasets.Dataset.from_dict(content, features=datasets.Features(features))


def test_a_saved_folder_is_read_by_split(tmp_path: Path) -> None:
    datasets.DatasetDict({"train": table(slice(3)), "validation": table(slice(3, 4))}).save_to_disk(
        tmp_path
    )
    train, test = (load_dataset(f"hf:{tmp_path}", train=train) for train in (True, False))
    assert (len(train), len(test), train.class_names) == (3, 1, ("no", "yes"))
    assert [train[i][1] for i in range(3)] == [0, 1, 0]
    assert torch.equal(train[1][0], torch.from_numpy(PIXELS[1]).permute(2, 0, 1) / 255)
    assert torch.equal(test[0][0], torch.from_numpy(PIXELS[3]).permute(2, 0, 1) / 255)


def test_the_fingerprint_is_stable_and_differs_between_the_splits(tmp_path: Path) -> None:
    datasets.DatasetDict({"train": table(slice(3)), "test": table(slice(3, 4))}).save_to_disk(
        tmp_path
    )
    first, again = (load_dataset(f"hf:{tmp_path}").fingerprint for _ in range(2))
    assert first == again != load_dataset(f"hf:{tmp_path}", train=True).fingerprint


def test_labels_may_be_missing(tmp_path: Path) -> None:
    table(slice(4)).remove_columns("kind").save_to_disk(tmp_path)
    data = load_dataset(f"hf:{tmp_path}")
    assert (data[2][1], data.class_names) == (-1, None)


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    with refused("no-hf-data"):
        load_dataset(f"hf:{tmp_path}/nowhere")
    table(slice(4)).remove_columns("img").save_to_disk(tmp_path / "no-images")
    with refused("no-image-column", columns="id, kind"):
        load_dataset(f"hf:{tmp_path}/no-images")
    table(slice(0)).save_to_disk(tmp_path / "empty")
    with refused("no-hf-data"):
        load_dataset(f"hf:{tmp_path}/empty")
    with refused("no-data"):
        HuggingFaceDataset(table(slice(0)), name="mine")
    datasets.DatasetDict({"train": table(slice(4))}).save_to_disk(tmp_path / "train-only")
    with refused("no-split", split="test", splits="train"):
        load_dataset(f"hf:{tmp_path}/train-only")


def test_the_error_for_a_corrupt_image_gives_its_number(tmp_path: Path) -> None:
    table(
        slice(2), img=[Image.fromarray(PIXELS[0]), {"bytes": b"no image", "path": None}]
    ).save_to_disk(tmp_path)
    data = load_dataset(f"hf:{tmp_path}")
    with refused("unreadable-image", where=f"image 1 of {data.name}"):
        data[1]


def test_the_error_for_an_image_of_another_size_gives_its_number(tmp_path: Path) -> None:
    table(slice(2), img=[Image.fromarray(PIXELS[0]), Image.fromarray(PIXELS[1, :4])]).save_to_disk(
        tmp_path
    )
    with refused("other-image-size", shape=(3, 4, 8), first=(3, 6, 8)):
        load_dataset(f"hf:{tmp_path}")[1]


def test_the_error_for_a_missing_extra_gives_the_pip_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with refused("missing-extra", MissingExtra, extra="hf"):
        load_dataset("hf:some/data")

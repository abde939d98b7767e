"""Folders of images, and the validation folder of ImageNet."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.refusals import refused

from smoothcert.data import load_dataset

RANDOM = np.random.default_rng(2)


def write(path: Path, *, size: tuple[int, int] = (8, 6), mode: str = "RGB") -> np.ndarray:
    """Save a random image of size (width, height) and return its pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (size[1], size[0]) if mode in ("L", "I;16") else (size[1], size[0], len(mode))
    pixels = RANDOM.integers(0, 256, shape, np.uint16 if mode == "I;16" else np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels


def test_class_folders_and_files_are_numbered_in_order(tmp_path: Path) -> None:
    pixels = {name: write(tmp_path / name) for name in ("b/2.png", "b/1.png", "a/z.PNG", "c/0.png")}
    (tmp_path / "a" / "notes.txt").touch()
    (tmp_path / "a" / "._z.PNG").touch()
    (tmp_path / "._0.png").touch()
    (tmp_path / ".cache").mkdir()
    (tmp_path / "__MACOSX").mkdir()
    data = load_dataset(tmp_path)
    order = ["a/z.PNG", "b/1.png", "b/2.png", "c/0.png"]
    assert data.class_names == ("a", "b", "c")
    assert [data[i][1] for i in range(len(data))] == [0, 1, 1, 2]
    for i, name in enumerate(order):
        assert torch.equal(data[i][0], torch.from_numpy(pixels[name]).permute(2, 0, 1) / 255)


@pytest.mark.parametrize(
    ("folders", "labels", "names"),
    [
        (["3", "7"], [3, 7], None),
        (
            ["0", "1", "10", "2", "3", "4", "5", "6", "7", "8", "9"],
            [0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9],
            range(11),
        ),
        (["0000", "0001"], [0, 1], ["0000", "0001"]),
    ],
)
def test_class_folders_named_by_numbers_have_these_labels(
    folders: list[str],
    labels: list[int],
    names: list[str] | None,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for folder in folders:
        write(tmp_path / folder / "0.png")
    data = load_dataset(tmp_path)
    assert [data[i][1] for i in range(len(data))] == labels
    assert data.class_names == (None if names is None else tuple(map(str, names)))
    assert not caplog.messages


def test_other_class_folders_are_numbered_in_order_which_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for folder in ("7", "cat", "03"):
        write(tmp_path / folder / "0.png")
    assert load_dataset(tmp_path).class_names == ("03", "7", "cat")
    [message] = caplog.messages
    assert message.endswith("the positions of its 3 class folders: 0 03, 1 7, 2 cat")


def test_test_folders_named_by_numbers_keep_these_labels(tmp_path: Path) -> None:
    for name in ("train/3/1.png", "train/7/1.png", "test/7/2.png"):
        write(tmp_path / name)
    assert load_dataset(tmp_path)[0][1] == 7


def test_an_image_that_a_link_does_not_reach_is_not_left_out_silently(tmp_path: Path) -> None:
    write(tmp_path / "a" / "0.png")
    (tmp_path / "a" / "1.png").symlink_to(tmp_path / "gone.png")
    with refused("broken-link", path=tmp_path / "a" / "1.png"):
        load_dataset(tmp_path)
    write(tmp_path / "gone.png")
    assert len(load_dataset(tmp_path / "a")) == 2


def test_a_folder_named_by_a_number_beyond_all_classes_is_a_name(tmp_path: Path) -> None:
    write(tmp_path / "0" / "0.png")
    write(tmp_path / ("9" * 20) / "0.png")
    assert load_dataset(tmp_path).labels.tolist() == [0, 1]


def test_images_without_class_folders_have_unknown_labels(tmp_path: Path) -> None:
    write(tmp_path / "1.png")
    write(tmp_path / "0.png")
    data = load_dataset(str(tmp_path))
    assert (len(data), data.class_names, data[1][1]) == (2, None, -1)


def test_training_and_test_folders_are_separate(tmp_path: Path) -> None:
    write(tmp_path / "train" / "a" / "0.png")
    write(tmp_path / "train" / "a" / "1.png")
    write(tmp_path / "test" / "a" / "0.png")
    assert [len(load_dataset(tmp_path, train=train)) for train in (True, False)] == [2, 1]


def test_test_images_of_some_classes_keep_the_numbers_of_the_training_classes(
    tmp_path: Path,
) -> None:
    for name in ("train/a/1.png", "train/b/1.png", "train/c/1.png", "test/c/2.png", "test/a/2.png"):
        write(tmp_path / name)
    data = load_dataset(tmp_path)
    assert data.class_names == ("a", "b", "c")
    assert [data[i][1] for i in range(len(data))] == [0, 2]
    assert data.fingerprint != load_dataset(tmp_path / "test").fingerprint
    write(tmp_path / "test/d/1.png")
    with refused("class-not-in-training", folder=tmp_path / "test", name="d"):
        load_dataset(tmp_path)


def test_grey_images_have_one_channel_unless_the_first_image_has_colour(tmp_path: Path) -> None:
    grey = write(tmp_path / "grey" / "0.png", mode="L")
    assert torch.equal(load_dataset(tmp_path / "grey")[0][0], torch.from_numpy(grey)[None] / 255)
    write(tmp_path / "mixed" / "0.png")
    shutil.copy(tmp_path / "grey" / "0.png", tmp_path / "mixed" / "1.png")
    assert torch.equal(
        load_dataset(tmp_path / "mixed")[1][0], torch.from_numpy(grey).expand(3, -1, -1) / 255
    )


@pytest.mark.parametrize(
    ("other", "code", "advice"),
    [
        ({"size": (5, 6)}, "other-image-size", "resized:6x8:DATA"),
        ({"mode": "RGB"}, "other-image-colour", "save all in grey or in colour"),
    ],
)
def test_the_error_for_an_image_of_another_form_gives_its_path_and_what_differs(
    other: dict[str, Any], code: str, advice: str, tmp_path: Path
) -> None:
    write(tmp_path / "0.png", mode="L")
    (tmp_path / "1.png").write_bytes(b"broken")
    write(tmp_path / "2.png", **{"mode": "L"} | other)
    data = load_dataset(tmp_path)
    data.check_shapes([0, 1])  # a damaged image matters only if it is certified
    for read in (data.__getitem__, lambda id: data.check_shapes([0, id])):
        with refused(code, where=tmp_path / "2.png", first=(1, 6, 8)) as raised:
            read(2)
        assert advice in str(raised.value)


@pytest.mark.parametrize("kept", [0, 20, 0.7])
@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_the_error_for_a_corrupt_image_gives_its_path(
    kept: float, suffix: str, tmp_path: Path
) -> None:
    write(tmp_path / f"0.{suffix}", size=(64, 64))
    write(tmp_path / f"1.{suffix}", size=(64, 64))
    broken = tmp_path / f"1.{suffix}"
    content = broken.read_bytes()
    broken.write_bytes(content[: kept if isinstance(kept, int) else int(kept * len(content))])
    data = load_dataset(tmp_path)
    with refused("unreadable-image", where=broken):
        data[1]


def test_more_than_8_bits_per_channel_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "0.png", mode="I;16")
    with refused("more-than-8-bits", mode="I;16"):
        load_dataset(tmp_path)


def test_other_folder_layouts_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "deep" / "images" / "a" / "0.png")
    write(tmp_path / "both" / "a" / "0.png")
    write(tmp_path / "both" / "0.png")
    for name, images, subfolders, empty in [
        ("empty", 0, 0, ""),
        ("deep", 0, 1, ", and images holds no images"),
        ("both", 1, 1, ""),
    ]:
        with refused("not-image-folder", images=images, subfolders=subfolders, empty=empty):
            load_dataset(tmp_path / name)


def test_the_fingerprint_depends_on_the_files_and_not_on_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "one" / "a" / "0.png")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    fingerprints = [load_dataset(tmp_path / name).fingerprint for name in ("one", "two")]
    write(tmp_path / "two" / "a" / "1.png")
    assert fingerprints[0] == fingerprints[1] != load_dataset(tmp_path / "two").fingerprint


@pytest.mark.parametrize("suffix", ["bmp", "ppm", "png"])
def test_the_fingerprint_depends_on_the_pixels(suffix: str, tmp_path: Path) -> None:
    for i in range(40):
        write(tmp_path / f"{i:02d}.{suffix}")
    before = load_dataset(tmp_path).fingerprint
    file = tmp_path / f"17.{suffix}"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert load_dataset(tmp_path).fingerprint != before


def test_the_fingerprint_of_a_large_folder_reads_some_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(40):
        write(tmp_path / f"{i:02d}.bmp")
    os.truncate(tmp_path / "01.bmp", 2**27)  # an empty end, which takes no space on the disk
    data = load_dataset(tmp_path)
    read: list[Path] = []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path) or read_bytes(path))
    assert data.fingerprint
    assert len(read) == 16
    assert {read[0].name, read[-1].name} == {"00.bmp", "39.bmp"}


# ImageNet


def write_imagenet(folder: Path) -> None:
    for wnid, number, size in [
        ("n01443537", 236, (500, 375)),
        ("n01440764", 3014, (333, 500)),
        ("n01440764", 293, (256, 256)),
        ("n01484850", 2338, (97, 64)),
    ]:
        write(folder / "val" / wnid / f"ILSVRC2012_val_{number:08d}.JPEG", size=size)


@pytest.mark.filterwarnings("ignore:.*class folders, not 1000")
def test_imagenet_is_prepared_as_torchvision_prepares_it(tmp_path: Path) -> None:
    datasets = pytest.importorskip("torchvision").datasets
    transforms = pytest.importorskip("torchvision").transforms
    write_imagenet(tmp_path)
    usual = transforms.Compose(
        [transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()]
    )
    expected = datasets.ImageFolder(str(tmp_path / "val"), usual)
    for data in (load_dataset(f"imagenet:{tmp_path}"), load_dataset(f"imagenet:{tmp_path}/val")):
        assert len(data) == len(expected) == 4
        for i in range(4):
            assert torch.equal(data[i][0], expected[i][0])
            assert data[i][1] == expected[i][1]


@pytest.mark.filterwarnings("ignore:.*class folders, not 1000")
def test_grey_imagenet_images_get_three_channels(tmp_path: Path) -> None:
    write(tmp_path / "n01440764" / "0.JPEG", mode="L")
    assert load_dataset(f"imagenet:{tmp_path}")[0][0].shape == (3, 224, 224)


def test_a_subset_of_imagenet_warns_about_its_labels(tmp_path: Path) -> None:
    write_imagenet(tmp_path)
    with pytest.warns(UserWarning, match="3 class folders, not 1000"):
        load_dataset(f"imagenet:{tmp_path}")


def test_the_error_for_missing_or_unsorted_imagenet_says_what_to_do(tmp_path: Path) -> None:
    with refused("no-imagenet"):
        load_dataset(f"imagenet:{tmp_path}/nowhere")
    write(tmp_path / "val" / "ILSVRC2012_val_00000001.JPEG")
    with refused("no-imagenet", place=str(tmp_path)):
        load_dataset(f"imagenet:{tmp_path}")


@pytest.mark.filterwarnings("ignore:.*class folders")
def test_the_fingerprint_depends_on_the_preparation(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (224, 224), "red").save(tmp_path / name / "0.png")
    assert (
        load_dataset(f"{tmp_path}").fingerprint != load_dataset(f"imagenet:{tmp_path}").fingerprint
    )


@pytest.mark.parametrize("damaged", [0, 2])
def test_a_damaged_image_matters_only_where_it_is_read(tmp_path: Path, damaged: int) -> None:
    for i in range(3):
        write(tmp_path / f"{i}.png")
    (tmp_path / f"{damaged}.png").write_bytes(b"broken")
    data = load_dataset(tmp_path)
    assert data.fingerprint
    assert data[1][0].shape == (3, 6, 8)
    with refused("unreadable-image", where=tmp_path / f"{damaged}.png"):
        data[damaged]

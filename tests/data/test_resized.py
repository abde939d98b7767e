"""Pictures that are brought to one size before the noise."""

import json

import numpy as np
import pytest
from PIL import Image, ImageOps
from tests.refusals import refused
from typer.testing import CliRunner

import smoothcert as sc
from smoothcert.cli import app
from smoothcert.data import load_dataset

RANDOM = np.random.default_rng(3)


@pytest.fixture
def photos(tmp_path):
    """Photos of two classes, all of other sizes."""
    for number, size in enumerate([(20, 30), (31, 17), (12, 12), (40, 8)]):
        file = tmp_path / "photos" / "ab"[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(RANDOM.integers(0, 256, (*size, 3), np.uint8)).save(file)
    return tmp_path / "photos"


def test_photos_of_all_sizes_are_resized_to_cover_and_cropped(photos):
    with refused("other-image-size"):
        [load_dataset(photos)[id] for id in range(4)]
    data = load_dataset(f"resized:16x12:{photos}")
    assert (len(data), data.class_names, data.labels.tolist()) == (4, ("a", "b"), [0, 0, 1, 1])
    assert {tuple(data[id][0].shape) for id in range(4)} == {(3, 16, 12)}
    with Image.open(photos / "a" / "0.png") as image:
        expected = ImageOps.fit(image, (12, 16), Image.Resampling.BILINEAR)
    assert np.array_equal(data.stored(0), np.asarray(expected).transpose(2, 0, 1))


def test_the_fingerprint_knows_size_and_content(photos):
    names = [f"resized:{size}:{photos}" for size in ("16", "16x16", "16x12")]
    one, same, other = (load_dataset(name).fingerprint for name in names)
    assert one == same != other
    Image.new("RGB", (9, 9)).save(photos / "a" / "0.png")
    assert load_dataset(names[0]).fingerprint != one


def test_arrays_and_grey_pictures_are_resized_too(tmp_path):
    assert load_dataset("resized:14:fashion-mnist")[0][0].shape == (1, 14, 14)
    np.savez(tmp_path / "floats.npz", x=RANDOM.random((2, 1, 4, 4)))
    with refused("not-pictures"):
        load_dataset(f"resized:8:{tmp_path / 'floats.npz'}")


@pytest.mark.parametrize("name", ["resized:16", "resized:", "resized:0:fashion-mnist"])
def test_mistakes_are_refused(name):
    with pytest.raises(sc.InvalidInput):
        load_dataset(name)


def test_the_command_line_records_the_size_so_that_an_audit_finds_the_pictures(photos, tmp_path):
    out = tmp_path / "run"
    model = "--model cifar-resnet20 --weights none --classes 2"
    plan = "--sigma 0.25 --samples 20 --alpha 0.1 --pilot 10 --device cpu --batch 32"
    made = ["certify", *model.split(), "--data", str(photos), "--input-size", "32"]
    assert CliRunner().invoke(app, [*made, *plan.split(), "--out", str(out)]).exit_code == 0
    audited = CliRunner().invoke(app, ["audit", str(out), "--redraw", "2", "--json"])
    assert audited.exit_code == 0
    assert json.loads(audited.stdout)["redrawn"] == 2


def test_an_npz_file_may_name_its_classes(tmp_path):
    file = tmp_path / "named.npz"
    np.savez(file, x=np.zeros((2, 3)), y=[0, 1], names=["cat", "dog"])
    assert load_dataset(file).class_names == ("cat", "dog")
    np.savez(file, x=np.zeros((2, 3)), y=[0, 2], names=["cat", "dog"])
    with refused("label-out-of-range"):
        load_dataset(file)

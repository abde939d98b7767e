import numpy as np
import pytest
import torch
from tests.refusals import refused

from smoothcert.data import ArrayDataset
from smoothcert.training.device_data import DeviceData, augment

CPU = torch.device("cpu")


def test_bytes_are_kept_as_bytes_and_come_back_exactly():
    images = np.arange(256, dtype=np.uint8).reshape(4, 1, 8, 8)
    dataset = ArrayDataset(images, np.arange(4), name="bytes")
    data = DeviceData.from_dataset(dataset, CPU)
    assert data.inputs.dtype == torch.uint8
    assert torch.equal(data.batch(torch.tensor([2]))[0], dataset[2][0])


def test_other_floats_come_back_exactly():
    images = np.random.default_rng(0).random((4, 1, 8, 8), np.float32)
    data = DeviceData.from_dataset(ArrayDataset(images, np.arange(4), name="floats"), CPU)
    assert torch.equal(data.batch(torch.arange(4)), torch.from_numpy(images))


def test_an_input_that_is_not_finite_is_refused():
    values = np.zeros((3, 1, 2, 2), np.float32)
    values[2, 0, 0, 0] = np.nan
    dataset = ArrayDataset(values, np.zeros(3, np.int64), name="d")
    with refused("not-finite", input=2, data="d"):
        DeviceData.from_dataset(dataset, CPU)


def test_training_without_labels_is_refused():
    dataset = ArrayDataset(np.zeros((4, 1, 8, 8), np.uint8), name="nameless")
    with refused("missing-labels", data="nameless"):
        DeviceData.from_dataset(dataset, CPU)


def test_every_augmented_image_is_a_shifted_image_or_its_mirror():
    torch.manual_seed(0)
    x = torch.rand(16, 3, 6, 6)
    padded = torch.nn.functional.pad(x, [4] * 4)
    views = set()
    for original, result in zip(padded, augment(x), strict=True):
        matches = [
            (down, right, mirrored)
            for down in range(9)
            for right in range(9)
            for mirrored in (False, True)
            if torch.equal(
                result,
                (original[:, down : down + 6, right : right + 6]).flip(2 if mirrored else []),
            )
        ]
        assert len(matches) == 1
        views.add(matches[0])
    assert len({down for down, _, _ in views}) > 3
    assert len({right for _, right, _ in views}) > 3
    assert {mirrored for _, _, mirrored in views} == {False, True}


def test_grey_images_and_vectors_are_left_alone():
    for shape in ((2, 1, 8, 8), (2, 3)):
        x = torch.rand(shape)
        assert augment(x) is x


@pytest.mark.filterwarnings("ignore:.*not in .0, 1.")
def test_values_outside_of_0_to_1_stay_floats():
    images = np.array([[[[-1 / 255, 0.0]]], [[[1.0, 2.0]]]], dtype=np.float32)
    data = DeviceData.from_dataset(ArrayDataset(images, np.array([0, 1]), name="other"), CPU)
    assert torch.equal(data.batch(torch.arange(2)), torch.from_numpy(images))

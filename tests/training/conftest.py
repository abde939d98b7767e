import numpy as np
import pytest
import torch

from smoothcert.data import ArrayDataset


def quadrants(count: int, seed: int) -> ArrayDataset:
    """Grey images with one brighter quadrant; the quadrant is the class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, count)
    images = rng.integers(0, 120, (count, 1, 28, 28))
    for image, label in zip(images, labels, strict=True):
        row, column = divmod(label, 2)
        image[0, 14 * row : 14 * row + 14, 14 * column : 14 * column + 14] += 100
    return ArrayDataset(
        images.astype(np.uint8), labels, name="quadrants", class_names=("a", "b", "c", "d")
    )


@pytest.fixture(scope="session")
def small():
    """Training data and validation data."""
    return quadrants(512, 0), quadrants(128, 1)


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    """Use one thread: in steps this small, threads cost more time than they save."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def own_records(caplog):
    """What smoothcert has logged; torch's compiler logs a lot."""
    return lambda: [record for record in caplog.records if record.name.startswith("smoothcert")]

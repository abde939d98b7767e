import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from smoothcert.datasets.wrap import as_dataset
from smoothcert.errors import InvalidInput


def test_a_list_and_a_torch_data_set_are_the_same_data():
    x, y = torch.rand(20, 3), torch.arange(20) % 4
    listed = as_dataset([(values.tolist(), int(label)) for values, label in zip(x, y, strict=True)])
    tensors = as_dataset(TensorDataset(x.clone().requires_grad_(), y))
    assert len(listed) == len(tensors) == 20
    assert listed.fingerprint == tensors.fingerprint
    torch.testing.assert_close(listed[7][0], x[7])
    assert tensors[7][1] == 3
    assert not tensors[7][0].requires_grad


@pytest.mark.parametrize("change", [0, 19])
def test_other_values_labels_or_lengths_are_other_data(change):
    data = [(np.full(3, i / 20), i) for i in range(20)]
    known = as_dataset(data).fingerprint
    assert as_dataset(data[:-1]).fingerprint != known
    for other in ((np.full(3, 0.99), change), (data[change][0], 99)):
        assert as_dataset([*data[:change], other, *data[change + 1 :]]).fingerprint != known


BYTES = np.array([[0, 51, 255]], np.uint8)


@pytest.mark.parametrize(
    "x",
    [
        BYTES,
        torch.from_numpy(BYTES),
        BYTES[:, ::-1].copy()[:, ::-1],
        (BYTES / 255).astype(">f8"),
        Image.fromarray(BYTES),
    ],
    ids=["bytes", "tensor of bytes", "reversed view", "big-endian", "image"],
)
def test_bytes_and_floats_are_the_same_input(x):
    torch.testing.assert_close(as_dataset([(x, 0)])[0][0].flatten(), torch.tensor([0, 0.2, 1]))


def test_values_outside_the_unit_interval_give_a_warning():
    with pytest.warns(UserWarning, match=r"the first input: values lie in \[-2, 255\]"):
        as_dataset([([-2, 255], 0)])


@pytest.mark.parametrize("label", [3, 3.0, np.int64(3), np.array([3]), torch.tensor(3)])
def test_a_label_is_an_integer_of_any_type(label):
    assert as_dataset([(np.zeros(2), label)])[0][1] == 3


def test_a_missing_label_is_unknown():
    assert as_dataset([(np.zeros(2), None)])[0][1] == -1


X, Y = torch.zeros(4, 2), torch.arange(4)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "empty"),
        (5, r"data must give pairs \(input, label\) by index, .* got int"),
        (DataLoader(TensorDataset(X, Y)), "got DataLoader"),
        ({"x": X, "y": Y}, "got dict"),
        (X, "got Tensor as input 0 of Tensor"),
        ((X, Y), "got Tensor as input 0 of tuple"),
        (TensorDataset(X), "got 1 values as input 0"),
        ([{"x": X, "y": 1}], "got dict as input 0 of list"),
        ([(X, [0, 1])], "the label of input 0 must be the number of its class, got 2 values"),
        ([(X, 0.5)], "the label of input 0 must be a whole number"),
        ([("cat.png", 0)], "an input must be an array of numbers, got str"),
        ([(None, 0)], "got NoneType"),
        ([([[1], [1, 2]], 0)], "nested lists of different lengths"),
    ],
)
def test_other_objects_are_refused(data, message):
    with pytest.raises(InvalidInput, match=message):
        as_dataset(data)

import numpy as np
import pytest
import torch

from smoothcert.datasets.wrap import as_dataset
from smoothcert.errors import InvalidInput


def test_lists_of_arrays_and_torch_data_sets_are_the_same_data():
    x, y = torch.rand(20, 3), torch.arange(20) % 4
    listed = as_dataset([(values.tolist(), int(label)) for values, label in zip(x, y, strict=True)])
    tensors = as_dataset(torch.utils.data.TensorDataset(x.clone().requires_grad_(), y))
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


def test_what_is_no_data_is_refused():
    with pytest.raises(InvalidInput, match="empty"):
        as_dataset([])
    with pytest.raises(InvalidInput, match="got int"):
        as_dataset(5)

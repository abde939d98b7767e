import pytest
import torch

import smoothcert as sc
from smoothcert.data import ArrayDataset


def bind(x, noise):
    dataset = ArrayDataset(x.numpy(), name="some")
    smoothed = sc.Smoothed(lambda x: (x[:, 0] > 0).long(), noise=noise, classes=2, device="cpu", batch=100)
    return smoothed.bind(dataset, ()), dataset


def refuses(values):
    subject, dataset = bind(values[None].repeat(2, 1), sc.GridGaussian(0.5))
    try:
        subject.read(dataset, 1)
    except sc.InvalidInput:
        return True
    return False


@pytest.mark.filterwarnings("ignore:.*values lie in")
def test_bytes_are_on_the_grid_however_float32_scaled_them():
    levels = torch.arange(256.0)
    x = levels / 255
    mean, deviation = torch.tensor(0.456), torch.tensor(0.224)
    for same in (x, levels * (1 / 255), levels / 127.5 - 1, 2 * x - 1, (x - mean) / deviation * deviation + mean):
        assert not refuses(same)
    assert refuses(x + 1e-6)  # on every value of an ImageNet input, this would be .0004 in l2
    assert refuses(x.half().float())


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (
            sc.GridGaussian(0.5),
            r"^input 1 of some has the value 0.3, but GridGaussian.* needs multiples of 1/255: round",
        ),
        (sc.Discrete(0.8), "needs multiples of 1/1 from 0 to 1"),
    ],
)
def test_inputs_beside_the_grid_are_refused(noise, message):
    subject, dataset = bind(torch.tensor([[0.0, 1.0], [0.0, 0.3]]), noise)
    subject.read(dataset, 0)
    with pytest.raises(sc.InvalidInput, match=message):
        subject.read(dataset, 1)

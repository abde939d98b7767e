import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import nn

import smoothcert as sc
from smoothcert.data import ArrayDataset


def bind(x, noise):
    dataset = ArrayDataset(x.numpy(), name="some")
    smoothed = sc.Smoothed(
        lambda x: (x[:, 0] > 0).long(), noise=noise, classes=2, device="cpu", batch=100
    )
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
    for same in (
        x,
        levels * (1 / 255),
        levels / 127.5 - 1,
        2 * x - 1,
        (x - mean) / deviation * deviation + mean,
    ):
        assert not refuses(same)
    assert refuses(x + 1e-6)  # on every value of an ImageNet input, this would be .0004 in l2
    assert refuses(x.half().float())


@pytest.mark.parametrize(
    ("noise", "levels", "limits"),
    [(sc.GridGaussian(0.5), 255, ""), (sc.Discrete(0.8), 1, " from 0 to 1")],
)
def test_inputs_beside_the_grid_are_refused(noise, levels, limits):
    subject, dataset = bind(torch.tensor([[0.0, 1.0], [0.0, 0.3]]), noise)
    subject.read(dataset, 0)
    with refused("off-grid", which="input 1 of some", range=limits) as caught:
        subject.read(dataset, 1)
    assert caught.value.fields["value"] == pytest.approx(0.3)
    assert caught.value.fields["levels"] == pytest.approx(levels)


SECONDS = 1_700_000_060.0


def late(x):
    return (x[:, 0] > 1_700_000_000).long()


class Late(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(1.0, dtype=torch.float64))

    def forward(self, x):
        return torch.stack([1_700_000_000 - x[:, 0], x[:, 0] - 1_700_000_000], 1) * self.slope


ROUNDED = r"input 0 of .* has a value of size 1.7\d*e\+09, where .* in float32 are 1.3e\+02 apart, .*dtype=\"float64\""


@pytest.mark.filterwarnings("ignore:.*values lie in")
@pytest.mark.parametrize(
    "x",
    [[[SECONDS]], np.array([[SECONDS]]), torch.tensor([[SECONDS]], dtype=torch.float64)],
    ids=type,
)
def test_an_input_is_not_rounded_by_more_than_a_little_of_the_noise(x):
    """In float32 it would be 1,700,000,000, with class 0 and radius 48, though the class is 1 at distance 60."""
    settings = {"noise": sc.Gaussian(15), "device": "cpu"}
    for model, dtype in ((late, "auto"), (Late(), "float32")):
        with pytest.raises(sc.InvalidInput, match=ROUNDED):
            sc.Smoothed(model, classes=2, dtype=dtype, **settings).certify(x, plan=sc.Fixed(1000))
    for model, dtype in ((late, "float64"), (Late(), "auto")):
        [found] = sc.Smoothed(model, classes=2, dtype=dtype, **settings).certify(
            x, plan=sc.Fixed(1000)
        )
        assert found.prediction == 1
        assert 30 < found.radius < 60


HALF_A_SPACING = float(np.spacing(np.float32(4000))) / 2


@pytest.mark.filterwarnings("ignore:.*values lie in")
@pytest.mark.parametrize(
    ("noise", "values", "size", "moved", "norm"),
    [
        (sc.Gaussian(0.25), 4000 + HALF_A_SPACING, 60_000, 0.0299, "l2"),
        (sc.Gaussian(0.25), 4000 + HALF_A_SPACING, 9, 0.000366, "l2"),
        (sc.Brightness(0.25), 4000 + HALF_A_SPACING, 60_000, 0.0299, "l2"),
        (sc.Uniform(0.5), 100 + 2.0**-18, 3_000, 0.01144, "l1"),
        (sc.Laplace(0.5), 100 + 2.0**-18, 3_000, 0.01144, "l1"),
        (sc.Splitting(0.5), 1 + 2.0**-24, 150_528, 0.00897, "l1"),
    ],
    ids=str,
)
def test_rounding_is_measured_over_all_numbers_of_an_input(noise, values, size, moved, norm):
    """Each number is moved by less than a thousandth of the noise."""
    x = torch.full((1, size), values, dtype=torch.float64)
    subject, dataset = bind(x, noise)
    with refused("rounded-input", norm=norm) as caught:
        subject.read(dataset, 0)
    assert caught.value.fields["moved"] == pytest.approx(moved, rel=1e-2)
    with refused("rounded-input", norm=norm, id=0):
        sc.Smoothed(late, noise=noise, classes=2, device="cpu").certify(x, plan=sc.Fixed(100))
    subject, dataset = bind(x.float(), noise)
    subject.read(dataset, 0)


def test_images_in_float64_are_certified_as_float32_holds_them():
    """Their rounding is far below the noise."""
    x = torch.arange(150_528).remainder(256).double()[None] / 255
    for noise in (sc.Gaussian(0.05), sc.Brightness(0.05), sc.GridGaussian(0.25), sc.Ablation(9)):
        subject, dataset = bind(x, noise)
        subject.read(dataset, 0)
    for noise in (sc.Uniform(0.1), sc.Laplace(0.1), sc.Splitting(0.5)):
        subject, dataset = bind(x[:, :3072], noise)
        subject.read(dataset, 0)


@pytest.mark.filterwarnings("ignore:.*values lie in")
def test_values_on_a_grid_are_refused_where_float32_does_not_hold_it():
    subject, dataset = bind(
        torch.tensor([[2.0**24 + 60]], dtype=torch.float64), sc.GridGaussian(15.0, step=1.0)
    )
    with refused("value-too-large", spacing=2.0, dtype="float32"):
        subject.read(dataset, 0)
    subject, dataset = bind(
        torch.tensor([[2.0**20 + 60]], dtype=torch.float64), sc.GridGaussian(15.0, step=1.0)
    )
    subject.read(dataset, 0)

"""`resize` and `channels` change pictures inside of the classifier, after noise and denoiser."""

import numpy as np
import pytest
import torch
from PIL import Image
from tests.refusals import refused
from torch import nn
from torch.nn.functional import interpolate

import smoothcert as sc
from smoothcert.models import Classifier
from smoothcert.models.wrappers import Fit, grey
from smoothcert.tasks.audit import audit

PICTURES = np.random.default_rng(0).integers(0, 256, (6, 1, 8, 8), np.uint8)
SETTINGS = {
    "sigma": 0.25,
    "plan": sc.Fixed(200, alpha=0.01),
    "device": "cpu",
    "dtype": "float32",
    "batch": 64,
}


class Network(nn.Module):
    """Takes colour pictures of 16x16 alone."""

    def __init__(self, channels=3):
        super().__init__()
        self.size = 16
        self.head = nn.Linear(channels * 16 * 16, 4)

    def forward(self, x):
        return self.head(x.flatten(1))


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return Network().eval()


def votes(results):
    return [certificate.looks for certificate in results]


def certify(model, data=PICTURES, **settings):
    return sc.certify(model, data, **SETTINGS, **settings)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_noise_is_added_to_the_given_picture_which_is_resized_then(network, mode):
    def by_hand(x):
        large = interpolate(x, (16, 16), mode=mode, antialias=True)
        return network(large.repeat(1, 3, 1, 1))

    ours = certify(network, resize=f"16,{mode}", channels=3)
    assert votes(ours) == votes(certify(by_hand))
    assert votes(ours) != votes(certify(network, resize="16", channels=3, seed=1))


def test_a_function_is_fitted_as_a_module(network):
    ours = certify(lambda x: network(x), resize=16, channels=3)
    assert votes(ours) == votes(certify(network, resize="16,bilinear", channels=3))


def test_channels_are_a_whole_number(network):
    assert votes(certify(network, resize=16, channels=3.0)) == votes(
        certify(network, resize=16, channels=3)
    )
    with refused("not-whole"):
        certify(network, resize=16, channels=True)


def test_the_denoiser_sees_the_given_picture(network):
    shapes = set()

    class Watching(nn.Module):
        def forward(self, x):
            shapes.add(tuple(x.shape[1:]))
            return x.clamp(0, 1)

    certify(network, resize=16, channels=3, denoiser=Watching())
    assert shapes == {(1, 8, 8)}


def test_grey_values_are_those_of_pillow():
    colour = np.random.default_rng(1).integers(0, 256, (5, 7, 3), np.uint8)
    expected = np.asarray(Image.fromarray(colour).convert("L"))
    ours = grey(torch.from_numpy(colour).permute(2, 0, 1)[None] / 255)
    assert np.abs(255 * ours[0, 0].numpy() - expected).max() <= 0.51
    assert torch.equal(grey(ours), ours)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_every_number_format_can_be_resized(dtype):
    x = torch.rand(2, 1, 8, 8).to(getattr(torch, dtype))
    fitted = Fit.of("16x12,bicubic", 3)(x)
    assert (fitted.dtype, tuple(fitted.shape)) == (x.dtype, (2, 3, 16, 12))
    assert Fit.of("16x12,bicubic", 3).shape((1, 8, 8)) == (3, 16, 12)


def test_a_run_records_the_size_and_keeps_it(network, tmp_path):
    settings = SETTINGS | {"out": tmp_path}
    run = sc.certify(network, PICTURES, limit=3, resize=16, channels=3, **settings)
    assert run.manifest.settings == {"stochastic": False, "resize": "16", "channels": 3}
    with refused("other-configuration"):
        sc.certify(network, PICTURES, resize="16,bicubic", channels=3, **settings)
    for same in ("16", "16x16", "16,bilinear"):
        sc.certify(network, PICTURES, resize=same, channels=3, **settings)
    assert audit(tmp_path, redraw=6, model=network, data=PICTURES).holds


@pytest.mark.parametrize("resize", ["0", "16x", "big", "100000", "16,nearest"])
def test_other_sizes_are_refused_at_once(network, resize):
    code = "not-one-of" if "nearest" in resize else "not-a-size"
    with refused(code):
        sc.Smoothed(network, sigma=0.25, resize=resize)


def test_only_pictures_have_a_size_and_channels(network):
    with refused("not-one-of"):
        sc.Smoothed(network, sigma=0.25, channels=4)
    with refused("not-pictures"):
        certify(network, np.random.default_rng(0).random((2, 5), np.float32), resize=16)


def test_another_shape_names_the_settings_that_change_it(network):
    known = Classifier(network, 4, "known", input_shape=(3, 16, 16))
    with refused("other-channels") as error:
        certify(known)
    assert "channels=3" in str(error.value)
    assert "resize=16" in str(error.value)
    certify(known, resize=16, channels=3)
    with pytest.warns(UserWarning, match="resize=16"), refused("model-fails"):
        certify(known, np.repeat(PICTURES, 3, 1))


def test_a_shape_that_the_settings_make_is_not_called_that_of_the_data(network):
    known = Classifier(network, 4, "known", input_shape=(1, 16, 16))
    inside = str((3, 16, 16))
    with refused("other-channels", given=f"{PICTURES.shape[1:]} ({inside} in the classifier)"):
        certify(known, resize=16, channels=3)

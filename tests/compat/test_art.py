import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import nn

Theirs = pytest.importorskip(
    "art.estimators.certification.randomized_smoothing"
).PyTorchRandomizedSmoothing
from smoothcert.compat.art import PyTorchRandomizedSmoothing  # noqa: E402 (it needs ART)

X = np.array([[0.9, 0.2], [0.1, 0.4], [0.5, 0.5]], np.float32)


def network():
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
        layer.bias.copy_(torch.tensor([0.5, -0.5]))
    return layer.eval()


def estimator(cls=PyTorchRandomizedSmoothing, **settings):
    defaults = {
        "input_shape": (2,),
        "nb_classes": 2,
        "device_type": "cpu",
        "scale": 0.25,
        "sample_size": 100,
    }
    return cls(network(), nn.CrossEntropyLoss(), **(defaults | settings))


def test_certify_gives_classes_and_radii():
    prediction, radius = estimator().certify(X, n=2000, batch_size=500)
    assert prediction.tolist() == [1, 0, -1]
    assert radius[2] == 0
    assert np.all(radius[:2] > 0.3)
    assert np.all(radius[:2] < 0.4)


def test_predict_is_one_hot_and_zero_for_an_abstention():
    assert estimator().predict(X).tolist() == [[0, 1], [1, 0], [0, 0]]
    assert estimator().predict(X, is_abstain=False).sum() == 3


def test_preprocessing_comes_after_the_noise():
    doubled = estimator(preprocessing=(0.25, 0.5)).certify((X + 0.5) / 2, n=2000, batch_size=500)[1]
    assert np.all(doubled <= 0.2)  # distances to the boundary are halved, and sigma is not
    assert doubled[0] > 0.15


def test_preprocessing_may_have_one_number_per_channel():
    pixels = nn.Sequential(nn.Flatten(), nn.Linear(32, 2))
    image = np.random.default_rng(0).random((1, 2, 4, 4), dtype=np.float32)
    mean, std = np.array([0.1, 0.7]), np.array([0.5, 0.25])
    settings = {"input_shape": (2, 4, 4), "nb_classes": 2, "device_type": "cpu", "sample_size": 200}
    by_us = PyTorchRandomizedSmoothing(pixels, None, preprocessing=(mean, std), **settings)
    by_hand = nn.Sequential(nn.Flatten(), nn.Linear(32, 2))
    with torch.no_grad():
        scale = torch.tensor(std).float().repeat_interleave(16)
        shift = torch.tensor(mean).float().repeat_interleave(16)
        by_hand[1].weight.copy_(pixels[1].weight / scale)
        by_hand[1].bias.copy_(pixels[1].bias - by_hand[1].weight @ shift)
    plain = PyTorchRandomizedSmoothing(by_hand, None, preprocessing=None, **settings)
    ours, other = (e.certify(image, n=500, batch_size=100) for e in (by_us, plain))
    assert ours[0] == other[0]
    assert ours[1] == pytest.approx(other[1], abs=0.01)


@pytest.mark.filterwarnings("default")
def test_defences_are_refused():
    from art.defences.preprocessor import GaussianAugmentation

    with refused("defences-not-supported"):
        estimator(preprocessing_defences=[GaussianAugmentation()])


def test_inputs_of_another_shape_are_refused():
    with refused("other-shape", expected="2", shape=(2,)):
        estimator().certify(X[0], n=100)


def test_without_samples_no_class_can_be_chosen():
    with refused("too-small", name="sample_size", value=0):
        estimator(sample_size=0).certify(X, n=100)


@pytest.mark.filterwarnings("default")
def test_both_find_the_same_classes_and_nearly_the_same_radii():
    np.random.seed(0)  # noqa: NPY002 (what ART draws from)
    theirs = estimator(Theirs)
    ours = estimator()
    prediction, radius = theirs.certify(X, n=2000, batch_size=500)
    found, proved = ours.certify(X, n=2000, batch_size=500)
    assert found.tolist() == prediction.tolist()
    assert (found.dtype.kind, proved.dtype) == (prediction.dtype.kind, radius.dtype)
    np.testing.assert_allclose(proved, radius, atol=0.06)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


@pytest.fixture
def iris():
    """Three clouds of 50 points with four coordinates, as in the flowers of Fisher."""
    random = np.random.default_rng(0)
    centres = np.array([[0.2, 0.6, 0.1, 0.1], [0.5, 0.3, 0.6, 0.5], [0.7, 0.4, 0.8, 0.9]])
    y = np.repeat(np.arange(3), 50)
    return (centres[y] + 0.05 * random.standard_normal((150, 4))).astype(np.float32), y


def trained(cls, x, y, **settings):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 3))
    defaults = {"scale": 0.05, "sample_size": 100, "device_type": "cpu", "clip_values": (0, 1)}
    made = cls(
        model,
        nn.CrossEntropyLoss(),
        (4,),
        3,
        optimizer=torch.optim.Adam(model.parameters(), 0.02),
        **defaults | settings,
    )
    made.fit(x, np.eye(3)[y], batch_size=32, nb_epochs=30)
    return made


@pytest.mark.filterwarnings("default")
def test_it_is_an_estimator_that_art_trains_and_attacks(iris):
    from art.attacks.evasion import FastGradientMethod

    x, y = iris
    smooth = trained(PyTorchRandomizedSmoothing, x, y)
    assert isinstance(smooth, Theirs)
    assert (
        np.mean(smooth.predict(x).argmax(1) == y) > 0.95
    )  # fit has trained what predict answers with
    prediction, radius = smooth.certify(x, n=500)
    attacked = FastGradientMethod(estimator=smooth, eps=0.3).generate(x)
    assert np.mean(smooth.predict(attacked).argmax(1) == y) < 0.8
    sure = (prediction == y) & (radius > 0.05)
    near = FastGradientMethod(estimator=smooth, eps=0.05, norm=2).generate(x[sure])
    assert np.mean(smooth.predict(near, is_abstain=False).argmax(1) == y[sure]) == 1
    assert smooth.loss_gradient(x, np.eye(3)[y], sampling=True).shape == x.shape


@pytest.mark.filterwarnings("default")
def test_it_certifies_and_predicts_what_art_does(iris):
    x, y = iris
    np.random.seed(0)  # noqa: NPY002 (what ART draws from)
    ours, theirs = (trained(cls, x, y) for cls in (PyTorchRandomizedSmoothing, Theirs))
    (found, proved), (prediction, radius) = ours.certify(x, n=500), theirs.certify(x, n=500)
    assert np.mean(found == prediction) > 0.97
    assert proved.mean() == pytest.approx(radius.mean(), rel=0.02)
    assert np.mean(ours.predict(x).argmax(1) == theirs.predict(x).argmax(1)) > 0.97


def test_the_scale_may_be_changed_later():
    smooth = estimator()
    near = smooth.certify(X, n=500)[1]
    smooth.scale = 1.0
    assert smooth.certify(X, n=500)[1][0] != near[0]

import copy
import pickle

import pytest
import torch
from tests.refusals import refused
from torch import nn

from smoothcert import Smoothed
from smoothcert.models.base import check_values
from smoothcert.models.denoisers import Denoised, build_unet, compose, denoised, load_denoiser
from smoothcert.models.denoisers.base import check_estimates
from smoothcert.models.load import as_classifier
from smoothcert.noises import Brightness, Gaussian, GridGaussian, Laplace

X = torch.rand(5, 1, 8, 8)
NOISE = Gaussian(0.25)
CPU = torch.device("cpu")


@pytest.fixture
def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).requires_grad_(False).eval()


def brightest_half(x):
    return (x[..., :4].mean((1, 2, 3)) > x[..., 4:].mean((1, 2, 3))).long()


def test_the_classifier_sees_denoised_inputs(unet, network):
    expected = network(unet(X, torch.tensor([0.25])))
    assert torch.equal(compose(network, unet, NOISE)(X), expected)
    assert torch.equal(compose(network, unet, GridGaussian(0.25))(X), expected)
    assert torch.equal(compose(lambda x: network(x), unet, NOISE)(X), expected)


def test_a_function_behind_a_denoiser_is_no_module_but_can_be_pickled(unet):
    composed = compose(brightest_half, unet, NOISE)
    assert not isinstance(composed, nn.Module)
    labels = composed(X)
    assert torch.equal(pickle.loads(pickle.dumps(composed))(X), labels)
    assert composed(X.double()).shape == (5,)


def test_the_hash_covers_classifier_denoiser_and_sigma(unet, network):
    classifier = as_classifier(network, classes=None, example=X[0])
    other = copy.deepcopy(unet)
    other.leave.bias += 1
    together = [denoised(classifier, denoiser, NOISE) for denoiser in (unet, other)]
    stronger = denoised(classifier, unet, Gaussian(0.5))
    assert len({c.weights_hash for c in (classifier, *together, stronger)}) == 4
    assert stronger.denoiser["hash"] == together[0].denoiser["hash"]
    assert together[0].denoiser["hash"] != together[1].denoiser["hash"]
    assert denoised(classifier, copy.deepcopy(unet), NOISE).weights_hash == together[0].weights_hash
    assert (
        denoised(as_classifier(brightest_half, classes=2, example=X[0]), unet, NOISE).weights_hash
        is None
    )


@pytest.mark.annexes
def test_a_denoised_module_can_be_traced(unet, network):
    from smoothcert.kernels.tracing import trace

    composed = compose(network, unet, NOISE)
    assert isinstance(composed, Denoised)
    assert torch.allclose(trace(composed, (1, 8, 8))(X), composed(X), atol=1e-5)


@pytest.mark.parametrize("sigma", [0.05, 0.51])
def test_another_sigma_is_refused(unet, network, sigma):
    with refused("sigma-of-denoiser", span="sigma from 0.1 to 0.5", sigma=sigma):
        compose(network, unet, Gaussian(sigma))


@pytest.mark.parametrize("noise", [Laplace(0.25), Brightness(0.25)])
def test_other_noise_is_refused(unet, network, noise):
    with refused("denoiser-without-gaussian", noise=noise):
        compose(network, unet, noise)


def test_a_denoiser_for_one_sigma_says_so(network):
    one = build_unet("unet-small", shape=(1, 8, 8), sigmas=(0.25, 0.25))
    assert one.describe(0.25) == "for sigma 0.25"
    with refused("sigma-of-denoiser", sigma=0.5):
        compose(network, one, Gaussian(0.5))


def test_the_range_of_sigma_includes_its_ends(unet, network):
    for sigma in (0.1, 0.5, 0.5 * (1 + 1e-9)):
        compose(network, unet, Gaussian(sigma))


def test_inputs_of_another_shape_or_range_are_refused(unet):
    check_values(unet.values, X[0], "input 7")
    check_values(None, 255 * X[0], "the input")
    with refused("shape-of-denoiser", expected=(1, 8, 8), shape=(3, 8, 8)):
        check_estimates(unet, torch.rand(3, 8, 8), 0.25, device=CPU, stochastic=False)
    for wrong in (255 * X[0], 2 * X[0] - 1):
        with refused("values-out-of-range", which="input 7"):
            check_values(unet.values, wrong, "input 7")


def test_a_module_without_a_range_takes_everything(network):
    anything = load_denoiser(nn.Identity())
    check_values(anything.values, 255 * torch.rand(5), "the input")
    compose(network, anything, Gaussian(100.0))


def function(x):
    return (x.mean((1, 2, 3)) > 0.5).long()


@pytest.mark.parametrize(
    "model",
    [function, nn.Sequential(nn.Flatten(), nn.Linear(64, 2)).eval()],
    ids=["function", "module"],
)
def test_a_denoiser_in_training_mode_is_refused(model):
    smoothed = Smoothed(
        model, noise=NOISE, classes=2, denoiser=nn.Dropout(0.2).train(), device="cpu", batch=16
    )
    with refused("training-mode", layer="Dropout"):
        smoothed.certify(X[:1])


def test_a_denoiser_without_weights_is_refused_behind_a_function():
    lazy = nn.LazyConv2d(1, 3, padding=1).eval()
    with refused("no-weights-yet"):
        Smoothed(function, noise=NOISE, classes=2, denoiser=lazy, device="cpu", batch=16)


class Faulty(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.fault = fault

    def forward(self, x):
        return self.fault(x)


def fail(x):
    raise ValueError("cannot do this")


@pytest.mark.parametrize(
    ("fault", "code", "fields"),
    [
        (lambda x: (x, x), "other-output", {"output": "tuple"}),
        (lambda x: x[..., ::2], "other-output", {"output": "float32 of shape (2, 1, 8, 4)"}),
        (lambda x: x.long(), "other-output", {"output": "int64 of shape (2, 1, 8, 8)"}),
        (fail, "model-fails", {"shape": (2, 1, 8, 8), "reason": "cannot do this"}),
    ],
)
def test_the_denoiser_is_named_if_it_is_at_fault(fault, code, fields):
    smoothed = Smoothed(
        function, noise=NOISE, classes=2, denoiser=Faulty(fault), device="cpu", batch=16
    )
    with refused(code, **fields) as caught:
        smoothed.certify(X[:1])
    assert caught.value.fields["what"].endswith("Faulty")


def jittering(x):
    return x + 0.02 * torch.randn(())  # one number for the whole batch


@pytest.mark.parametrize(
    "fault",
    [
        jittering,
        lambda x: x + 0.02 * torch.randn_like(x),
        lambda x: x / x.max(),
        lambda x: x - x.min(),
        lambda x: x - x.mean(0),
    ],
    ids=["random by batch", "random by value", "maximum", "minimum", "mean"],
)
def test_an_estimate_must_depend_on_its_input_alone(fault):
    smoothed = Smoothed(
        function, noise=NOISE, classes=2, denoiser=Faulty(fault), device="cpu", batch=16
    )
    for _ in range(20):
        with refused("estimate-changes"):
            smoothed.certify(torch.full((1, 1, 8, 8), 0.31))


@pytest.mark.parametrize(
    ("x", "jitter"),
    [
        (torch.full((1, 8, 8), 4000.0), 0.05),
        (torch.rand(1, 8, 8).index_fill(1, torch.tensor([0]), 1e4), 0.05),
        (torch.rand(3, 128, 128), 4e-4),
    ],
    ids=["large values", "a few large values", "many small changes"],
)
def test_a_random_change_is_compared_with_the_noise(x, jitter):
    random = load_denoiser(Faulty(lambda x: x + jitter * (1 if torch.rand(()) < 0.5 else -1)))
    torch.manual_seed(0)
    with refused("estimate-changes"):
        check_estimates(random, x, 0.25, device=CPU, stochastic=False)
    check_estimates(
        load_denoiser(Faulty(lambda x: x + jitter)), x, 0.25, device=CPU, stochastic=False
    )


def test_a_denoiser_that_returns_no_numbers_is_refused():
    broken = load_denoiser(Faulty(lambda x: x * torch.nan))
    for stochastic in (False, True):
        with refused("no-finite-estimate"):
            check_estimates(broken, torch.rand(1, 8, 8), 0.25, device=CPU, stochastic=stochastic)


def test_a_denoiser_may_draw_random_numbers_if_it_says_so():
    random = Smoothed(
        function,
        noise=NOISE,
        classes=2,
        denoiser=Faulty(jittering),
        stochastic=True,
        device="cpu",
        batch=16,
    )
    assert random.predict(X[:1], samples=20)[0].look.samples == 20


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("scale", [0.0, 1e-4, 1.0, 255.0])
def test_a_repeatable_denoiser_passes_in_every_number_format_and_unit(unet, dtype, scale):
    check_estimates(copy.deepcopy(unet).to(dtype), scale * X[0], 0.25, device=CPU, stochastic=False)

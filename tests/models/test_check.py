import pytest
import torch
from tests.refusals import refused
from torch import nn
from torch.nn import functional as F

from smoothcert import Fixed, Gaussian, Smoothed
from smoothcert.errors import InvalidInput
from smoothcert.models import load_classifier
from smoothcert.models.architectures import build
from smoothcert.models.outputs import answer, check_classifier, check_full_batch

IMAGES = torch.rand((8, 1, 6, 6), generator=torch.Generator().manual_seed(0))


def network(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(36, 3))


@pytest.mark.parametrize(
    "model",
    [
        network().eval(),
        network(nn.BatchNorm2d(1), nn.Dropout()).eval(),
        network().train(),
        lambda x: x.flatten(1)[:, :3],
        lambda x: (x.flatten(1).sum(1) > 18).long(),
        lambda x: torch.where(x.flatten(1)[:, :3] > 0.9, torch.nan, x.flatten(1)[:, :3]),
        lambda x: x.sub_(0.5).flatten(1)[:, :3],
        lambda x: x.flatten(1)[:, :3] * (1 + len(x) / 1000),
        lambda x: x.reshape(8, 36)[:, :3],
        lambda x: x.reshape(8, -1)[:, :3],
    ],
    ids=[
        "module",
        "evaluation mode",
        "training mode without effect",
        "logits",
        "labels",
        "sometimes not finite",
        "in place",
        "rounding depends on batch size",
        "fails for other batch sizes",
        "wrong shape for other batch sizes",
    ],
)
def test_a_classifier_that_treats_each_input_alone_is_accepted(model):
    check_classifier(model, 3, IMAGES)


@pytest.mark.parametrize(
    ("model", "code", "fields"),
    [
        (network(nn.Dropout()).train(), "training-mode", {"layer": "Dropout"}),
        (network(nn.BatchNorm2d(1)).train(), "training-mode", {"layer": "BatchNorm2d"}),
        (lambda x: F.dropout(x.flatten(1)[:, :3], 0.2), "answer-changes", {}),
        (lambda x: x.flatten(1)[:, :3] + 0.02 * torch.randn(3), "answer-changes", {}),
        (
            lambda x: F.batch_norm(x, None, None, training=True).flatten(1)[:, :3],
            "answer-changes",
            {},
        ),
        (lambda x: (x.mean((1, 2, 3)) > x.mean()).long(), "answer-changes", {}),
        (
            lambda x: x.flatten(1)[:, :4],
            "no-classifier",
            {"rows": 8, "classes": 3, "output": "float32 of shape (8, 4)"},
        ),
        (lambda x: x, "no-classifier", {"output": "float32 of shape (8, 1, 6, 6)"}),
        (lambda x: x.sum((1, 2, 3)), "other-task", {"task": "regression"}),
        (
            lambda x: torch.zeros(7, dtype=torch.long),
            "no-classifier",
            {"output": "int64 of shape (7,)"},
        ),
        (lambda x: x.flatten(1)[:, :3] > 0.5, "no-classifier", {"output": "bool of shape (8, 3)"}),
        (
            lambda x: torch.fft.fft(x.flatten(1))[:, :3],
            "no-classifier",
            {"output": "complex64 of shape (8, 3)"},
        ),
        (
            lambda x: (x.flatten(1)[:, :3], x.flatten(1)[:, 3:6]),
            "no-logits",
            {"kind": "tuple"},
        ),
        (lambda x: torch.full((len(x), 3), torch.nan), "no-finite-output", {}),
        (
            nn.Linear(5, 3).eval(),
            "model-fails",
            {"dtype": "float32", "shape": (8, 1, 6, 6), "place": ""},
        ),
        (lambda x: x.flatten(1)[:, 99], "model-fails", {"shape": (8, 1, 6, 6)}),
    ],
)
def test_the_error_for_a_wrong_classifier_is_one_sentence(model, code, fields):
    with refused(code, **fields) as caught:
        check_classifier(model, 3, IMAGES)
    assert "\n" not in str(caught.value)


def mean_above(x, threshold):
    return (x.mean((1, 2, 3)) > threshold).long()


BUFFER = torch.zeros(8, 3)


@pytest.mark.parametrize(
    "model",
    [
        lambda x: mean_above((x - x.min()) / (x.max() - x.min()), 0.5),
        lambda x: mean_above(x / x.max(), 0.5),
        lambda x: mean_above(x - x.median(), 0),
        lambda x: (x / x.max()).flatten(1)[:, :3],
        lambda x: (x - x.min()).flatten(1)[:, :3],
        lambda x: x.clamp(max=x.quantile(0.9)).flatten(1)[:, :3],
        lambda x: x.clamp(min=x.quantile(0.1)).flatten(1)[:, :3],
        lambda x: (x.clamp(0, 1) / x.clamp(0, 1).max()).flatten(1)[:, :3],
        lambda x: (x - x[:1]).flatten(1)[:, :3],
        lambda x: (x - x[-1:]).flatten(1)[:, :3],
        lambda x: (
            (x - x.view(-1, 2, 1, 6, 6).flip(1).view(x.shape)).flatten(1)[:, :3]
            if len(x) == 8
            else None
        ),
        lambda x: x.flatten(1)[:, :3] * len(x),
        lambda x: torch.add((x / x.max()).flatten(1)[:, :3], 0, out=BUFFER),
    ],
)
def test_an_answer_that_depends_on_the_rest_of_the_batch_is_refused(model):
    with refused("answer-changes"):
        check_classifier(model, 3, IMAGES)


@pytest.mark.parametrize(
    "scaled", [lambda x: x / x.max(), lambda x: x.clamp(max=x.flatten().quantile(0.5))]
)
def test_a_network_after_a_scaling_of_the_batch_is_refused(scaled):
    network = load_classifier("fashion-cnn", sigma=0.25).module
    x = torch.rand((8, 1, 28, 28), generator=torch.Generator().manual_seed(0))
    check_classifier(network, 10, x)
    with refused("answer-changes"):
        check_classifier(lambda x: network(scaled(x)), 10, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_random_numbers_that_differ_between_rows_are_refused(dtype):
    """A defence that seeds its generator in every call: an answer depends on the place of the input in the batch."""
    model = network().eval().to(dtype)

    def defended(x):
        noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(x)
        return model(x + 0.5 * noise)

    with refused("answer-changes"):
        check_classifier(defended, 3, IMAGES.to(dtype))


def test_networks_in_half_precision_are_accepted():
    for name in ("fashion-cnn", "cifar-resnet20"):
        classifier = build(name, classes=10).eval().bfloat16()
        shape = (1, 28, 28) if name == "fashion-cnn" else (3, 32, 32)
        check_classifier(classifier, 10, torch.rand(8, *shape).bfloat16())


def test_an_error_about_the_number_format_suggests_float32():
    with pytest.raises(InvalidInput, match=r'bfloat16 batch .*; perhaps dtype="float32" helps$'):
        answer(network(), IMAGES.bfloat16())


def test_an_overflow_of_half_precision_suggests_float32():
    with refused("no-finite-output"):
        check_classifier(lambda x: 1e30 * (1 + x.flatten(1)[:, :3]), 3, IMAGES.half())


def above_half(x):
    return torch.stack([0.5 - x[:, 0, 0, 0], x[:, 0, 0, 0] - 0.5], 1)


def eight_per_expert(x):
    """Two experts take at most 8 rows each; all other rows get a default."""
    logits = above_half(x)
    for expert in (0, 1):
        logits[(logits.argmax(1) == expert).nonzero()[8:, 0]] = torch.tensor([0.0, 1.0]).to(x)
    return logits


def first_hundred(x):
    return torch.cat(
        [above_half(x[:100]), torch.tensor([[0.0, 1.0]]).expand(len(x[100:]), 2).to(x)]
    )


def remembers(x, answers={}):  # noqa: B006 (a cache)
    """A cache of answers by address and size; the batches of a run have the same address."""
    return (
        above_half(x)
        if len(x) < 100
        else answers.setdefault((x.data_ptr(), len(x), x.dtype), above_half(x))
    )


NOISY = torch.rand((61, 1, 6, 6), generator=torch.Generator().manual_seed(0)) * 2 - 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "of", [lambda logits: logits, lambda logits: logits.argmax(1)], ids=["logits", "labels"]
)
@pytest.mark.parametrize("model", [eight_per_expert, first_hundred, remembers])
def test_what_only_a_full_batch_shows_is_refused(model, of, dtype):
    rows = 128
    check_classifier(lambda x: of(model(x)), 2, IMAGES.to(dtype))  # eight rows do not show it
    with refused("depends-on-batch", rows=128):
        check_full_batch(lambda x: of(model(x)), NOISY.to(dtype), rows)
    for rows in (1, 8, 100, 128):
        check_full_batch(lambda x: of(above_half(x)), NOISY.to(dtype), rows)


def test_a_model_that_takes_one_batch_size_only_is_accepted_in_full_batches():
    check_full_batch(lambda x: answer(lambda x: above_half(x.reshape(128, 1, 6, 6)), x), NOISY, 128)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_networks_are_accepted_in_full_batches(dtype):
    network = load_classifier("fashion-cnn", sigma=0.25).module.to(dtype)
    noisy = torch.randn((61, 1, 28, 28), generator=torch.Generator().manual_seed(0)) / 4 + 0.5
    check_full_batch(network, noisy.to(dtype), 200)


def test_a_model_that_needs_gradients_is_told_how_to_get_them():
    network = nn.Linear(3, 2)

    def sharpened(x):
        x = x.clone().requires_grad_(True)
        return network(x + torch.autograd.grad(network(x).sum(), x)[0]).detach()

    def with_gradients(x):
        with torch.inference_mode(False), torch.enable_grad():
            return sharpened(x.clone())

    with pytest.raises(
        InvalidInput,
        match=r"computes gradients, .* in torch.inference_mode\(False\) and torch.enable",
    ):
        check_classifier(sharpened, 2, IMAGES[:, 0, 0, :3])
    check_classifier(with_gradients, 2, IMAGES[:, 0, 0, :3])


def masked(value):
    return lambda logits: F.pad(logits, (0, 1), value=value)


def lowest_number(logits):
    return masked(torch.finfo(logits.dtype).min)(logits)


HIDING = {
    "masked": masked(-1e4),
    "lowest number": lowest_number,
    "minus infinity": masked(-torch.inf),
    "shifted up": lambda logits: masked(-9.0)(logits) + 5000,
    "shifted down": lambda logits: masked(-9.0)(logits) - 5000,
    "far behind and varying": lambda logits: torch.cat(
        [logits, -1e4 - 1e4 * logits[:, :1].abs()], 1
    ),
    "one certain row in four": lambda logits: torch.where(
        logits[:, :1] > logits[:, :1].quantile(0.75), 1e4 * masked(-1.0)(logits), masked(-9)(logits)
    ),
}
"""Logits that decide nothing, by which tolerances must not grow."""
FAULTS = {
    "dropout": lambda x: F.dropout(x, 0.1),
    "centred batch": lambda x: x - x.mean(0),
    "scaled by the batch": lambda x: x / x.max(),
    "one random number per call": lambda x: x + 0.05 * torch.randn(x.shape[1:]),
    "the same random rows in each call": lambda x: (
        x + 0.5 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    ),
}


def two_classes(x):
    """A fixed linear classifier of two classes."""
    weights = torch.randn((36, 2), generator=torch.Generator().manual_seed(1))
    return x.flatten(1) @ weights.to(x) / 6


@pytest.mark.parametrize("hide", HIDING.values(), ids=HIDING)
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_logits_that_decide_nothing_hide_no_fault(fault, hide):
    if hide is not HIDING["one certain row in four"]:  # its quantile depends on the batch
        check_classifier(lambda x: hide(two_classes(x)), 3, IMAGES)
        check_full_batch(lambda x: hide(two_classes(x)), NOISY, 128)
    with refused("answer-changes"):
        check_classifier(lambda x: hide(two_classes(fault(x))), 3, IMAGES)


@pytest.mark.parametrize("hide", HIDING.values(), ids=HIDING)
def test_logits_that_decide_nothing_do_not_hide_what_only_a_full_batch_shows(hide):
    def crowded(x):
        logits = two_classes(x)
        logits[100:] = logits[100:].flip(1)
        return hide(logits)

    with refused("depends-on-batch", rows=128):
        check_full_batch(crowded, NOISY, 128)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("hide", [masked(-1e4), lowest_number, masked(-torch.inf)])
def test_a_masked_class_hides_nothing_in_reduced_formats(hide, dtype):
    check_classifier(lambda x: hide(two_classes(x)), 3, IMAGES.to(dtype))
    for fault in (FAULTS["dropout"], FAULTS["centred batch"]):
        with refused("answer-changes"):
            check_classifier(lambda x, f=fault: hide(two_classes(f(x))), 3, IMAGES.to(dtype))


class CentredAndMasked(nn.Module):
    """Centres its batch and never answers with class 2."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        mean = (x - x.mean(0)).mean((1, 2, 3)) * self.slope
        return torch.stack([mean, -mean, torch.full_like(mean, -1e4)], 1)


@pytest.mark.parametrize("model", [CentredAndMasked().eval(), lambda x: CentredAndMasked()(x)])
@pytest.mark.parametrize("denoiser", [None, nn.Identity()], ids=["alone", "behind a denoiser"])
def test_a_masked_class_hides_nothing_from_certify(model, denoiser):
    smoothed = Smoothed(model, noise=Gaussian(0.25), classes=3, denoiser=denoiser, device="cpu")
    with refused("answer-changes"):
        smoothed.certify(IMAGES[:2], plan=Fixed(100))

"""The stage kernels on a real GPU."""

from copy import deepcopy

import pytest
import torch
from resnets import calibrated, logits_of, random_network, relative_error

from smoothcert.kernels.layout import layouts
from smoothcert.kernels.resnet import match
from smoothcert.kernels.stages import StageClassifier
from smoothcert.kernels.tracing import trace
from smoothcert.noises.base import Additive, AdditiveGrid
from smoothcert.sampling.streams import PhiloxStream, Segment

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here"),
]
SHAPE = (3, 32, 32)
CUDA = torch.device("cuda")
DTYPES = [torch.bfloat16, torch.float16]


def noisy_batch(count, shape=SHAPE, dtype=torch.bfloat16, seed=0):
    generator = torch.Generator(CUDA).manual_seed(seed)
    x = torch.rand((count, *shape), device=CUDA, generator=generator)
    x += 0.5 * torch.randn(x.shape, device=CUDA, generator=generator)
    return x.to(dtype, memory_format=torch.channels_last)


@pytest.fixture(scope="module", params=["cifar-resnet20", "cifar-resnet110"])
def module(request):
    return calibrated(request.param).to(CUDA)


def classifier_of(module, dtype=torch.bfloat16):
    return StageClassifier(match(trace(module.cpu(), SHAPE), SHAPE), dtype, CUDA)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("widths", [(16,), (16, 32), (16, 32, 64), (32, 64, 128), (32, 48)])
def test_logits_are_those_of_the_network(widths, blocks, dtype):
    network = random_network(widths, blocks=blocks, size=16 if max(widths) in (128, 48) else 32)
    classifier = StageClassifier(network, dtype, CUDA)
    x = noisy_batch(101, network.shape, dtype)
    logits = classifier.logits(x)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        assert relative_error(logits, logits_of(network, x.double(), dtype)) < 4e-3
        assert relative_error(logits, logits_of(network, x.double())) < 2e-2
    assert torch.equal(classifier(x), logits.argmax(1))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_every_layout_computes_the_same(number):
    network = random_network()
    usual = StageClassifier(network, torch.bfloat16, CUDA)
    x = noisy_batch(37)
    expected = usual.logits(x)
    layout = usual.layouts[number]
    properties = torch.cuda.get_device_properties(CUDA)
    memory = properties.shared_memory_per_block_optin, properties.shared_memory_per_multiprocessor
    for other in layouts(layout.channels, layout.size, *memory)[:8]:
        chosen = [*usual.layouts[:number], other, *usual.layouts[number + 1 :]]
        logits = StageClassifier(network, torch.bfloat16, CUDA, chosen).logits(x)
        assert relative_error(logits, expected) < 1e-3, other


@pytest.mark.parametrize("dtype", DTYPES)
def test_labels_agree_with_float32_as_often_as_those_of_the_plain_module(module, dtype):
    x = noisy_batch(4096)
    classifier = classifier_of(module, dtype)
    with torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        exact = module.to(CUDA)(x.float())
        plain = deepcopy(module).to(dtype, memory_format=torch.channels_last)(x.to(dtype)).float()
    fast = classifier.logits(x.to(dtype))
    assert len(exact.argmax(1).unique()) > 4
    differing = [
        float((labels.argmax(1) != exact.argmax(1)).float().mean()) for labels in (fast, plain)
    ]
    errors = [
        relative_error(logits - logits.mean(0), exact - exact.mean(0)) for logits in (fast, plain)
    ]
    assert errors[0] <= 1.1 * errors[1], errors
    assert differing[0] <= 1.1 * differing[1] + 0.002, differing


def test_the_same_batch_gives_the_same_bits(module):
    classifier = classifier_of(module)
    x = noisy_batch(1000)
    first = classifier.logits(x)
    assert all(torch.equal(classifier.logits(x), first) for _ in range(20))


def test_a_row_does_not_depend_on_what_shares_the_batch(module):
    classifier = classifier_of(module)
    x = noisy_batch(997)
    together = classifier.logits(x)
    order = torch.randperm(997, generator=torch.Generator().manual_seed(0)).to(CUDA)
    assert torch.equal(classifier.logits(x[order]), together[order])
    for count in (1, 2, 3, 5, 64, 513):
        assert torch.equal(classifier.logits(x[:count]), together[:count])


def test_a_row_that_is_not_finite_is_no_vote(module):
    classifier = classifier_of(module)
    x = noisy_batch(16)
    expected = classifier(x).tolist()
    x[3, 0, 0, 0], x[7, 1, 31, 31], x[8, 2, 9, 9] = torch.nan, torch.inf, -torch.inf
    for row in (3, 7, 8):
        expected[row] = classifier.classes
    assert classifier(x).tolist() == expected


DRAWS = [Additive("normal", 0.37), AdditiveGrid(0.5, 1 / 255), AdditiveGrid(1.0, 1 / 255)]


@pytest.mark.parametrize("draw", DRAWS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", [0, 1, 2**40 + 5, 2**63 - 1])
def test_noise_is_the_streams_noise_bit_by_bit(seed, dtype, draw):
    """The kernel that draws noise gives the logits of a batch that the stream has written."""
    network = random_network((16,), blocks=1)
    classifier = StageClassifier(network, dtype, CUDA)
    count, slots = 1021, 5
    inputs = (
        torch.randint(256, (slots, *SHAPE), device=CUDA)
        .div(255)
        .to(memory_format=torch.channels_last)
    )
    slot = torch.randint(0, slots, (count,))
    id = torch.randint(0, 2**31 - 1, (count,))
    sample = torch.randint(0, 2**31 - 1, (count,))
    rows = torch.stack([slot, id, sample]).to(CUDA, torch.int32)
    rows[1:, :5] = torch.arange(5, device=CUDA)
    noisy = torch.empty((count, *SHAPE), device=CUDA, dtype=dtype).to(
        memory_format=torch.channels_last
    )
    PhiloxStream(seed, draw).write(noisy, inputs, [Segment(0, 0, 0, count)], rows)
    logits = torch.empty((count, network.classes), device=CUDA)
    classifier._run(inputs, rows=rows, count=count, seed=seed, draw=draw, logits=logits)
    expected = classifier.logits(noisy)
    assert torch.equal(logits, expected), (
        f"{int((logits != expected).any(1).sum())} of {count} rows differ"
    )
    labels = classifier.with_noise(inputs, rows, count=count, seed=seed, draw=draw)
    assert torch.equal(labels, classifier(noisy))

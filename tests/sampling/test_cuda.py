"""The fast path on a real GPU: compiled, float16, convolutions chosen by timing."""

import pytest
import torch
from tests.subjects import bound

from smoothcert import Gaussian, InputSpecific, Translation
from smoothcert.device.runtime import Runtime
from smoothcert.models.architectures import build
from smoothcert.sampling.sampler import Batch, VoteCounter
from smoothcert.sampling.streams import Segment
from smoothcert.smoothed.prepare import prepare

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here"),
    pytest.mark.filterwarnings("ignore"),  # warnings of the compiler
]
SHAPE = (3, 32, 32)


class Undecided(torch.nn.Module):
    """Two classes with similar logits, so that any difference in rounding changes votes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.network = build("cifar-resnet20").eval()
        with torch.no_grad():
            logits = self.network(torch.rand(256, *SHAPE) + 0.5 * torch.randn(256, *SHAPE))
        self.middle = float((logits[:, 0] - logits[:, 1]).median())

    def forward(self, x):
        logits = self.network(x)
        difference = logits[:, 0] - logits[:, 1] - self.middle
        return torch.stack([difference, torch.zeros_like(difference)], 1)


@pytest.fixture(scope="module")
def inputs():
    generator = torch.Generator().manual_seed(0)
    return [(id, torch.rand(SHAPE, generator=generator), None) for id in range(24)]


def prepared(runtime):
    return bound(Undecided(), 2, Gaussian(0.5), runtime, torch.zeros(SHAPE)).prepare()


def votes(inputs, *, batch=512):
    ready = prepared(Runtime.resolve("cuda", compile="default", batch=batch))
    assert ready.runtime.compile == "default"
    engine = ready.engine(InputSpecific(2_000, pilot=200, decline=0.1))
    return {certificate.id: certificate.looks for certificate in engine.certify(inputs)}


def test_votes_are_identical_whatever_shares_the_batch(inputs):
    forward = votes(inputs)
    assert forward == votes(inputs[::-1])
    assert {id: forward[id] for id in (5, 17)} == votes([inputs[17], inputs[5]])
    assert any(len(look.votes) == 2 for looks in forward.values() for look in looks)


def test_a_measured_batch_fits_and_is_kept(inputs):
    runtime = prepared(Runtime.resolve("cuda", compile="none")).runtime
    assert runtime.batch >= 256
    assert runtime.dtype == "float16"


class Waiting(Undecided):
    """A classifier that reads a number from the device, which a CUDA graph cannot do."""

    def forward(self, x):
        logits = super().forward(x)
        return logits + 0 * float(logits[0, 0])


@pytest.mark.parametrize("model", [Undecided, Waiting])
def test_a_prepared_classifier_votes_as_the_plain_one_does(model):
    runtime = Runtime.resolve("cuda", dtype="float32", compile="none", batch=64)
    module = model()
    classify, _ = prepare(module, 2, SHAPE, runtime)
    module = module.to("cuda", memory_format=torch.channels_last)
    with torch.inference_mode():
        for seed in range(3):
            x = (
                torch.rand((64, *SHAPE), generator=torch.Generator().manual_seed(seed)).cuda()
                + seed / 10
            )
            expected = module(x)
            clear = (
                expected[:, 0] - expected[:, 1]
            ).abs() > 1e-2  # rows where rounding cannot change the label
            votes = classify(x.to(memory_format=torch.channels_last))
            assert torch.equal(votes[clear], expected.argmax(1)[clear])
            assert clear.sum() > 32


@pytest.mark.parametrize("compile", ["default", "max"])
def test_a_compiled_classifier_votes_as_the_plain_one_does(compile):
    """The comparison is in half precision and leaves out rows where the two classes are close."""
    module = Undecided()
    classify, runtime = prepare(
        module, 2, SHAPE, Runtime.resolve("cuda", compile=compile, batch=256)
    )
    assert runtime.compile == compile
    x = torch.rand((256, *SHAPE), generator=torch.Generator().manual_seed(0)).cuda()
    x += 0.5 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).cuda()
    with torch.inference_mode():
        expected = module.to("cuda")(x)
        votes = classify(x.to(runtime.torch_dtype, memory_format=torch.channels_last))
    difference = (expected[:, 0] - expected[:, 1]).abs()
    clear = difference > difference.median() / 4
    assert torch.equal(votes[clear], expected.argmax(1)[clear])
    assert votes.unique().numel() == 2


@pytest.mark.parametrize("noise", [Gaussian(0.5), Translation(2)], ids=str)
def test_a_smaller_batch_draws_the_noise_of_a_full_one(noise):
    def brightest(x):
        return x.flatten(1).argmax(1) % 7

    def votes(**flexible):
        runtime = Runtime("cuda", "float32", "none", 512)
        counter = VoteCounter(
            brightest, runtime, noise=noise, shape=SHAPE, classes=7, slots=1, seed=0, **flexible
        )
        counter.inputs[0].copy_(torch.rand(SHAPE, generator=torch.Generator().manual_seed(1)))
        [(_, counts)] = counter.run(Batch([Segment(0, 5, 20, 100)], [0])).wait()
        return counts.tolist()

    assert votes(flexible=True) == votes()

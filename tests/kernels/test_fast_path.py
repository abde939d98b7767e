"""The fast path. Graphs are built and compared on the CPU; the last tests need a GPU."""

import logging
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from resnets import calibrated, relative_error
from tests.subjects import bound
from torch import nn

from smoothcert import Gaussian, GridGaussian, InputSpecific
from smoothcert.device.acceleration import Declined, KernelClassifier, accelerate
from smoothcert.device.runtime import Runtime
from smoothcert.models.architectures import build
from smoothcert.models.wrappers import Ensemble
from smoothcert.sampling.sampler import Batch, VoteCounter
from smoothcert.sampling.streams import PhiloxStream, Segment
from smoothcert.smoothed.prepare import prepare

SHAPE = (3, 32, 32)
CPU = Runtime.resolve("cpu", dtype="float32", compile="fast", batch=8)
gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here")]


def test_a_network_without_a_gpu_is_folded():
    module = calibrated("cifar-resnet20")
    classify, runtime = prepare(module, 10, SHAPE, CPU)
    assert runtime.compile == "fast"
    x = torch.rand(8, *SHAPE)
    assert torch.equal(classify(x), module(x).argmax(1))
    with torch.inference_mode():
        assert torch.equal(classify(x), module(x).argmax(1))
        fast = accelerate(module, module, SHAPE, CPU)
        assert relative_error(fast(x), module(x)) < 1e-5
    assert not any(isinstance(part, nn.BatchNorm2d) for part in fast.modules())


def declined(module):
    with torch.inference_mode():
        answer = accelerate(module, module, (4,), CPU)
    assert isinstance(answer, Declined)
    return answer


def reason_against(module):
    """Why a module of inputs of shape (4,) has no faster form."""
    return declined(module).reason


def test_a_worker_that_is_told_to_run_stage_kernels_never_claims_them_without_having_them():
    """All workers get the settings of the first one. Those that run otherwise are refused."""
    _, runtime = prepare(calibrated("cifar-resnet20"), 10, SHAPE, replace(CPU, compile="stages"))
    assert runtime.compile == "fast"


class Unfaithful(nn.Module):
    """Does something else when it is traced."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        with torch.no_grad():  # random weights could give the same labels
            self.linear.weight.copy_(torch.eye(3, 4))
            self.linear.bias.zero_()

    def forward(self, x):
        return self.linear(x) if isinstance(x, torch.fx.Proxy) else self.linear(x).flip(1)


def test_a_graph_with_other_answers_is_not_used_and_the_compiler_need_not_try():
    answer = declined(Unfaithful().eval())
    assert "this form gives other labels" in answer.reason
    assert answer.disagrees
    assert not declined(lambda x: x[:, :3]).disagrees


@pytest.mark.parametrize(
    ("model", "reason"),
    [(Unfaithful().eval(), "other labels"), (lambda x: x[:, :3], "it is a function")],
    ids=["other answers", "function"],
)
def test_a_fallback_is_logged_and_recorded(model, reason, caplog):
    with caplog.at_level(logging.INFO, logger="smoothcert"):
        _, runtime = prepare(model, 3, (4,), CPU)
    assert runtime.compile == "none"
    assert reason in caplog.text


class InexactAndMasked(nn.Module):
    """The graph changes one logit by .01, beside a class that is never the answer."""

    def forward(self, x):
        change = 0.01 if isinstance(x, torch.fx.Proxy) else 0.0
        return x * torch.tensor([1.0, 1, 1, 0]) + torch.tensor([change, 0, 0, -1e4])


def test_a_masked_class_does_not_hide_the_errors_of_a_graph():
    found = declined(InexactAndMasked())
    assert found.disagrees
    assert "this form has a relative error" in found.reason


class OutsideOfTracing(nn.Module):
    """Limits its inputs, far from [0, 1], where no graph can see it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x.clamp(-50, 50) if isinstance(x, torch.Tensor) else x)


class Labels(OutsideOfTracing):
    def forward(self, x):
        return super().forward(x).argmax(1)


@pytest.mark.parametrize("module", [OutsideOfTracing(), Labels()])
def test_a_graph_with_other_answers_far_from_the_unit_interval_is_not_used(module):
    torch.manual_seed(0)
    nn.init.normal_(module.linear.weight)
    nn.init.normal_(module.linear.bias, std=20)
    assert reason_against(module.eval()).startswith("this form ")


class SameLabel(nn.Module):
    def forward(self, x):
        return (x.flatten(1).sum(1) > 1e9).long()


def test_labels_that_never_differ_prove_nothing():
    assert "the same label" in reason_against(SameLabel())


class InPlaceNormalisation(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = calibrated("cifar-resnet20")

    def forward(self, x):
        return self.network(x.sub_(0.5).div_(0.2))


def test_a_module_that_changes_its_inputs_is_compared_with_itself():
    module = InPlaceNormalisation().eval()
    _, runtime = prepare(module, 10, SHAPE, CPU)
    assert runtime.compile == "fast"


class DrawsNoise(KernelClassifier):
    """Votes for class 0, and keeps the arguments with which it should draw noise."""

    def __init__(self):
        self.calls = []

    def __call__(self, noisy):
        raise AssertionError("it should have drawn the noise itself")

    def logits(self, noisy):
        raise NotImplementedError

    def best_batch(self):
        raise NotImplementedError

    def with_noise(self, inputs, rows, *, count, seed, draw):
        self.calls.append((inputs.clone(), rows.shape, count, seed, draw))
        return torch.zeros(count, dtype=torch.int64)


def test_a_classifier_that_draws_its_noise_gets_clean_inputs():
    """The seam between the sampler and a classifier with noise of its own."""
    classify = DrawsNoise()
    noise = Gaussian(0.5)
    counter = VoteCounter(classify, CPU, noise=noise, shape=(4,), classes=3, slots=1, seed=7)
    counter.stream = PhiloxStream(7, noise.draw)  # the stream of CUDA devices
    x = torch.rand(4)
    counter.load(0, x)
    [(slot, votes)] = counter.run(Batch([Segment(0, 5, 0, 8)], [0])).wait()
    assert (slot, votes.tolist()) == (0, [8, 0, 0, 0])
    [(inputs, rows, count, seed, draw)] = classify.calls
    assert torch.equal(inputs[0], x)
    assert (rows, count, seed, draw) == ((4, 8), 8, 7, noise.draw)


class Undecided(nn.Module):
    """Two classes that share the samples, so that any difference in rounding moves votes."""

    def __init__(self, name="cifar-resnet20"):
        super().__init__()
        self.network = calibrated(name)
        with torch.no_grad():
            logits = self.network(torch.rand(64, *SHAPE) + 0.5 * torch.randn(64, *SHAPE))
        self.middle = float((logits[:, 0] - logits[:, 1]).median())

    def forward(self, x):
        logits = self.network(x)
        difference = logits[:, 0] - logits[:, 1] - self.middle
        return torch.stack([difference, torch.zeros_like(difference)], 1)


class NotAStage(Undecided):
    """The same answers, from an operation that the stage kernels do not have."""

    def forward(self, x):
        return super().forward(x).tanh()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_saturated_logits_do_not_keep_a_network_from_the_fast_path(dtype):
    _, runtime = prepare(NotAStage().eval(), 2, SHAPE, replace(CPU, dtype=dtype))
    assert runtime.compile == "fast"


def prepared_for(module, *, batch, compile="fast", noise=None):
    runtime = Runtime.resolve("cuda", batch=batch, compile=compile)
    return bound(module, 2, noise or Gaussian(0.5), runtime, torch.zeros(SHAPE)).prepare()


def looks_of(prepared, inputs):
    engine = prepared.engine(InputSpecific(2_000, pilot=200, decline=0.1))
    return {certificate.id: certificate.looks for certificate in engine.certify(inputs)}


def votes(module, inputs, *, batch):
    return looks_of(prepared_for(module, batch=batch), inputs)


@pytest.fixture(scope="module")
def inputs():
    generator = torch.Generator().manual_seed(0)
    return [(id, torch.rand(SHAPE, generator=generator), None) for id in range(24)]


class TestOnAGpu:
    pytestmark = gpu

    @pytest.mark.parametrize(("model", "mode"), [(Undecided, "stages"), (NotAStage, "fast")])
    def test_votes_are_identical_whatever_shares_the_batch(self, inputs, model, mode):
        module = model()
        prepared = prepared_for(module, batch=512)
        assert prepared.runtime.compile == mode
        forward = looks_of(prepared, inputs)
        assert forward == votes(module, inputs[::-1], batch=512)
        two = [inputs[17], inputs[5]]
        assert {id: forward[id] for id in (5, 17)} == votes(module, two, batch=512)
        assert any(len(look.votes) == 2 for looks in forward.values() for look in looks)

    @pytest.mark.parametrize("batch", [64, 301, 1000])
    def test_votes_of_the_stage_kernels_do_not_depend_on_the_batch(self, inputs, batch):
        module = Undecided()
        assert votes(module, inputs, batch=512) == votes(module, inputs, batch=batch)

    @pytest.mark.parametrize(
        "noise", [Gaussian(0.5), GridGaussian(0.5), GridGaussian(1.0)], ids=str
    )
    def test_votes_do_not_depend_on_who_draws_the_noise(self, inputs, noise):
        prepared = prepared_for(Undecided(), batch=512, noise=noise)
        inputs = [(id, (255 * x).round() / 255, label) for id, x, label in inputs]
        drawn_by_the_kernel = looks_of(prepared, inputs)
        kernels = prepared.classify
        assert isinstance(kernels, KernelClassifier)
        # A function cannot draw noise, so the stream draws it.
        by_the_stream = replace(prepared, classify=lambda noisy: kernels(noisy))
        assert looks_of(by_the_stream, inputs) == drawn_by_the_kernel

    def test_an_ensemble_runs_with_the_kernels_of_its_members(self, inputs):
        module = Ensemble([Undecided(), Undecided("cifar-resnet110")]).eval()
        prepared = prepared_for(module, batch=512)
        assert prepared.runtime.compile == "stages"
        kernels = prepared.classify
        by_the_stream = replace(prepared, classify=lambda noisy: kernels(noisy))
        assert looks_of(by_the_stream, inputs) == looks_of(prepared, inputs)

    @pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
    @pytest.mark.parametrize("name", ["cifar-resnet20", "cifar-resnet110"])
    def test_labels_agree_with_float32_as_often_as_those_of_the_plain_module(self, name, dtype):
        module = calibrated(name)
        classify, runtime = prepare(
            module, 10, SHAPE, Runtime.resolve("cuda", dtype=dtype, batch=1024)
        )
        assert runtime.compile == ("fast" if dtype == "float32" else "stages")
        x = torch.rand(1024, *SHAPE) + 0.5 * torch.randn(1024, *SHAPE)
        x = x.to("cuda", runtime.torch_dtype, memory_format=torch.channels_last)
        with torch.inference_mode():
            labels = classify(x)
            plain = (
                deepcopy(module).to("cuda", x.dtype, memory_format=torch.channels_last)(x).argmax(1)
            )
            with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
                exact = module.to("cuda")(x.float()).argmax(1)
        differing = float((labels != exact).float().mean())
        assert differing <= float((plain != exact).float().mean()) + 0.02
        assert len(exact.unique()) > 4

    def test_a_torchvision_network_is_fused(self):
        models = pytest.importorskip("torchvision.models")
        torch.manual_seed(0)
        module = models.resnet18().eval()
        classify, runtime = prepare(module, 1000, (3, 64, 64), Runtime.resolve("cuda", batch=64))
        assert runtime.compile == "fast"
        x = torch.rand(64, 3, 64, 64, device="cuda").to(
            runtime.torch_dtype, memory_format=torch.channels_last
        )
        assert classify(x).shape == (64,)

    def test_a_row_that_is_not_finite_is_no_vote(self):
        """Fused operations keep NaN, which a comparison with 0 would lose."""
        classify, runtime = prepare(NotAStage().eval(), 2, SHAPE, Runtime.resolve("cuda", batch=16))
        assert runtime.compile == "fast"
        x = torch.rand(16, *SHAPE, device="cuda").to(
            runtime.torch_dtype, memory_format=torch.channels_last
        )
        expected = classify(x).tolist()
        x[3, 0, 0, 0] = torch.nan
        expected[3] = 2
        assert classify(x).tolist() == expected

    @pytest.mark.filterwarnings("ignore")  # the compiler's own
    def test_an_untraceable_network_is_compiled(self):
        module = Values().eval()
        _, runtime = prepare(module, 3, (4,), Runtime.resolve("cuda", batch=64))
        assert runtime.compile in ("default", "none")

    def test_a_chosen_batch_fills_the_device(self):
        _, runtime = prepare(build("cifar-resnet20").eval(), 10, SHAPE, Runtime.resolve("cuda"))
        assert runtime.batch >= 2048


class Values(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x) if x.isfinite().all() else self.linear(x.nan_to_num())

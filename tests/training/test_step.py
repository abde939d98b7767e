import pytest
import torch

from smoothcert.device.runtime import Runtime
from smoothcert.models.architectures import build
from smoothcert.models.denoisers import build_unet
from smoothcert.noises import (
    Blur,
    Brightness,
    ContrastBrightness,
    Discrete,
    GridGaussian,
    Laplace,
    Splitting,
    Translation,
)
from smoothcert.training import (
    Augmentation,
    CatRs,
    Consistency,
    Denoising,
    Macer,
    Recipe,
    SmoothAdv,
    SmoothMix,
    method_named,
)
from smoothcert.training.device_data import DeviceData, augment
from smoothcert.training.methods.base import Trainee
from smoothcert.training.step import Step, compile_blocks

METHODS = [
    Augmentation(0.5),
    Consistency.published(0.5),
    Macer(0.5, weight=4.0, copies=2),
    SmoothAdv(0.5, epsilon=1.0, copies=2, steps=2),
    SmoothMix(0.5, epsilon=2.0, steps=1),
    CatRs(0.5, weight=1.0, copies=2, steps=1),
]


def step_of(module, architecture, method, data, device, dtype="float32"):
    recipe = Recipe(architecture, method, epochs=1, batch=32)
    return Step(Trainee(module, module, {}), recipe, data, Runtime.resolve(device, dtype, "none"))


def make_step(method, device="cpu", *, dtype="float32"):
    torch.manual_seed(0)
    data = DeviceData(
        torch.randint(0, 256, (256, 3, 32, 32), dtype=torch.uint8).to(device),
        torch.randint(0, 10, (256,)).to(device),
    )
    return step_of(build("cifar-resnet20"), "cifar-resnet20", method, data, device, dtype)


def make_denoiser_step(device="cpu"):
    torch.manual_seed(0)
    pixels = (
        torch.randint(0, 256, (256, 3, 4, 4), dtype=torch.uint8)
        .repeat_interleave(8, 2)
        .repeat_interleave(8, 3)
    )
    data = DeviceData(pixels.to(device), torch.full((256,), -1, device=device))
    module = build_unet("unet-small", shape=(3, 32, 32), sigmas=(0.1, 1.0))
    return step_of(module, "unet-small", Denoising(1.0, 0.1), data, device)


def state(step):
    return list(step.tensors.values())


def run(step, steps=8):
    torch.manual_seed(1)
    losses = []
    for number, index in enumerate(
        torch.arange(256, device=step.totals.device).split(32)[:steps], 1
    ):
        step.totals.zero_()
        step(index, 0.02, number)
        losses.append(step.totals[0].item())
    return losses


def test_one_step_is_one_step_of_torchs_sgd():
    step = make_step(Augmentation(0.5))
    module = build("cifar-resnet20")
    module.load_state_dict(step.module.state_dict())
    module.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        module.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-4
    )
    for number in (1, 2):
        torch.manual_seed(1)
        step(torch.arange(32), 0.02, number)
        torch.manual_seed(1)
        loss = (
            Augmentation(0.5)
            .objective(module, _augmented(step), step.data.labels[:32], torch.zeros(()))
            .loss
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert step.totals[0].item() > 0
    for own, expected in zip(step.module.parameters(), module.parameters(), strict=True):
        assert torch.allclose(own, expected, atol=1e-6)


def _augmented(step):
    return augment(step.data.batch(torch.arange(32)))


def test_a_step_of_a_denoiser_updates_the_weights_and_their_mean():
    step = make_denoiser_step()
    enter = step.module.enter.weight
    before = enter.detach().clone()
    assert run(step, 1)[0] > 0
    assert not torch.allclose(before, enter, atol=1e-3)
    assert torch.allclose(
        step.validated.module.enter.weight, enter, atol=1e-6
    )  # the mean of one step is its weights


def test_the_learning_rate_is_read_at_each_step():
    step = make_step(Augmentation(0.5))
    before = [parameter.clone() for parameter in step.module.parameters()]
    step(torch.arange(32), 0.0, 1)
    assert all(map(torch.equal, before, step.module.parameters()))
    step(torch.arange(32), 0.1, 2)
    assert not any(map(torch.equal, before, step.module.parameters()))


@pytest.mark.parametrize(
    "make", [lambda: make_step(METHODS[0]), make_denoiser_step], ids=["classifier", "denoiser"]
)
def test_steps_that_are_taken_back_change_nothing(make):
    step = make()
    before = [tensor.clone() for tensor in state(step)]
    with step.taken_back():
        run(step, steps=2)
        assert not all(map(torch.equal, before, state(step)))
    assert all(map(torch.equal, before, state(step)))
    assert step.totals.tolist() == [0, 0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_step_that_cannot_be_captured_runs_as_it_is(own_records):
    step = make_step(METHODS[0])
    assert not step.capture()
    [warning] = own_records()
    assert "cannot be captured as a CUDA graph" in warning.message
    assert run(step, steps=1)[0] > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_captured_step_trains_as_the_normal_one(method):
    normal, captured = (make_step(method, "cuda") for _ in range(2))
    before = [tensor.clone() for tensor in state(captured)]
    assert captured.capture()
    assert all(map(torch.equal, before, state(captured)))
    # Compare only the first steps, because rounding errors grow from step to step.
    assert run(captured)[:4] == pytest.approx(run(normal)[:4], rel=0.02)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize(
    "noise",
    [
        GridGaussian(0.5),
        Laplace(0.5),
        Splitting(1.0),
        Splitting(1.0, 255),
        Translation(2.0),
        Brightness(0.1),
        ContrastBrightness(0.3),
        Blur(3.0),
        Discrete(0.2, 256),
    ],
    ids=str,
)
def test_a_step_with_any_noise_is_captured(noise):
    step = make_step(method_named("gaussian", noise=noise), "cuda")
    assert step.capture()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_captured_step_of_a_denoiser_trains_as_the_normal_one():
    normal, captured = (make_denoiser_step("cuda") for _ in range(2))
    before = [tensor.clone() for tensor in state(captured)]
    assert captured.capture()
    assert all(map(torch.equal, before, state(captured)))
    assert run(captured) == pytest.approx(run(normal), rel=0.1)
    means = (step.validated.module.parameters() for step in (captured, normal))
    for own, expected in zip(*means, strict=True):
        assert torch.allclose(own, expected, atol=0.02)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_captured_step_draws_fresh_noise_each_time():
    step = make_step(Augmentation(0.5), "cuda")
    assert step.capture()
    index = torch.arange(32, device="cuda")
    losses = []
    for _ in range(3):
        step.totals.zero_()
        step(index, 0.0, 1)
        losses.append(step.totals[0].item())
    assert len(set(losses)) == 3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.filterwarnings("ignore")  # warnings of the compiler
def test_a_compiled_and_captured_step_trains_as_the_normal_one():
    normal, fast = (
        make_step(Consistency.published(0.5), "cuda", dtype="bfloat16") for _ in range(2)
    )
    compile_blocks(fast.module)
    assert fast.capture()
    assert run(fast) == pytest.approx(run(normal), rel=0.05)

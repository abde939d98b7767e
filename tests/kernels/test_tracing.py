from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from resnets import calibrated, logits_of, relative_error
from torch import nn

from smoothcert.kernels.evaluation import Unexpected
from smoothcert.kernels.resnet import match
from smoothcert.kernels.tracing import Untraceable, trace

SHAPE = (3, 32, 32)


class FunctionalBlock(nn.Module):
    """A block of another author: functions, additions in place, a shortcut without weights."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.added = outputs - inputs

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.added:
            x = F.pad(
                x[:, :, ::2, ::2], (0, 0, 0, 0, self.added // 2, self.added - self.added // 2)
            )
        out += x
        return F.relu(out, inplace=True)


class PublishedNormalization(nn.Module):
    """Written as in the script that people copy."""

    def __init__(self):
        super().__init__()
        self.means = nn.Parameter(torch.tensor([0.5, 0.4, 0.3]))
        self.sds = nn.Parameter(torch.tensor([0.2, 0.3, 0.4]))

    def forward(self, input):
        (batch, _, height, width) = input.shape
        means = self.means.repeat((batch, height, width, 1)).permute(0, 3, 1, 2)
        sds = self.sds.repeat((batch, height, width, 1)).permute(0, 3, 1, 2)
        return (input - means) / sds


class OtherResNet(nn.Module):
    def __init__(self, widths=(16, 32, 64), classes=7):
        super().__init__()
        self.normalize = PublishedNormalization()
        self.conv1 = nn.Conv2d(3, widths[0], 3, 1, 1)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.relu = nn.ReLU(inplace=True)
        pairs = zip((widths[0], *widths[:-1]), widths, strict=True)
        self.layers = nn.Sequential(*(FunctionalBlock(a, b, 1 if a == b else 2) for a, b in pairs))
        self.pool = nn.AvgPool2d(8)
        self.drop = nn.Dropout(0.5)
        self.linear = nn.Linear(widths[-1], classes)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(self.normalize(x))))
        x = self.pool(self.layers(x))
        x = self.drop(x.view(x.size(0), -1))
        return self.linear(x)


def with_statistics(module):
    torch.manual_seed(1)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.running_mean, std=0.2)
            nn.init.uniform_(part.running_var, 0.5, 2)
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias, std=0.2)
    return module.eval()


@pytest.mark.parametrize(
    ("module", "stages"),
    [(calibrated("cifar-resnet20"), [3, 3, 3]), (with_statistics(OtherResNet()), [1, 1, 1])],
    ids=["bundled", "another author's"],
)
def test_a_resnet_is_recognised(module, stages):
    network = match(trace(module, SHAPE), SHAPE)
    assert [len(stage) for stage in network.stages] == stages
    x = torch.rand(4, *SHAPE, dtype=torch.float64)
    with torch.inference_mode():
        assert relative_error(logits_of(network, x), module.double()(x)) < 1e-5
    module.float()


def test_kernels_get_float32_whatever_the_default_is():
    module = with_statistics(OtherResNet())
    module.normalize = nn.Identity()
    torch.set_default_dtype(torch.float64)
    try:
        network = match(trace(module, SHAPE), SHAPE)
    finally:
        torch.set_default_dtype(torch.float32)
    convolutions = [
        c
        for stage in network.stages
        for block in stage
        for c in (block.first, block.second, block.shortcut)
        if c is not None
    ]
    tensors = [network.factor, network.offset, network.linear, network.linear_bias]
    tensors += [tensor for c in (network.first, *convolutions) for tensor in (c.weight, c.bias)]
    assert {tensor.dtype for tensor in tensors} == {torch.float32}


class Difference(nn.Module):
    """Another linear function of the same features."""

    def __init__(self):
        super().__init__()
        self.network = calibrated("cifar-resnet20")

    def forward(self, x):
        logits = self.network(x)
        difference = logits[:, 0] - logits[:, 1] - 0.25
        return torch.stack([difference, torch.zeros_like(difference)], 1)


def test_what_follows_the_network_may_be_any_linear_function():
    module = Difference()
    network = match(trace(module, SHAPE), SHAPE)
    assert network.classes == 2
    x = torch.rand(4, *SHAPE)
    with torch.inference_mode():
        assert relative_error(logits_of(network, x), module(x)) < 1e-5


def changed(change):
    module = with_statistics(OtherResNet())
    change(module)
    return module


def set_(name, value):
    return lambda module: setattr(module, name, value)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (changed(set_("normalize", nn.Hardtanh(0, 1))), "not normalised channel by channel"),
        (changed(set_("normalize", nn.Softmax(1))), "not normalised channel by channel"),
        (changed(set_("pool", nn.MaxPool2d(8))), "not a linear function of the channels' means"),
        (changed(set_("drop", nn.Softmax(1))), "not a linear function of the channels' means"),
        (changed(set_("relu", nn.SiLU())), "not followed by relu"),
        (changed(set_("conv1", nn.Conv2d(3, 16, 5, 1, 2))), "not a plain 3x3"),
        (nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)).eval(), "no convolution"),
        (
            nn.Sequential(
                nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8192, 3)
            ),
            "no residual",
        ),
    ],
)
def test_another_network_is_not_taken_for_a_resnet(module, message):
    module.eval()
    with pytest.raises(Unexpected, match=message):
        match(trace(module, SHAPE), SHAPE)


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = 2 * x
        z = self.relu(y)
        return torch.stack([y.flatten(1).sum(1), z.flatten(1).sum(1)], 1)


def test_operations_in_place_change_later_uses():
    x = torch.randn(4, 3, 8, 8)
    assert torch.equal(trace(InPlace().eval(), (3, 8, 8))(x), InPlace()(x))


def test_batch_normalisation_is_folded():
    module = calibrated("cifar-resnet20")
    traced = trace(module, SHAPE)
    assert not traced.graph.find_nodes(op="call_function", target=torch.batch_norm)
    x = torch.rand(4, *SHAPE)
    with torch.inference_mode():
        assert relative_error(traced(x), module(x)) < 1e-5


class RunsAnotherThread(nn.Module):
    """While it is traced, another thread runs another module."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self._other = [nn.Linear(4, 2)]

    def forward(self, x):
        with ThreadPoolExecutor() as pool:
            assert pool.submit(self._other[0], torch.rand(1, 4)).result().shape == (1, 2)
        return self.linear(x)


class WithWeights(nn.Module):
    """A linear layer, followed by `then`, a function of its weight and its output."""

    def __init__(self, then):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.then = then

    def forward(self, x):
        return self.then(self.linear.weight, self.linear(x.flatten(1)))


@pytest.mark.parametrize(
    "then",
    [
        lambda w, y: F.linear(y, w + 1) * F.silu(w[0]),
        lambda w, y: F.linear(y.float(), w.float()),
        lambda w, y: y + torch.diag(w),
    ],
    ids=["folded", "float32", "other operation"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_depends_on_weights_alone_keeps_its_meaning_in_every_format(then, dtype):
    module = WithWeights(then).eval().requires_grad_(False)
    traced = trace(module, (6,)).to(dtype)
    x = torch.rand(3, 6).to(dtype)
    expected = module.to(dtype)(x)
    assert traced(x).dtype == expected.dtype
    torch.testing.assert_close(traced(x), expected, rtol=0.05, atol=0.05)


def test_complex_numbers_of_weights_keep_their_imaginary_parts():
    def then(weight, y):
        return (torch.fft.fft(y) * torch.view_as_complex(weight.view(6, 3, 2))[0, 0]).real

    module = WithWeights(then).eval().requires_grad_(False)
    x = torch.rand(3, 6)
    torch.testing.assert_close(trace(module, (6,)).to(torch.float32)(x), module(x))


def test_other_threads_can_run_modules_while_one_is_traced():
    assert trace(RunsAnotherThread().eval(), (4,)).graph.find_nodes(
        op="call_function", target=F.linear
    )


class DependsOnValues(nn.Module):
    def forward(self, x):
        return x[:, :3] if x.sum() > 0 else x[:, 1:4]


def test_a_module_whose_code_depends_on_values_is_untraceable():
    with pytest.raises(Untraceable):
        trace(DependsOnValues(), (4,))


class OnlyExport(nn.Module):
    """Symbolic tracing cannot follow a loop over a shape."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        for _ in range(x.shape[1] - 3):
            x = self.linear(x).relu()
        return x


@pytest.mark.filterwarnings("ignore")  # torch.export's own
def test_what_symbolic_tracing_cannot_follow_is_exported():
    module = OnlyExport()
    traced = trace(module, (4,))
    x = torch.randn(5, 4)
    assert torch.equal(traced(x), module(x))
    assert traced.graph.find_nodes(op="call_function", target=torch.relu)


class Forward(nn.Module):
    """A module with some parameters and this forward pass."""

    def __init__(self, forward):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.norm = nn.LayerNorm(8)
        self.offset = nn.Parameter(torch.rand(8))
        self.relu6 = nn.ReLU6(inplace=True)
        self.hardtanh = nn.Hardtanh(-20, 20, inplace=True)
        self._code = forward

    def forward(self, x):
        return self._code(self, x)


def clamped_by_a_statement(m, x):
    y = 10 * x
    y.clamp_(-4, 4)
    return m.conv(y)


def clamped_by_a_module_statement(m, x):
    y = 10 * x
    m.hardtanh(y)
    return m.conv(y)


def clamped_by_a_function(m, x):
    y = 10 * x
    F.hardtanh(y, -4, 4, True)
    torch.clamp_(y, -3, 3)
    return m.conv(y)


def clamped_by_an_operator(m, x):
    y = 10 * x
    torch.ops.aten.clamp_(y, -3, 3)
    return m.conv(y)


def set_to_zero(m, x):
    y = m.conv(x)
    z = y.mean(1, keepdim=True)
    torch.zero_(z)  # there is no torch.zero
    return y + z


def viewed(m, x):
    y = m.conv(x)
    return y.view(y.size(0), -1).view(y.shape) + y.view(-1).view((2 * x).shape[0], 8, 8, 8)


def through_an_alias(m, x):
    y = 10 * x
    z = y
    z -= 3
    return m.conv(y)


def after_a_view(m, x):
    y = m.conv(x)
    z = y.flatten(1)
    y.relu_()
    return z


def on_a_view(m, x):
    y = m.conv(x)
    F.relu(y[:, :4], inplace=True)
    return y


def after_a_split(m, x):
    y = m.conv(x)
    parts = y.split(4, 1)
    y.relu_()
    return parts[0]


def without_a_result(m, x):
    y = m.conv(x)
    torch._foreach_clamp_max_([y], 0.5)
    return y


def counted(m, x):
    n = x.shape[2]
    n *= 8
    return m.conv(x).reshape(-1, n, 8)


def past_a_convolution(m, x):
    h = 2 * x
    y = m.conv(h)
    h *= 0.5
    return torch.relu(y + h.mean())


def in_the_input(m, x):
    return m.conv(x.sub_(0.5).div_(0.2))


def usual_block(m, x):
    y = m.bn(m.conv(x))
    z = m.relu6(y)
    z += x.mean(1, keepdim=True)
    return F.relu(z, True)


def added_twice(m, x):
    return m.conv(x) + torch.add(m.conv(2 * x), m.conv(x), alpha=0.5)


def pooled(m, x):
    y = m.conv(x)
    return F.max_pool2d(y, y.shape[2:]) + F.max_pool2d(y, y.size(2))


def reshaped(m, x):
    y = m.conv(x)
    return y.reshape(y.shape[:2] + y.shape[2:]) + torch.add(y, other=y)


def normalised(m, x):
    y = m.conv(x)
    return F.layer_norm(y, y.shape[1:]) + F.conv2d(x, m.conv.weight, padding="same")


def computed_weights(m, x):
    return F.batch_norm(m.conv(x), m.bn.running_mean, m.bn.running_var, 1 + m.offset, -m.offset)


def upsampled(m, x):
    return F.relu(F.conv_transpose2d(m.conv(x), m.conv.weight, stride=2)[:, :, :8, :8] + x)


@pytest.mark.filterwarnings("ignore")  # torch.export's own
@pytest.mark.parametrize(
    "forward",
    [
        clamped_by_a_statement,
        clamped_by_a_module_statement,
        clamped_by_a_function,
        clamped_by_an_operator,
        set_to_zero,
        viewed,
        through_an_alias,
        after_a_view,
        on_a_view,
        after_a_split,
        without_a_result,
        counted,
        past_a_convolution,
        in_the_input,
        usual_block,
        added_twice,
        pooled,
        reshaped,
        normalised,
        computed_weights,
        upsampled,
    ],
)
def test_a_traced_module_computes_the_same_or_is_refused(forward):
    module = Forward(forward).eval()
    x = 10 * torch.randn(4, 3, 8, 8)
    try:
        traced = trace(module, (3, 8, 8))
    except Untraceable:
        assert forward in (after_a_view, on_a_view, after_a_split, without_a_result)
        return
    assert relative_error(traced(x.clone()), module(x.clone())) < 1e-5
    assert not any(
        node.op == "call_method" and node.target.endswith("_") for node in traced.graph.nodes
    )


def with_a_hook():
    module = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    module.register_forward_pre_hook(lambda _, inputs: (inputs[0].clamp(-4, 4),))
    return module


def with_another_forward():
    module = nn.Sequential(nn.Identity(), nn.Flatten(), nn.Linear(192, 3))
    module[0].forward = lambda x: x.clamp(-4, 4)
    return module


class Called(nn.Sequential):
    def __call__(self, x):
        return super().__call__(x.clamp(-4, 4))


def with_another_call():
    return Called(nn.Flatten(), nn.Linear(192, 3))


class Autocast(nn.Sequential):
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x).float()


def with_autocast():
    return Autocast(nn.Flatten(), nn.Linear(192, 3))


@pytest.mark.filterwarnings("ignore")  # torch.export's own
@pytest.mark.parametrize(
    "make", [with_a_hook, with_another_forward, with_another_call, with_autocast]
)
def test_what_symbolic_tracing_does_not_see_is_kept(make):
    module = make().eval()
    x = 10 * torch.randn(4, 3, 8, 8)
    assert relative_error(trace(module, (3, 8, 8))(x), module(x)) < 1e-5


class Clamping(nn.Module):
    """A network for values up to 255 that limits its inputs."""

    def __init__(self):
        super().__init__()
        self.network = calibrated("cifar-resnet20")

    def forward(self, x):
        return self.network(x.clamp(-20, 275) / 255)


class WithoutNaN(Clamping):
    def forward(self, x):
        return self.network(x).nan_to_num()


class SeesInputsAgain(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = calibrated("cifar-resnet20")

    def forward(self, x):
        return self.network(x) + (x - 4).relu().mean((1, 2, 3))[:, None]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Clamping(), "not normalised channel by channel"),
        (WithoutNaN(), "not a linear function"),
        (SeesInputsAgain(), "inputs once more"),
    ],
)
def test_what_acts_only_far_from_the_unit_interval_is_seen(module, message):
    with pytest.raises(Unexpected, match=message):
        match(trace(module.eval(), SHAPE), SHAPE)

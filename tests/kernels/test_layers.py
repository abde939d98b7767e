"""The fused layers: the passes on the CPU, the kernels in the emulator and on a GPU."""

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from benchmarks.unets import SHAPES, random_weights
from emulated import AVAILABLE, layer_kernel
from torch import nn

from smoothcert.kernels import layers
from smoothcert.kernels.fusion import Fusion, input_affine
from smoothcert.kernels.tracing import trace
from smoothcert.models.architectures import Normalize, Normalized
from smoothcert.models.denoisers import Denoised, FixedSigma, build_unet, load_denoiser
from smoothcert.models.denoisers.openai import Attention

NORMALIZE = Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.25))


class Bottleneck(nn.Module):
    """As in a ResNet-50, with a strided convolution as the shortcut."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, 8, 1, bias=False)
        self.conv2 = nn.Conv2d(8, 8, 3, stride, padding=1, bias=False)
        self.conv3 = nn.Conv2d(8, channels, 1, bias=False)
        self.bn1, self.bn2, self.bn3 = (
            nn.BatchNorm2d(8),
            nn.BatchNorm2d(8),
            nn.BatchNorm2d(channels),
        )
        self.shortcut = None
        if stride > 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride), nn.BatchNorm2d(channels)
            )

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        y += x if self.shortcut is None else self.shortcut(x)
        return F.relu(y)


def resnet(channels=3):
    stem = [
        nn.Conv2d(channels, 16, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    blocks = [Bottleneck(16, 32, 2), Bottleneck(32, 32, 1), Bottleneck(32, 32, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 8, 8)
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(3))
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(2)
        )
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for norm, layer in zip(self.norms[:2], self.layers, strict=True):
            x = x + layer(norm(x))
        return self.head(self.norms[2](x)[:, 0])


def denoised():
    denoiser = build_unet("unet-imagenet", shape=(3, 32, 32), sigmas=(0.1, 1.0))
    return Denoised(FixedSigma(denoiser, 0.25), Normalized(NORMALIZE, resnet()))


def randomized(module):
    """The module with weights and statistics that are not trivial."""
    torch.manual_seed(0)
    for part in module.modules():
        if isinstance(part, (nn.BatchNorm2d, nn.LayerNorm)):
            nn.init.normal_(part.weight, 1, 0.2)
            nn.init.normal_(part.bias, 0, 0.3)
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.3)
            part.running_var.uniform_(0.5, 2)
        if isinstance(part, (nn.Conv2d, nn.ConvTranspose2d)) and not part.weight.any():
            nn.init.normal_(part.weight, 0, 0.03)
    return module.eval().requires_grad_(False)


def space_to_depth(x, block, padding, size, channels, factor, offset):
    exact = x.double() * x.new_tensor(factor, dtype=torch.float64).view(-1, 1, 1)
    x = (exact + x.new_tensor(offset, dtype=torch.float64).view(-1, 1, 1)).to(x.dtype)
    height, width = (block * length for length in size)
    x = F.pad(x, (padding, width - padding - x.shape[3], padding, height - padding - x.shape[2]))
    cells = x.view(len(x), x.shape[1], size[0], block, size[1], block).permute(0, 3, 5, 1, 2, 4)
    cells = cells.reshape(len(x), -1, *size)
    return F.pad(cells, (0, 0, 0, 0, 0, channels - cells.shape[1])).contiguous(
        memory_format=torch.channels_last
    )


def max_pool(x, size, stride, padding):
    return F.max_pool2d(x, size, stride, padding)


def add_layer_norm(x, y, weight, bias, epsilon):
    added = x if y is None else x + y
    return added, F.layer_norm(added, weight.shape, weight, bias, epsilon)


def depth_to_space_add_relu(x, added, block):
    rows, channels, height, width = x.shape
    cells = x.view(rows, block, block, channels // block**2, height, width).permute(
        0, 3, 4, 1, 5, 2
    )
    images = cells.reshape(rows, -1, block * height, block * width)
    return torch.relu(images.contiguous(memory_format=torch.channels_last) + added)


def group_norm(x, shift, groups, weight, bias, epsilon, activates):
    exact = [None if part is None else part.float() for part in (x, shift, weight, bias)]
    x_exact, shift, weight, bias = exact
    if shift is not None:
        x_exact = x_exact + shift.view(-1, 1, 1)
    normal = F.group_norm(x_exact, groups, weight, bias, epsilon)
    result = (F.silu(normal) if activates else normal).to(x.dtype)
    return result.contiguous(memory_format=torch.channels_last)


def add_bias(x, y, bias):
    return (x.float() + y.float() + bias.float().view(-1, 1, 1)).to(x.dtype)


REFERENCES = {
    layers.space_to_depth: space_to_depth,
    layers.max_pool: max_pool,
    layers.add_layer_norm: add_layer_norm,
    layers.group_norm: group_norm,
    layers.add_bias: add_bias,
    layers.depth_to_space_add_relu: depth_to_space_add_relu,
}
"""The operations of our kernels, and the same by operations of torch, which also run on a CPU."""


def fused(module, shape):
    """The fused graph for the CPU, and how often it has each operation."""
    traced = trace(module, shape).requires_grad_(False)
    affine = input_affine(traced, shape)
    Fusion(traced, torch.rand(2, *shape), affine).run()
    counts = Counter(node.target for node in traced.graph.nodes)
    for node in traced.graph.nodes:
        node.target = REFERENCES.get(node.target, node.target)
    traced.recompile()
    return traced, counts


@pytest.mark.parametrize(
    "make", [resnet, lambda: Normalized(NORMALIZE, resnet())], ids=["plain", "normalised"]
)
def test_a_residual_network_has_no_separate_additions(make):
    module = randomized(make())
    traced, counts = fused(module, (3, 64, 64))
    x = torch.rand(4, 3, 64, 64)
    torch.testing.assert_close(traced(x), module(x), rtol=1e-4, atol=1e-4)
    assert counts[layers.convolution_relu] == 10
    assert counts[layers.space_to_depth] == counts[layers.max_pool] == 1
    assert counts[torch.relu] == counts[torch.add] == 0
    assert counts[torch.conv2d] == 1  # the shortcut, whose bias the other branch has
    (shortcut,) = traced.graph.find_nodes(op="call_function", target=torch.conv2d)
    assert shortcut.args[2] is None


def test_a_denoiser_is_fused_with_its_classifier():
    module = randomized(denoised())
    traced, counts = fused(module, (3, 32, 32))
    x = torch.rand(4, 3, 32, 32)
    torch.testing.assert_close(traced(x), module(x), rtol=1e-4, atol=1e-4)
    assert counts[layers.depth_to_space_add_relu] == 3
    assert counts[torch.relu] == counts[torch.conv_transpose2d] == 0


def test_a_transformer_normalises_what_it_adds():
    module = randomized(Transformer())
    traced, counts = fused(module, (3, 32, 32))
    x = torch.rand(4, 3, 32, 32)
    torch.testing.assert_close(traced(x), module(x), rtol=1e-4, atol=1e-5)
    assert counts[layers.add_layer_norm] == 3
    assert counts[torch.add] == counts[torch.conv2d] == counts[F.layer_norm] == 0


def test_a_diffusion_network_normalises_groups_with_all_that_stands_around(tmp_path):
    file = tmp_path / "unet.pt"
    torch.save(random_weights(SHAPES["tiny"]), file)
    module = load_denoiser(f"openai:{file}").at(0.5).eval()
    traced, counts = fused(module, (3, 32, 32))
    x = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(traced(x), module(x), rtol=1e-4, atol=1e-4)
    norms = sum(isinstance(part, nn.GroupNorm) for part in module.modules())
    assert counts[layers.group_norm] == norms
    assert counts[F.silu] == counts[torch.mul] == 0
    assert counts[F.linear] == 2 * sum(isinstance(part, Attention) for part in module.modules())
    assert counts[layers.add_bias]
    for convolution in traced.graph.find_nodes(op="call_function", target=torch.conv2d):
        if convolution.args[2] is not None and len(convolution.users) == 1:
            (user,) = convolution.users
            assert user.target not in (group_norm, add_bias, torch.add)


class Grouped(nn.Module):
    """A convolution and a group normalisation, followed by `then`."""

    def __init__(self, then):
        super().__init__()
        self.convolution = nn.Conv2d(3, 16, 3, padding=1)
        self.normal = nn.GroupNorm(4, 16)
        self.factor = nn.Parameter(torch.rand(16, 1, 1) + 0.5)
        self.then = then

    def forward(self, x):
        y = self.convolution(x)
        return self.then(self, y, self.normal(y))


@pytest.mark.parametrize(
    "then",
    [
        lambda m, y, z: z,
        lambda m, y, z: z + y,
        lambda m, y, z: F.silu(m.factor * z),
        lambda m, y, z: F.silu(z + m.factor),
        lambda m, y, z: m.factor * z + F.silu(z),
        lambda m, y, z: F.silu(z * m.factor + m.factor) * y,
        lambda m, y, z: F.silu(z * m.factor[0, 0, 0]),
        lambda m, y, z: F.silu(z * z.mean((2, 3), keepdim=True)),
    ],
)
def test_what_stands_around_a_group_normalisation_keeps_its_meaning(then):
    assert group_norms_of(Grouped(then)) == 1


def computed_groups(module, y, z):
    return F.group_norm(y, y.shape[1] // 4, module.normal.weight, module.normal.bias)


@pytest.mark.parametrize(
    "module",
    [
        Grouped(computed_groups),
        nn.Sequential(nn.Conv2d(3, 12, 3), nn.GroupNorm(3, 12), nn.SiLU()),
        nn.Sequential(nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16, affine=False), nn.SiLU()),
    ],
    ids=["computed groups", "12 channels", "no weights"],
)
def test_group_normalisations_of_other_kinds_stay_as_they_are(module):
    assert group_norms_of(module) == 0


def group_norms_of(module):
    """How many normalisations are fused in a graph that keeps its answers."""
    module.eval().requires_grad_(False)
    traced, counts = fused(module, (3, 8, 8))
    x = torch.rand(2, 3, 8, 8)
    torch.testing.assert_close(traced(x), module(x), rtol=1e-4, atol=1e-4)
    return counts[layers.group_norm]


def test_sums_of_two_number_formats_stay_as_they_are():
    module = Followed(lambda x, y: y + x.double()).eval().requires_grad_(False)
    traced, counts = fused(module, (16, 8, 8))
    x = torch.rand(2, 16, 8, 8)
    assert traced(x).dtype == torch.float64
    assert counts[layers.add_bias] == 0


@pytest.mark.parametrize(
    "name", ["densenet121", "regnet_y_400mf", "convnext_tiny", "shufflenet_v2_x0_5"]
)
def test_published_networks_keep_their_answers(name):
    module = randomized(
        Normalized(NORMALIZE, getattr(pytest.importorskip("torchvision").models, name)())
    )
    traced, counts = fused(module, (3, 64, 64))
    x = torch.rand(4, 3, 64, 64)
    torch.testing.assert_close(traced(x), module(x), rtol=1e-3, atol=1e-4)
    assert counts[layers.space_to_depth]


class Followed(nn.Module):
    """One convolution, followed by `then`, a function of its input and its output."""

    def __init__(self, then, *, into=16, groups=1):
        super().__init__()
        self.convolution = nn.Conv2d(16, into, 3, padding=1, groups=groups)
        self.then = then

    def forward(self, x):
        return self.then(x, self.convolution(x))


@pytest.mark.parametrize(
    "module",
    [
        Followed(lambda x, y: y.relu() + y),
        Followed(lambda x, y: (x + y).relu() + y),
        Followed(lambda x, y: torch.add(x, y, alpha=2).relu()),
        Followed(lambda x, y: (y + 1).relu()),
        Followed(lambda x, y: (y + x[:1]).relu()),
        Followed(lambda x, y: (y + x.mT).relu()),
        Followed(lambda x, y: y.sigmoid()),
        Followed(lambda x, y: y.relu(), into=12),
        Followed(lambda x, y: y.relu(), groups=2),
    ],
    ids=[
        "used twice",
        "used after the sum",
        "scaled",
        "number",
        "broadcast",
        "other layout",
        "no relu",
        "12 channels",
        "groups",
    ],
)
def test_a_relu_that_cannot_be_fused_stays_as_it_is(module):
    module.eval().requires_grad_(False)
    traced, counts = fused(module, (16, 8, 8))
    assert counts[layers.convolution_relu] == 0
    x = torch.rand(2, 16, 8, 8)
    torch.testing.assert_close(traced(x), module(x))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 8, 3, 2, padding=1, dilation=2),
        nn.Conv2d(3, 9, (3, 5), (2, 1), padding=(1, 2)),
        nn.Conv2d(3, 9, 1, 2),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.MaxPool2d((2, 3)),
        nn.Sequential(nn.Conv2d(3, 8, 1), nn.MaxPool2d(15)),
        nn.Sequential(nn.Flatten(1, 2), nn.MaxPool2d(3)),
        nn.Sequential(nn.Conv2d(3, 8, 1), nn.ConvTranspose2d(8, 8, 3, 2, padding=1)),
    ],
    ids=str,
)
def test_unusual_layers_stay_correct(layer):
    module = nn.Sequential(layer, nn.ReLU(), nn.Flatten()).eval().requires_grad_(False)
    traced, _ = fused(module, (3, 15, 15))
    x = torch.rand(4, 3, 15, 15)
    torch.testing.assert_close(traced(x), module(x), rtol=1e-4, atol=1e-5)


class Viewed(nn.Module):
    """Fused layers store channels last, and this view is possible only in the other order."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 1)

    def forward(self, x):
        y = F.max_pool2d(self.conv1(x), 2)
        return torch.cat([y.view(y.size(0), -1), self.conv2(y).view(-1, 72)], 1)


def test_a_fused_layer_can_be_followed_by_a_view():
    module = Viewed().eval().requires_grad_(False)
    traced, counts = fused(module, (1, 8, 8))
    x = torch.rand(4, 1, 8, 8)
    torch.testing.assert_close(traced(x), module(x), rtol=1e-4, atol=1e-5)
    assert counts[layers.max_pool] == 1


class Doubled(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x):
        y = self.conv(x)
        return torch.relu(y + y)


def test_a_convolution_that_is_added_to_itself_keeps_its_bias():
    module = Doubled().eval().requires_grad_(False)
    traced, _ = fused(module, (3, 8, 8))
    x = torch.rand(2, 3, 8, 8)
    torch.testing.assert_close(traced(x), module(x), rtol=1e-4, atol=1e-5)


def images(*shape, dtype, device):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    return x.to(device, dtype, memory_format=torch.channels_last)


def compare(operation, arguments, dtype):
    """Operations of torch may round intermediate results once more."""
    computed = tensors_of(operation(*arguments))
    expected = tensors_of(REFERENCES[operation](*arguments))
    tolerance = 2 * torch.finfo(dtype).eps
    for one, other in zip(computed, expected, strict=True):
        if one.numel():
            assert one.stride() == other.stride()
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)


def tensors_of(result):
    return (result,) if isinstance(result, torch.Tensor) else result


def check_kernels(dtype, device):
    x = images(3, 3, 11, 9, dtype=dtype, device=device)
    for block, padding, size, channels in (
        (2, 3, [9, 8], 16),
        (1, 1, [13, 11], 8),
        (4, 0, [2, 2], 48),
    ):
        compare(
            layers.space_to_depth,
            (x, block, padding, size, channels, [0.5, 2.0, 3.0], [0.25, -1.0, 0.0]),
            dtype,
        )
    x = images(3, 24, 11, 9, dtype=dtype, device=device)
    x[0, 0, 0, 0] = torch.nan
    for geometry in ((3, 2, 1), (2, 2, 0)):
        compare(layers.max_pool, (x, *geometry), dtype)
    weight, bias = images(1, 264, 1, 2, dtype=dtype, device=device)[0, :, 0].T.contiguous()
    rows = images(5, 7, 264, 1, dtype=dtype, device=device)[..., 0].contiguous()
    compare(layers.add_layer_norm, (rows, rows.flip(0).contiguous(), weight, bias, 1e-6), dtype)
    # Its address is no multiple of 16 bytes.
    shifted = torch.cat([rows.flatten()[:3], rows.flatten()])[3:].view(rows.shape)
    compare(layers.add_layer_norm, (shifted, rows, weight[:1].expand(264), bias, 1e-6), dtype)
    _, normal = layers.add_layer_norm(rows, None, weight, bias, 1e-6)
    expected = F.layer_norm(rows.float(), (264,), weight.float(), bias.float(), 1e-6)
    torch.testing.assert_close(normal.float(), expected, rtol=1e-2, atol=1e-2)
    for channels, groups in ((128, 32), (96, 32), (48, 1), (64, 16), (40, 5), (8, 8), (384, 32)):
        x = images(3, channels, 9, 7, dtype=dtype, device=device)
        shift, weight, bias = images(3, channels, 1, 1, dtype=dtype, device=device)[:, :, 0, 0]
        shift = 100 * shift  # the variance must not suffer from the mean
        compare(layers.group_norm, (x, None, groups, weight, bias, 1e-5, False), dtype)
        compare(layers.group_norm, (x, None, groups, weight, bias, 1e-5, True), dtype)
        compare(layers.group_norm, (x, shift, groups, weight, bias, 1e-6, True), dtype)
    compare(layers.add_bias, (x, x.flip(0), bias), dtype)
    assert layers.can_normalise_groups(2048, 32)
    assert not layers.can_normalise_groups(36, 4)
    cells = images(3, 64, 5, 4, dtype=dtype, device=device)
    added = images(3, 16, 10, 8, dtype=dtype, device=device)
    compare(layers.depth_to_space_add_relu, (cells, added, 2), dtype)


@pytest.mark.skipif(not AVAILABLE, reason="no g++ here")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_emulated_kernels_compute_what_torch_computes(dtype, monkeypatch):
    monkeypatch.setattr(layers, "_kernel", layer_kernel)
    check_kernels(dtype, "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_kernels_compute_what_torch_computes(dtype):
    check_kernels(dtype, "cuda")

"""The compiler pass. Graphs are traced for a GPU, which works without a GPU, and run on the CPU."""

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from smoothcert.kernels.fusion import FuseConvolutions
from smoothcert.kernels.layers.convolution import _fused, _unfused

CHANNELS = 16


class Network(nn.Module):
    """One convolution, followed by `then`, a function of its input and its output."""

    def __init__(self, then, *, into=CHANNELS, groups=1, bias=True):
        super().__init__()
        torch.manual_seed(0)
        self.convolution = nn.Conv2d(CHANNELS, into, 3, padding=1, groups=groups, bias=bias)
        self.then = then

    def forward(self, x):
        return self.then(x, self.convolution(x))


def traced(network, *, device="cuda", dtype=torch.bfloat16):
    """The operations of the network on a device, with the weights as arguments."""
    parameters = dict(network.named_parameters())
    with FakeTensorMode():
        fakes = {name: torch.empty(p.shape, device=device, dtype=dtype) for name, p in parameters.items()}
        x = torch.empty((2, CHANNELS, 8, 8), device=device, dtype=dtype)
        return make_fx(lambda weights, x: torch.func.functional_call(network, weights, (x,)))(fakes, x)


def fused(graph_module):
    """Run the pass; the number of fused operations and of all operations afterwards."""
    FuseConvolutions()(graph_module.graph)
    graph_module.recompile()
    targets = [node.target for node in graph_module.graph.nodes if node.op == "call_function"]
    return targets.count(torch.ops.smoothcert.convolution_relu.default), len(targets)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "then",
    [lambda x, y: y.relu(), lambda x, y: (x + y).relu(), lambda x, y: (y + x).relu()],
    ids=["relu", "input + convolution", "convolution + input"],
)
def test_the_fused_operation_computes_the_same(then, bias):
    network = Network(then, bias=bias)
    graph_module = traced(network)
    assert fused(graph_module) == (1, 1)
    x = torch.randn(2, CHANNELS, 8, 8)
    got = graph_module(dict(network.named_parameters()), x)
    assert torch.allclose(got, network(x))


@pytest.mark.parametrize(
    "network",
    [
        Network(lambda x, y: y.relu() + y),
        Network(lambda x, y: (x + y).relu() + y),
        Network(lambda x, y: torch.add(x, y, alpha=2).relu()),
        Network(lambda x, y: (y + 1).relu()),
        Network(lambda x, y: (y + x[:1]).relu()),
        Network(lambda x, y: (y + x.mT).relu()),
        Network(lambda x, y: y.sigmoid()),
        Network(lambda x, y: y.relu(), into=12),
        Network(lambda x, y: y.relu(), groups=2),
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
def test_other_operations_stay_unchanged(network):
    graph_module = traced(network)
    before = len(graph_module.graph.nodes)
    assert fused(graph_module)[0] == 0
    assert len(graph_module.graph.nodes) == before


@pytest.mark.parametrize("where", [{"device": "cpu"}, {"dtype": torch.float32}])
def test_only_half_precision_on_a_gpu_is_fused(where):
    assert fused(traced(Network(lambda x, y: y.relu()), **where))[0] == 0


def test_both_branches_may_be_convolutions():
    network = Network(lambda x, y: y.relu())
    network.other = nn.Conv2d(CHANNELS, CHANNELS, 1)
    network.then = lambda x, y: (y + network.other(x)).relu()
    graph_module = traced(network)
    assert fused(graph_module) == (1, 2)
    x = torch.randn(2, CHANNELS, 8, 8)
    assert torch.allclose(graph_module(dict(network.named_parameters()), x), network(x), atol=1e-6)


def test_without_a_fused_kernel_the_separate_operations_run():
    x, weight = torch.randn(2, CHANNELS, 8, 8), torch.randn(CHANNELS, CHANNELS, 3, 3)
    geometry = [1, 1], [1, 1], [1, 1], 1
    for added in (None, x):
        assert torch.equal(_fused(x, weight, None, added, *geometry), _unfused(x, weight, None, added, *geometry))

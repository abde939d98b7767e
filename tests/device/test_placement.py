from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from smoothcert.device.runtime import Runtime, blank, place

SHAPE = (3, 8, 8)
CPU = Runtime.resolve("cpu", dtype="float32")


class Viewing(nn.Module):
    """As in torch's tutorial: this view is impossible if the channels are last."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.linear = nn.Linear(72, 5)

    def forward(self, x):
        return self.linear(F.max_pool2d(F.relu(self.conv(x)), 2).view(-1, 72))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_module_that_views_its_activations_gets_contiguous_images(dtype):
    module = Viewing().eval()
    runtime = replace(CPU, dtype=dtype)
    placed = place(module, runtime, SHAPE)
    x = blank(SHAPE, runtime, 4) + torch.rand(4, *SHAPE)
    assert x.is_contiguous(memory_format=torch.channels_last)
    with pytest.raises(RuntimeError, match="view size"):
        module.to(x.dtype).to(memory_format=torch.channels_last)(x)
    assert torch.equal(placed(x), module.to(memory_format=torch.contiguous_format)(x.contiguous()))
    again = place(placed, runtime, SHAPE)
    assert torch.equal(again(x), placed(x))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit
@pytest.mark.parametrize("wrap", [torch.jit.script, nn.DataParallel, torch.compile])
@torch.no_grad()
def test_so_does_a_module_in_another_form(wrap):
    module = Viewing().eval()
    x = blank(SHAPE, CPU, 4) + torch.rand(4, *SHAPE)
    assert torch.equal(place(wrap(module), CPU, SHAPE)(x), module(x.contiguous()))


def test_other_modules_have_their_channels_last():
    placed = place(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(288, 5)), CPU, SHAPE)
    assert placed[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert not placed._forward_pre_hooks


def test_a_module_that_fails_is_placed_all_the_same():
    """The check before a run says why it fails."""
    placed = place(nn.Conv2d(7, 8, 3), CPU, SHAPE)
    assert not placed._forward_pre_hooks


def test_a_function_stays_as_it_is():
    assert place(len, CPU, SHAPE) is len

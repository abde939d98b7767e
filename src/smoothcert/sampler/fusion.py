"""Convolution, addition and rectifier in one pass over memory: cuDNN has it, but the compiler does not ask for it.

It has cuDNN convolve, and then reads and writes every activation once more.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import torch
from torch import Tensor, fx
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

aten = torch.ops.aten

_CHANNELS = 8  # tensor cores take them by so many
_FORMATS = (torch.bfloat16, torch.float16)

# `how` is stride, padding, dilation and groups.
_library = torch.library.Library("smoothcert", "DEF")  # type: ignore[no-untyped-call]
_library.define(  # type: ignore[no-untyped-call]
    "convolution_relu(Tensor x, Tensor weight, Tensor? bias, Tensor? added,"
    " int[] stride, int[] padding, int[] dilation, int groups) -> Tensor",
    tags=torch.Tag.needs_fixed_stride_order,
)


@torch.library.impl(_library, "convolution_relu", "CompositeExplicitAutograd")
def _plain(x: Tensor, weight: Tensor, bias: Tensor | None, added: Tensor | None, *how: Any) -> Tensor:
    y = torch.conv2d(x, weight, bias, *how)
    return (y if added is None else y + added).relu()


@torch.library.impl(_library, "convolution_relu", "CUDA")
def _fused(x: Tensor, weight: Tensor, bias: Tensor | None, added: Tensor | None, *how: Any) -> Tensor:
    try:
        if added is None:
            return torch.cudnn_convolution_relu(x, weight, bias, *how)
        return torch.cudnn_convolution_add_relu(x, weight, added, 1.0, bias, *how)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # cuDNN has none for this shape, or on this device
        return _plain(x, weight, bias, added, *how)


@torch.library.register_fake("smoothcert::convolution_relu", lib=_library)  # type: ignore[untyped-decorator]
def _shape(x: Tensor, weight: Tensor, bias: Tensor | None, added: Tensor | None, *how: Any) -> Tensor:
    return torch.conv2d(x, weight, bias, *how)


class FuseConvolutions(CustomGraphPass):
    """A pass of the compiler: relu(convolution) and relu(convolution + something) become `convolution_relu`."""

    def __call__(self, graph: fx.Graph) -> None:
        for relu in graph.find_nodes(op="call_function", target=aten.relu.default):
            (total,) = relu.all_input_nodes
            if _fusible(total):
                _replace(relu, total, added=None)
            elif total.target is aten.add.Tensor and len(total.users) == 1 and not total.kwargs:
                for convolution, added in permutations(total.all_input_nodes, 2):
                    if _fusible(convolution) and _alike(convolution, added):
                        _replace(relu, convolution, added)
                        break
        graph.eliminate_dead_code()

    def uuid(self) -> bytes:
        """What compilations with this pass are cached under."""
        return get_hash_for_files((__file__,))


def _fusible(node: fx.Node) -> bool:
    """A convolution whose result nobody else needs, of a kind that cuDNN has kernels for."""
    if node.target is not aten.convolution.default or len(node.users) > 1:
        return False
    arguments: tuple[Any, ...] = node.args
    weight, transposed, groups, y = arguments[1].meta["val"], arguments[6], arguments[8], node.meta["val"]
    if not y.is_cuda or torch.version.hip or y.dtype not in _FORMATS or weight.ndim != 4 or transposed or groups > 1:
        return False
    return all(channels % _CHANNELS == 0 for channels in weight.shape[:2])


def _alike(convolution: fx.Node, added: fx.Node) -> bool:
    y, z = convolution.meta["val"], added.meta["val"]
    return (y.shape, y.stride(), y.dtype, y.device) == (z.shape, z.stride(), z.dtype, z.device)


def _replace(relu: fx.Node, convolution: fx.Node, added: fx.Node | None) -> None:
    x, weight, bias, stride, padding, dilation, _, _, groups = convolution.args
    with relu.graph.inserting_before(relu):
        arguments = (x, weight, bias, added, stride, padding, dilation, groups)
        fused = relu.graph.call_function(torch.ops.smoothcert.convolution_relu.default, arguments)
    fused.meta.update(relu.meta)
    relu.replace_all_uses_with(fused)
    relu.graph.erase_node(relu)

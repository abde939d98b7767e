"""A compiler pass that fuses convolution, addition and ReLU into one cuDNN operation.

torch's compiler calls cuDNN for the convolution alone, and then reads and writes every activation once more for the
addition and the ReLU. cuDNN can do all three in one pass over memory.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import torch
from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

from smoothcert.kernels.layers import convolution
from smoothcert.kernels.layers.convolution import CHANNEL_MULTIPLE, FUSED_DTYPES

aten = torch.ops.aten


class FuseConvolutions(CustomGraphPass):
    """A compiler pass that replaces relu(convolution) and relu(convolution + tensor) by `convolution_relu`."""

    def __call__(self, graph: fx.Graph) -> None:
        """Change a graph in place."""
        for relu in graph.find_nodes(op="call_function", target=aten.relu.default):
            (argument,) = relu.all_input_nodes
            if _is_fusible(argument):
                _replace(relu, argument, added=None)
            elif argument.target is aten.add.Tensor and len(argument.users) == 1 and not argument.kwargs:
                for convolution, added in permutations(argument.all_input_nodes, 2):
                    if _is_fusible(convolution) and _have_same_layout(convolution, added):
                        _replace(relu, convolution, added)
                        break
        graph.eliminate_dead_code()

    def uuid(self) -> bytes:
        """The key of this pass in the compiler's cache."""
        return get_hash_for_files((__file__, convolution.__file__))


def _is_fusible(node: fx.Node) -> bool:
    """Whether a node is a convolution that cuDNN can fuse and whose result has no other use."""
    if node.target is not aten.convolution.default or len(node.users) > 1:
        return False
    arguments: tuple[Any, ...] = node.args
    weight, transposed, groups, y = arguments[1].meta["val"], arguments[6], arguments[8], node.meta["val"]
    if (
        not y.is_cuda
        or torch.version.hip
        or y.dtype not in FUSED_DTYPES
        or weight.ndim != 4
        or transposed
        or groups > 1
    ):
        return False
    return all(channels % CHANNEL_MULTIPLE == 0 for channels in weight.shape[:2])


def _have_same_layout(convolution: fx.Node, added: fx.Node) -> bool:
    y, z = convolution.meta["val"], added.meta["val"]
    return (y.shape, y.stride(), y.dtype, y.device) == (z.shape, z.stride(), z.dtype, z.device)


def _replace(relu: fx.Node, convolution: fx.Node, added: fx.Node | None) -> None:
    """Replace a ReLU, and with it the operations before it, by the fused operation."""
    x, weight, bias, stride, padding, dilation, _, _, groups = convolution.args
    with relu.graph.inserting_before(relu):
        arguments = (x, weight, bias, added, stride, padding, dilation, groups)
        fused = relu.graph.call_function(torch.ops.smoothcert.convolution_relu.default, arguments)
    fused.meta.update(relu.meta)
    relu.replace_all_uses_with(fused)
    relu.graph.erase_node(relu)

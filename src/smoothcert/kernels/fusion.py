"""Passes over a traced graph: each replaces operations by fused ones that read and write memory less often."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from itertools import permutations
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from smoothcert.kernels import layers
from smoothcert.kernels.evaluation import Evaluator, Unexpected, first_convolution
from smoothcert.kernels.layers import CHANNEL_MULTIPLE, VECTOR, convolution_relu
from smoothcert.kernels.tracing import constant, constants, hold, replaced

_LONGEST_ROW = 8192  # of a layer normalisation, which keeps a row in the registers of a warp
_LARGEST_POOL = 7  # the kernel has code for every pixel of a window

Affine = tuple[fx.Node, Tensor, Tensor]


def input_affine(module: fx.GraphModule, shape: tuple[int, ...]) -> Affine | None:
    """The first convolution, if its inputs are the inputs of the graph times a factor plus an offset per channel."""
    try:
        return first_convolution(Evaluator(module, shape))
    except Unexpected:
        return None


class Fusion:
    """Rewrites a graph with fused operations.

    Args:
        module: The graph. It is changed.
        example: Two inputs. The graph must be on their device.
        affine: What `input_affine` found.
    """

    def __init__(self, module: fx.GraphModule, example: Tensor, affine: Affine | None) -> None:
        self.module = module
        self.affine = affine
        interpreter = fx.Interpreter(module, garbage_collect_values=False)
        interpreter.run(example)
        results = (
            (node, result) for node, result in interpreter.env.items() if isinstance(result, Tensor)
        )
        self.shapes = {node: (x.shape, x.stride(), x.dtype, x.device) for node, x in results}

    def run(self) -> None:
        """Run all passes."""
        for target, rewrite in (
            (torch.conv2d, self._widen_input),
            (torch.add, self._merge_biases),
            (torch.relu, self._fuse_relu),
            (torch.conv2d, self._as_matrix_product),
            (torch.max_pool2d, self._pool),
            (F.layer_norm, self._normalise),
        ):
            for node in list(self.module.graph.find_nodes(op="call_function", target=target)):
                if node.users:
                    rewrite(node)
        self.module.graph.eliminate_dead_code()
        self.module.recompile()

    def _replace(self, node: fx.Node, target: Any, arguments: tuple[Any, ...]) -> None:
        self.shapes[replaced(node, target, arguments)] = self.shapes[node]

    def _convolution(self, node: fx.Node) -> tuple[Tensor, Tensor | None] | None:
        """Weight and bias of a convolution without groups and dilation; None for any other."""
        found = constants(self.module, node.args[1:3])
        return None if found is None or node.args[5:7] != ((1, 1), 1) else (found[0], found[1])

    def _widen_input(self, node: fx.Node) -> None:
        """Turn a few input channels into a multiple of eight, as tensor cores need them.

        A convolution with a stride sees cells of pixels as channels, and has no stride then.
        """
        found = self._convolution(node)
        x, _, _, stride, padding, *_ = _arguments(node)
        if (
            found is None
            or stride[0] != stride[1]
            or padding[0] != padding[1]
            or x not in self.shapes
        ):
            return
        weight, block = found[0], stride[0]
        channels, *sides = weight.shape[1:]
        if channels % CHANNEL_MULTIPLE == 0 or min(sides) < block:
            return
        taps = [-(-side // block) for side in sides]
        size = [
            length + tap - 1 for length, tap in zip(self.shapes[node][0][2:], taps, strict=True)
        ]
        wide = -(-channels * block**2 // CHANNEL_MULTIPLE) * CHANNEL_MULTIPLE
        factor, offset = [1.0] * channels, [0.0] * channels
        if self.affine is not None and node is self.affine[0]:
            (x,) = self.module.graph.find_nodes(op="placeholder")
            factor, offset = (values.tolist() for values in self.affine[1:])
        with node.graph.inserting_before(node):
            arguments = (x, block, padding[0], size, wide, factor, offset)
            cells = node.graph.call_function(layers.space_to_depth, arguments)
        new = hold(self.module, node, _of_cells(weight, block, taps, wide))
        node.args = (cells, new, node.args[2], (1, 1), (0, 0), (1, 1), 1)

    def _merge_biases(self, addition: fx.Node) -> None:
        """Where two convolutions are added, one of them can have the biases of both."""
        nodes = addition.all_input_nodes  # one, if a tensor is added to itself
        if len(nodes) != 2 or any(
            node.target is not torch.conv2d or len(node.users) > 1 for node in nodes
        ):
            return
        first, second = nodes
        biases = [constant(self.module, node.args[2]) for node in (first, second)]
        if biases[0] is None or biases[1] is None or biases[0].shape != biases[1].shape:
            return
        both = hold(self.module, first, biases[0] + biases[1])
        first.args = (*first.args[:2], both, *first.args[3:])
        second.args = (*second.args[:2], None, *second.args[3:])

    def _fuse_relu(self, relu: fx.Node) -> None:
        """Replace a ReLU, and the convolution and the addition before it, by one operation."""
        (argument,) = relu.all_input_nodes
        pairs: Iterable[tuple[fx.Node, fx.Node | None]] = [(argument, None)]
        if argument.target is torch.add and len(argument.users) == 1:
            both = permutations(argument.all_input_nodes, 2)
            pairs = [
                (one, other)
                for one, other in both
                if self.shapes.get(one) == self.shapes.get(other)
            ]
        for convolution, added in pairs:
            if self._is_fusible(convolution):
                x, weight, bias, *geometry = _arguments(convolution)
                self._replace(relu, convolution_relu, (x, weight, bias, added, *geometry))
                return
            if added is not None and self._fuse_upsampling(relu, convolution, added):
                return

    def _is_fusible(self, node: fx.Node) -> bool:
        """Whether a node is a convolution that cuDNN can fuse and whose result has no other use."""
        if node.target is not torch.conv2d or len(node.users) > 1:
            return False
        weight = constant(self.module, node.args[1])
        if weight is None or node.args[6] != 1:
            return False
        return all(channels % CHANNEL_MULTIPLE == 0 for channels in weight.shape[:2])

    def _fuse_upsampling(self, relu: fx.Node, node: fx.Node, added: fx.Node) -> bool:
        """Replace a transposed convolution without overlap, whose result has no other use; returns whether it is one.

        A matrix product computes all pixels of a cell, and the addition moves them to their places.
        """
        if node.target is not torch.conv_transpose2d or len(node.users) > 1:
            return False
        found, (x, _, _, stride, *geometry) = (
            constants(self.module, node.args[1:3]),
            _arguments(node),
        )
        if found is None or geometry != [
            (0, 0),
            (0, 0),
            1,
            (1, 1),
        ]:  # padding, padding of outputs, groups, dilation
            return False
        weight, bias = found
        inputs, channels, *sides = weight.shape
        if sides != list(stride) or sides[0] != sides[1] or channels % VECTOR:
            return False
        weights = hold(self.module, relu, weight.permute(2, 3, 1, 0).reshape(-1, inputs))
        biases = None if bias is None else hold(self.module, relu, bias.repeat(sides[0] * sides[1]))
        with relu.graph.inserting_before(relu):
            product = relu.graph.call_function(pointwise, (x, weights, biases))
        self._replace(relu, layers.depth_to_space_add_relu, (product, added, sides[0]))
        return True

    def _as_matrix_product(self, node: fx.Node) -> None:
        """A 1x1 convolution with a bias, because torch adds the bias of a convolution in a second, slow pass."""
        found = self._convolution(node)
        if found is None or found[1] is None or tuple(node.args[3:5]) != ((1, 1), (0, 0)):
            return
        weight = found[0]
        if tuple(weight.shape[2:]) == (1, 1) and all(
            length % CHANNEL_MULTIPLE == 0 for length in weight.shape[:2]
        ):
            matrix = hold(self.module, node, weight.flatten(1))
            self._replace(node, pointwise, (node.args[0], matrix, node.args[2]))

    def _pool(self, node: fx.Node) -> None:
        x, *geometry, dilation, ceil_mode = _arguments(node)
        pairs = [tuple(pair) for pair in geometry]
        if dilation != (1, 1) or ceil_mode or any(pair[0] != pair[1] for pair in pairs):
            return
        shape = self.shapes[node][0]
        if len(shape) == 4 and shape[1] % VECTOR == 0 and pairs[0][0] <= _LARGEST_POOL:
            arguments = (x, *(pair[0] for pair in pairs))
            self._replace(node, layers.max_pool, arguments)

    def _normalise(self, node: fx.Node) -> None:
        """Layer normalisation together with the addition before it, of which others need the sum."""
        x, shape, weight_node, bias_node, epsilon = _arguments(node)
        weight, bias = (constant(self.module, argument) for argument in (weight_node, bias_node))
        if weight is None or bias is None or len(shape) != 1 or not isinstance(x, fx.Node):
            return
        if len(weight) % VECTOR or len(weight) > _LONGEST_ROW:
            return
        inputs: tuple[Any, Any] = (x, None)
        if (
            adds := x.target is torch.add
            and len({self.shapes[n][0] for n in x.all_input_nodes}) == 1
        ):
            inputs = (x.args[0], x.args[1])
        with x.graph.inserting_after(x):
            both = x.graph.call_function(layers.add_layer_norm)
        with x.graph.inserting_before(both):
            parameters = (x.graph.get_attr(str(n.target)) for n in (weight_node, bias_node))
            both.args = (*inputs, *parameters, epsilon)
        with x.graph.inserting_after(both):
            total, normal = (x.graph.call_function(operator.getitem, (both, i)) for i in (0, 1))
        self.shapes[total], self.shapes[normal] = self.shapes[x], self.shapes[node]
        node.replace_all_uses_with(normal)
        node.graph.erase_node(node)
        if adds:
            x.replace_all_uses_with(total)


def pointwise(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A 1x1 convolution as a matrix product, which adds the bias on its way."""
    rows = x.permute(0, 2, 3, 1)
    product = F.linear(rows.reshape(-1, x.shape[1]), weight, bias)
    return product.view(*rows.shape[:3], -1).permute(0, 3, 1, 2)


def _arguments(node: fx.Node) -> tuple[Any, ...]:
    return node.args


def _of_cells(weight: Tensor, block: int, taps: list[int], channels: int) -> Tensor:
    """The weight of a convolution over cells of block x block pixels: (out, cell and channel, taps, taps)."""
    out, own, *sides = weight.shape
    weight = F.pad(weight, (0, taps[1] * block - sides[1], 0, taps[0] * block - sides[0]))
    cells = weight.view(out, own, taps[0], block, taps[1], block).permute(0, 3, 5, 1, 2, 4)
    cells = cells.reshape(out, -1, *taps)
    return F.pad(cells, (0, 0, 0, 0, 0, channels - cells.shape[1]))

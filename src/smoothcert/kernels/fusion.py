"""Passes over a traced graph that fuse operations, which saves reading and writing memory."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import permutations
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from smoothcert.kernels import layers
from smoothcert.kernels.evaluation import Evaluator, Unexpected, first_convolution
from smoothcert.kernels.forms import replaced
from smoothcert.kernels.layers import CHANNEL_MULTIPLE, VECTOR, convolution_relu
from smoothcert.kernels.tracing import constant, constants, hold

_LONGEST_ROW = 8192
"""Numbers in a row of a layer normalisation, which a warp keeps in its registers."""
_LARGEST_POOL = 7
"""Side length of a window; the kernel has code for every pixel of it."""
_NO_OVERLAP = [(0, 0), (0, 0), 1, (1, 1)]
"""Padding, padding of outputs, groups and dilation of a transposed convolution."""

Affine = tuple[fx.Node, Tensor, Tensor]


def input_affine(module: fx.GraphModule, shape: tuple[int, ...]) -> Affine | None:
    """The first convolution, and the factor and the offset per channel of the inputs before it.

    None if something else happens to the inputs.
    """
    try:
        return first_convolution(Evaluator(module, shape))
    except Unexpected:
        return None


class Fusion:
    """Rewrites a graph with fused operations.

    Args:
        module: The graph. It is changed.
        example: Two inputs. The graph must be on their device.
        affine: The result of `input_affine`.
    """

    def __init__(self, module: fx.GraphModule, example: Tensor, affine: Affine | None) -> None:
        self.module = module
        self.affine = affine
        interpreter = fx.Interpreter(module, garbage_collect_values=False)
        interpreter.run(example)
        self.shapes = {
            node: (result.shape, result.stride(), result.dtype, result.device)
            for node, result in interpreter.env.items()
            if isinstance(result, Tensor)
        }

    def run(self) -> None:
        """Run all passes."""
        for target, rewrite in (
            (torch.conv2d, self._widen_input),
            (torch.add, self._merge_biases),
            (torch.relu, self._fuse_relu),
            (torch.conv2d, self._as_matrix_product),
            (torch.max_pool2d, self._pool),
            (F.layer_norm, self._normalise),
            (F.group_norm, self._normalise_groups),
            (torch.add, self._add_biases),
        ):
            for node in list(self.module.graph.find_nodes(op="call_function", target=target)):
                if node.users:
                    rewrite(node)
        self.module.graph.eliminate_dead_code()
        self.module.recompile()

    def _replace(
        self, node: fx.Node, target: Callable[..., Tensor], arguments: tuple[Any, ...]
    ) -> None:
        self.shapes[replaced(node, target, arguments)] = self.shapes[node]

    def _convolution(self, node: fx.Node) -> tuple[Tensor, Tensor | None] | None:
        """Weight and bias of a convolution without groups and dilation; None for any other."""
        tensors = constants(self.module, node.args[1:3])
        if tensors is None or node.args[5:7] != ((1, 1), 1):
            return None
        weight, bias = tensors
        return weight, bias

    def _widen_input(self, node: fx.Node) -> None:
        """Turn a few input channels into a multiple of eight, as tensor cores need them.

        A convolution of stride s becomes one of stride 1 over cells of s x s pixels, whose pixels
        are channels.
        """
        convolution = self._convolution(node)
        x, _, _, stride, padding, *_ = _arguments(node)
        is_square = stride[0] == stride[1] and padding[0] == padding[1]
        if convolution is None or not is_square or x not in self.shapes:
            return
        weight = convolution[0]
        block = stride[0]
        channels, *sides = weight.shape[1:]
        if channels % CHANNEL_MULTIPLE == 0 or min(sides) < block:
            return
        taps = [-(-side // block) for side in sides]
        out_lengths = self.shapes[node][0][2:]
        size = [length + tap - 1 for length, tap in zip(out_lengths, taps, strict=True)]
        wide = -(-channels * block**2 // CHANNEL_MULTIPLE) * CHANNEL_MULTIPLE
        factor = [1.0] * channels
        offset = [0.0] * channels
        if self.affine is not None and node is self.affine[0]:
            (x,) = self.module.graph.find_nodes(op="placeholder")
            factor = self.affine[1].tolist()
            offset = self.affine[2].tolist()
        with node.graph.inserting_before(node):
            arguments = (x, block, padding[0], size, wide, factor, offset)
            cells = node.graph.call_function(layers.space_to_depth, arguments)
        wide_weight = hold(self.module, node, _of_cells(weight, block, taps, wide))
        node.args = (cells, wide_weight, node.args[2], (1, 1), (0, 0), (1, 1), 1)

    def _merge_biases(self, addition: fx.Node) -> None:
        """Where two convolutions are added, one of them can have the biases of both."""
        nodes = addition.all_input_nodes  # one, if a tensor is added to itself
        if len(nodes) != 2:
            return
        if any(node.target is not torch.conv2d or len(node.users) > 1 for node in nodes):
            return
        first, second = nodes
        first_bias = constant(self.module, first.args[2])
        second_bias = constant(self.module, second.args[2])
        if first_bias is None or second_bias is None or first_bias.shape != second_bias.shape:
            return
        both = hold(self.module, first, first_bias + second_bias)
        first.args = (*first.args[:2], both, *first.args[3:])
        second.args = (*second.args[:2], None, *second.args[3:])

    def _fuse_relu(self, relu: fx.Node) -> None:
        """Replace a ReLU, and the convolution and the addition before it, by one operation."""
        (argument,) = relu.all_input_nodes
        pairs: list[tuple[fx.Node, fx.Node | None]] = [(argument, None)]
        if argument.target is torch.add and len(argument.users) == 1:
            pairs = [
                (one, other)
                for one, other in permutations(argument.all_input_nodes, 2)
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
        """Replace a transposed convolution without overlap, whose result has no other use.

        A matrix product computes all pixels of a cell, and the addition moves them to their places.

        Returns:
            Whether the node is such a convolution.
        """
        if node.target is not torch.conv_transpose2d or len(node.users) > 1:
            return False
        tensors = constants(self.module, node.args[1:3])
        x, _, _, stride, *geometry = _arguments(node)
        if tensors is None or geometry != _NO_OVERLAP:
            return False
        weight, bias = tensors
        inputs, channels, *sides = weight.shape
        if sides != list(stride) or sides[0] != sides[1] or channels % VECTOR:
            return False
        weights = hold(self.module, relu, weight.permute(2, 3, 1, 0).reshape(-1, inputs))
        biases = None
        if bias is not None:
            biases = hold(self.module, relu, bias.repeat(sides[0] * sides[1]))
        with relu.graph.inserting_before(relu):
            product = relu.graph.call_function(pointwise, (x, weights, biases))
        self._replace(relu, layers.depth_to_space_add_relu, (product, added, sides[0]))
        return True

    def _as_matrix_product(self, node: fx.Node) -> None:
        """Replace a 1x1 convolution with a bias by a matrix product.

        torch adds the bias of a convolution in a second, slow pass.
        """
        convolution = self._convolution(node)
        if convolution is None or tuple(node.args[3:5]) != ((1, 1), (0, 0)):
            return
        weight, bias = convolution
        if bias is None or tuple(weight.shape[2:]) != (1, 1):
            return
        if all(length % CHANNEL_MULTIPLE == 0 for length in weight.shape[:2]):
            matrix = hold(self.module, node, weight.flatten(1))
            self._replace(node, pointwise, (node.args[0], matrix, node.args[2]))

    def _pool(self, node: fx.Node) -> None:
        """Replace the pooling of square windows by our kernel."""
        x, *geometry, dilation, ceil_mode = _arguments(node)
        if dilation != (1, 1) or ceil_mode or any(pair[0] != pair[1] for pair in geometry):
            return
        size, stride, padding = (pair[0] for pair in geometry)
        shape = self.shapes[node][0]
        if len(shape) == 4 and shape[1] % VECTOR == 0 and size <= _LARGEST_POOL:
            self._replace(node, layers.max_pool, (x, size, stride, padding))

    def _normalise(self, node: fx.Node) -> None:
        """Fuse a layer normalisation with the addition before it, of which others need the sum."""
        x, shape, weight_node, bias_node, epsilon = _arguments(node)
        weight = constant(self.module, weight_node)
        bias = constant(self.module, bias_node)
        if weight is None or bias is None or len(shape) != 1 or not isinstance(x, fx.Node):
            return
        if len(weight) % VECTOR or len(weight) > _LONGEST_ROW:
            return
        adds = self._adds_equal_shapes(x)
        inputs = (x.args[0], x.args[1]) if adds else (x, None)
        graph = x.graph
        with graph.inserting_after(x):
            both = graph.call_function(layers.add_layer_norm)
        with graph.inserting_before(both):
            weight_there = graph.get_attr(str(weight_node.target))
            bias_there = graph.get_attr(str(bias_node.target))
            both.args = (*inputs, weight_there, bias_there, epsilon)
        with graph.inserting_after(both):
            total = graph.call_function(operator.getitem, (both, 0))
            normal = graph.call_function(operator.getitem, (both, 1))
        self.shapes[total] = self.shapes[x]
        self.shapes[normal] = self.shapes[node]
        node.replace_all_uses_with(normal)
        node.graph.erase_node(node)
        if adds:
            x.replace_all_uses_with(total)

    def _normalise_groups(self, node: fx.Node) -> None:
        """Fuse a group normalisation with the bias before it, and with a factor and an offset of
        each channel and SiLU after it.
        """
        x, groups, weight_node, bias_node, epsilon = _arguments(node)
        weight = constant(self.module, weight_node)
        bias = constant(self.module, bias_node)
        shape = self.shapes[node][0]
        fits = len(shape) == 4 and isinstance(groups, int)
        if weight is None or bias is None or not fits:
            return
        if not layers.can_normalise_groups(shape[1], groups):
            return
        last, weight, bias = self._with_next(node, torch.mul, weight, bias)
        last, weight, bias = self._with_next(last, torch.add, weight, bias)
        activation = _only_user(last, F.silu)
        shift = self._take_bias(x)
        held_shift = None if shift is None else hold(self.module, node, shift)
        held = [hold(self.module, node, tensor) for tensor in (weight, bias)]
        arguments = (x, held_shift, groups, *held, epsilon, activation is not None)
        self._replace(activation or last, layers.group_norm, arguments)

    def _with_next(
        self, node: fx.Node, target: Callable[..., Any], weight: Tensor, bias: Tensor
    ) -> tuple[fx.Node, Tensor, Tensor]:
        """Weight and bias of each channel that include the only use of a node, and that node, if it
        is a product or a sum with a constant for each channel.
        """
        user = _only_user(node, target)
        if user is None:
            return node, weight, bias
        channels = self.shapes[node][0][1]
        for argument in user.all_input_nodes:
            value = constant(self.module, argument)
            if value is not None and value.shape in ((1, channels, 1, 1), (channels, 1, 1)):
                value = value.flatten()
                if target is torch.mul:
                    return user, weight * value, bias * value
                return user, weight, bias + value
        return node, weight, bias

    def _add_biases(self, addition: fx.Node) -> None:
        """Add images and the biases of the convolutions that they come from, in one pass."""
        nodes = addition.all_input_nodes
        shape = self.shapes[addition][0]
        if len(nodes) != 2 or len(shape) != 4 or shape[1] % VECTOR:
            return
        if len({self.shapes[node][::2] for node in nodes}) > 1:  # shapes and number formats
            return
        taken = [self._take_bias(node) for node in nodes]
        biases = [bias for bias in taken if bias is not None]
        if biases:
            held = hold(self.module, addition, torch.stack(biases).sum(0))
            self._replace(addition, layers.add_bias, (*nodes, held))

    def _take_bias(self, node: fx.Node) -> Tensor | None:
        """Remove the bias of a convolution with one user and return it; None if there is none.

        torch adds it in a second, slow pass.
        """
        if node.target is not torch.conv2d or len(node.users) > 1:
            return None
        bias = constant(self.module, node.args[2])
        if bias is not None:
            node.args = (*node.args[:2], None, *node.args[3:])
        return bias

    def _adds_equal_shapes(self, node: fx.Node) -> bool:
        """Whether a node is the sum of tensors of one shape."""
        if node.target is not torch.add:
            return False
        return len({self.shapes[argument][0] for argument in node.all_input_nodes}) == 1


def pointwise(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A 1x1 convolution as a matrix product, which adds the bias on its way."""
    rows = x.permute(0, 2, 3, 1)
    product = F.linear(rows.reshape(-1, x.shape[1]), weight, bias)
    return product.view(*rows.shape[:3], -1).permute(0, 3, 1, 2)


def _only_user(node: fx.Node, target: Callable[..., Any]) -> fx.Node | None:
    """The node that alone uses this one, if it is this operation."""
    users = list(node.users)
    return users[0] if len(users) == 1 and users[0].target is target else None


def _arguments(node: fx.Node) -> tuple[Any, ...]:
    return node.args


def _of_cells(weight: Tensor, block: int, taps: list[int], wide: int) -> Tensor:
    """The weight of a convolution over cells of block x block pixels.

    Its shape is (out, wide, taps, taps), where `wide` counts the pixels of a cell and their
    channels, filled up with zeros.
    """
    out, channels, height, width = weight.shape
    weight = F.pad(weight, (0, taps[1] * block - width, 0, taps[0] * block - height))
    cells = weight.view(out, channels, taps[0], block, taps[1], block).permute(0, 3, 5, 1, 2, 4)
    cells = cells.reshape(out, -1, *taps)
    return F.pad(cells, (0, 0, 0, 0, 0, wide - cells.shape[1]))

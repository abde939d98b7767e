"""Weights in the order in which the kernel reads them.

A tensor core multiplies pixels by a matrix of 16 input channels and 8 output channels. Lane l of a warp holds 4 of its
elements: the output channel l / 4, and the input channels k, k + 1, k + 8 and k + 9, where k is twice the remainder of
l / 4. They are 8 bytes, and the 32 lanes read 256 bytes in a row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from smoothcert.kernels.resnet.network import Convolution


def pack_matrices(matrices: Tensor) -> Tensor:
    """Matrices of shape (..., 16 k, 8 n) as (..., k, n, 32 lanes, 4)."""
    lane = torch.arange(32)
    inner = (lane % 4 * 2)[:, None] + torch.tensor([0, 1, 8, 9])
    *others, inputs, outputs = matrices.shape
    tiles = matrices.reshape(*others, inputs // 16, 16, outputs // 8, 8).movedim(-3, -2)  # (..., k, n, 16, 8)
    return tiles[..., inner, (lane // 4)[:, None]].contiguous()


def pack_convolution(weight: Tensor) -> Tensor:
    """A 3x3 convolution as steps: (16 input channels, column of the filter), each with its three rows."""
    packed = pack_matrices(weight.permute(2, 3, 1, 0))  # (row, column, k, n, lane, 4)
    return packed.permute(2, 1, 0, 3, 4, 5).contiguous()


def pack_first(weight: Tensor) -> Tensor:
    """The first convolution as a single step: 4 columns of the filter times 4 input channels, filled up with zeros."""
    outputs, inputs = weight.shape[:2]
    filled = weight.new_zeros((3, 4, 4, outputs))  # (row, column, channel, output)
    filled[:, :3, :inputs] = weight.permute(2, 3, 1, 0)
    return pack_matrices(filled.view(3, 16, outputs)).movedim(1, 0).contiguous()


def pack_next(block_first: Convolution, shortcut: Convolution) -> tuple[Tensor, Tensor]:
    """Weights and biases of the convolutions that lead to the next stage: first 3x3, then 1x1."""
    parts = []
    for convolution in (block_first, shortcut):
        taps = convolution.weight.flatten(2).permute(2, 1, 0)  # (tap, input, output)
        parts.append(pack_matrices(taps).movedim(1, 0).flatten())  # (k, tap, n, lane, 4)
    return torch.cat(parts), torch.cat([block_first.bias, shortcut.bias])


def pack_stage(first: Convolution | None, convolutions: list[Convolution]) -> tuple[Tensor, Tensor]:
    """Weights and biases of the 3x3 convolutions of a stage, with one more step, which the kernel loads and ignores."""
    parts = [] if first is None else [pack_first(first.weight).flatten()]
    parts += [pack_convolution(convolution.weight).flatten() for convolution in convolutions]
    channels = convolutions[0].channels
    parts.append(torch.zeros(3 * channels // 8 * 32 * 4))
    biases = [convolution.bias for convolution in ([] if first is None else [first]) + convolutions]
    return torch.cat(parts), torch.cat(biases)

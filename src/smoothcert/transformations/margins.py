"""Margins of cells: how far a picture in a cell of amounts can be from the one at its centre.

A cell is divided into parts. For every amount a in the part around c, with the centre b of the cell,

    |T(x, a) - T(x, b)| <= |T(x, c) - T(x, b)| + sqrt(sum of D^2 over all values)

D bounds how much one value changes within the part. While a moves within the part, the pixel at
distance rho from the centre reads along a path of length L around its position at c, in direction t,
which turns by at most some angle. In one square of the grid, the slope gx of the interpolated picture
lies between the differences along the top and the bottom of the square, and gy between those along
its left and right side. So with G = hypot(largest |gx|, largest |gy|),

    D = L * max over touched squares of min(G, max over the 4 pairs |gx tx + gy ty| + G * angle)

where the touched squares are all that the box of half-width L around the position meets. The squares
beside the picture, between its edge and the same values one pixel further out, stand for all that are
further outside.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from smoothcert.noises.transformed import Transformed
from smoothcert.transformations.pictures import continued, grid_of, transform

_PARTS = 8
"""Parts of a cell. With more of them margins get closer to the true distance, and cost more."""
_SIDE = 2
"""Rows and columns of squares that are looked at together. Paths in narrow cells touch no more."""
NUMBERS_PER_VALUE = 5 * _SIDE**2 * _PARTS
"""In the largest array, for each value of a picture: five slopes of all squares in each part."""
_ROUNDING = 1e-9
"""Relative, of a margin; and in pixels, of a position."""
_SPARE = 1e-6
"""Of the cast errors, so that another computation proves the margin as well."""
_SMALLEST_STEP = 1e-12
"""By which the paths of neighbouring parts overlap, so that no amount is between them."""


def casting_error(x: Tensor) -> Tensor:
    """How far a computed picture in float32 can be from T(x, a) in real numbers, in l2 (n)."""
    largest = x.abs().flatten(1).amax(1).double()
    error: Tensor = prod(x.shape[1:]) ** 0.5 * largest * 2.0**-24 + 1e-9
    return error


def cover(
    x: Tensor, transformation: Transformed, centre: Tensor, near: Tensor, far: Tensor
) -> tuple[Tensor, Tensor]:
    """The picture at the centre of the cell of each picture, and the radius in l2 that covers the
    cell, cast errors included.

    On a GPU, the host needs longer to start an operation than the GPU to compute it. So there are few
    operations, on large arrays.

    Args:
        x: The pictures (n, channels, height, width).
        transformation: What is done to them.
        centre: The amount at the centre of each cell (n), in float64.
        near: One end of each cell.
        far: The other end.
    """
    edges = near[:, None] + (far - near)[:, None] * torch.linspace(
        0, 1, _PARTS + 1, dtype=torch.float64, device=x.device
    )
    middles = (edges[:, 1:] + edges[:, :-1]) / 2
    amounts = torch.cat([centre[:, None], middles], dim=1)
    repeated = x[:, None].expand(-1, _PARTS + 1, -1, -1, -1)
    pictures = transform(repeated.flatten(0, 1), transformation, amounts.flatten())
    pictures = pictures.view(repeated.shape)
    distance = (pictures[:, 1:] - pictures[:, :1]).flatten(2).norm(dim=2)
    spread = _changes(x, transformation, middles, edges).flatten(2).norm(dim=2)
    largest = (distance + spread).amax(1) * (1 + _ROUNDING)
    return pictures[:, 0], largest + 2 * (1 + _SPARE) * casting_error(x)


def _changes(x: Tensor, transformation: Transformed, middles: Tensor, edges: Tensor) -> Tensor:
    """D of every value that is kept (n, parts, channels, pixels)."""
    wider = continued(x)
    height, width = wider.shape[2:]
    grid = grid_of(x, transformation, middles)
    length, angle = _paths(transformation, middles, edges)
    path = length[:, :, None] * grid.kept.abs() + _SMALLEST_STEP
    at = torch.polar(*transformation.polar(middles))[:, :, None] * grid.kept
    direction = torch.sgn(at) * transformation.direction
    reach = path + _ROUNDING
    rows = _touched(at.imag + (height - 1) / 2, reach, height - 2)
    columns = _touched(at.real + (width - 1) / 2, reach, width - 2)
    slopes = _slopes(wider)
    steepest = torch.zeros((), dtype=torch.float64, device=x.device)
    for row in range(0, len(rows), _SIDE):
        for column in range(0, len(columns), _SIDE):
            squares = rows[row : row + _SIDE, None] * (width - 1) + columns[column : column + _SIDE]
            slope = _slopes_along(slopes, squares.flatten(0, 1), direction, angle).amax(0)
            steepest = torch.maximum(steepest, slope)
    return path[:, :, None] * steepest


def _paths(transformation: Transformed, middles: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """The longer path from the middle of each part to one of its ends, and the larger turn."""
    ends = [transformation.path(middles, end) for end in (edges[:, :-1], edges[:, 1:])]
    length, angle = (torch.maximum(*pair) for pair in zip(*ends, strict=True))
    return length * (1 + _ROUNDING), angle * (1 + _ROUNDING)


def _slopes(x: Tensor) -> Tensor:
    """Of every square of the grid, the differences along its top, bottom, left and right side, and
    G (n, 5, channels, squares).
    """
    x = x.double()
    across = x[..., 1:] - x[..., :-1]
    down = x[..., 1:, :] - x[..., :-1, :]
    sides = torch.stack([across[..., :-1, :], across[..., 1:, :], down[..., :-1], down[..., 1:]], 1)
    steepest = torch.hypot(sides[:, :2].abs().amax(1), sides[:, 2:].abs().amax(1))[:, None]
    return torch.cat([sides, steepest], dim=1).flatten(3)


def _touched(position: Tensor, reach: Tensor, last: int) -> Tensor:
    """The numbers of all rows or columns of squares within reach, as many for every position."""
    first = (position - reach).floor().clamp(0, last)
    final = (position + reach).floor().clamp(0, last)
    count = int((final - first).max()) + 1
    numbers = first + torch.arange(count, device=first.device).view(-1, 1, 1, 1)
    return torch.minimum(numbers, final).long()


def _slopes_along(slopes: Tensor, squares: Tensor, direction: Tensor, angle: Tensor) -> Tensor:
    """min(G, max |gx tx + gy ty| + G * angle) of each square for each value (squares, n, parts,
    channels, pixels).

    Args:
        slopes: The slopes of all squares of the grid.
        squares: The squares that each pixel touches (squares, n, parts, pixels).
        direction: The direction in which each pixel moves (n, parts, pixels).
        angle: By how much it turns (n, parts).
    """
    touched, n, parts, pixels = squares.shape
    kinds, channels = slopes.shape[1:3]
    chosen = squares.transpose(0, 1).reshape(n, 1, 1, -1).expand(-1, kinds, channels, -1)
    found = slopes.gather(3, chosen).view(n, kinds, channels, touched, parts, pixels)
    found = found.permute(1, 3, 0, 4, 2, 5)
    steepest = found[4]
    across = found[:2] * direction.real[:, :, None]
    down = found[2:4] * direction.imag[:, :, None]
    high = across.amax(0) + down.amax(0)
    low = across.amin(0) + down.amin(0)
    along = torch.maximum(high, -low)
    return torch.minimum(steepest, along + steepest * angle[:, :, None, None])

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

PARTS = 8
"""Parts of a cell. With more of them margins get closer to the true distance, and cost more."""
_ROUNDING = 1e-9
"""Relative, of a margin; and in pixels, of a position."""
_SMALLEST_STEP = 1e-12
"""By which the paths of neighbouring parts overlap, so that no amount is between them."""


def casting_error(x: Tensor) -> Tensor:
    """How far a computed picture in float32 can be from T(x, a) in real numbers, in l2 (n)."""
    largest = x.abs().flatten(1).amax(1).double()
    error: Tensor = prod(x.shape[1:]) ** 0.5 * largest * 2.0**-24 + 1e-9
    return error


def margins(
    x: Tensor, transformation: Transformed, centre: Tensor, near: Tensor, far: Tensor
) -> Tensor:
    """The radius in l2 that covers the cell of each picture, cast errors of both pictures included.

    Args:
        x: The pictures (n, channels, height, width).
        transformation: What is done to them.
        centre: The amount at the centre of each cell (n), in float64.
        near: One end of each cell.
        far: The other end.
    """
    edges = near[:, None] + (far - near)[:, None] * torch.linspace(
        0, 1, PARTS + 1, dtype=torch.float64, device=x.device
    )
    middles = (edges[:, 1:] + edges[:, :-1]) / 2
    shape = (len(x), PARTS, *x.shape[1:])
    pictures = x[:, None].expand(shape)
    parts = transform(pictures.flatten(0, 1), transformation, middles.flatten()).view(shape)
    from_centre = parts - transform(x, transformation, centre)[:, None]
    distance = from_centre.flatten(2).norm(dim=2)
    spread = _changes(x, transformation, middles, edges).flatten(2).norm(dim=2)
    largest = (distance + spread).amax(1) * (1 + _ROUNDING)
    needed: Tensor = largest + 2 * casting_error(x)
    return needed


def _changes(x: Tensor, transformation: Transformed, middles: Tensor, edges: Tensor) -> Tensor:
    """D of every value that is kept (n, parts, channels, pixels)."""
    wider = continued(x)
    height, width = wider.shape[2:]
    grid = grid_of(tuple(x.shape[1:]), transformation, middles)
    positions = grid.positions[grid.inside]
    length, angle = _paths(transformation, middles, edges)
    path = length[:, :, None] * positions.abs() + _SMALLEST_STEP
    modulus, turned = transformation.polar(middles)
    at = torch.polar(modulus, turned)[:, :, None] * positions
    direction = torch.sgn(at) * transformation.direction
    slopes = _slopes(wider)
    reach = path + _ROUNDING
    across = at.real + (width - 1) / 2
    down = at.imag + (height - 1) / 2
    rows = _touched(down, reach, height - 2)
    columns = _touched(across, reach, width - 2)
    steepest = torch.zeros((), dtype=torch.float64, device=x.device)
    for row in rows:
        for column in columns:
            square = (row * (width - 1) + column)[:, :, None].expand(-1, -1, x.shape[1], -1)
            slope = _slope_along(slopes, square, direction[:, :, None], angle[:, :, None, None])
            steepest = torch.maximum(steepest, slope)
    return path[:, :, None] * steepest


def _paths(transformation: Transformed, middles: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """The longer path from the middle of each part to one of its ends, and the larger turn."""
    ends = [transformation.path(middles, end) for end in (edges[:, :-1], edges[:, 1:])]
    length, angle = (torch.maximum(*pair) for pair in zip(*ends, strict=True))
    return length * (1 + _ROUNDING), angle * (1 + _ROUNDING)


def _slopes(x: Tensor) -> Tensor:
    """Of every square of the grid, the differences along its top, bottom, left and right side, and
    G (5, n, 1, channels, squares).
    """
    x = x.double()
    across = x[..., 1:] - x[..., :-1]
    down = x[..., 1:, :] - x[..., :-1, :]
    sides = [across[..., :-1, :], across[..., 1:, :], down[..., :-1], down[..., 1:]]
    top, bottom, left, right = sides
    steepest = torch.hypot(
        torch.maximum(top.abs(), bottom.abs()), torch.maximum(left.abs(), right.abs())
    )
    return torch.stack([*sides, steepest]).flatten(3)[:, :, None]


def _touched(position: Tensor, reach: Tensor, last: int) -> list[Tensor]:
    """The numbers of all rows or columns of squares within reach, as many for every position."""
    first = (position - reach).floor()
    final = (position + reach).floor()
    count = int((final - first).max()) + 1
    return [torch.minimum(first + i, final).clamp(0, last).long() for i in range(count)]


def _slope_along(slopes: Tensor, square: Tensor, direction: Tensor, angle: Tensor) -> Tensor:
    """min(G, max |gx tx + gy ty| + G * angle) of one square for each value."""
    top, bottom, left, right, steepest = (
        part.expand(-1, square.shape[1], -1, -1).gather(3, square) for part in slopes
    )
    across = torch.stack([top, bottom]) * direction.real
    down = torch.stack([left, right]) * direction.imag
    high = across.amax(0) + down.amax(0)
    low = across.amin(0) + down.amin(0)
    along = torch.maximum(high, -low)
    return torch.minimum(steepest, along + steepest * angle)

"""Pictures that are turned or zoomed: T(x, a), with bilinear interpolation.

The pixel at z takes the value of the picture at z * m(a), where positions are complex numbers and
the centre of the picture is 0. A picture that is turned keeps a disk, and the rest is 0. One that
is zoomed is continued by its edges: a position outside has the value of the nearest one inside.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from smoothcert.errors import InvalidInput
from smoothcert.noises.base import Shape
from smoothcert.noises.transformed import Transformed

_LEAST_SIDE = 3
"""In pixels. A smaller picture has no disk with more than its centre."""
EDGE = 1e-9
"""In pixels. The disk is smaller by this, so that rounding reads nothing outside of the picture."""


class Grid(NamedTuple):
    """The pixels of a picture."""

    positions: Tensor
    """Where each pixel is (height, width), as complex numbers around the centre."""
    inside: Tensor
    """Whether it is kept."""
    kept: Tensor
    """The positions of those that are kept."""


def check_pictures(shape: Shape, transformation: Transformed) -> None:
    """Refuse inputs that cannot be transformed."""
    if len(shape) != 3 or min(shape[1:]) < _LEAST_SIDE:
        raise InvalidInput(
            "not-pictures",
            "{transformation} needs pictures of shape (channels, height, width), at least 3 pixels "
            "high and wide, got {shape}",
            transformation=transformation.title,
            shape=shape,
        )


def grid_of(x: Tensor, transformation: Transformed, like: Tensor) -> Grid:
    """The pixels of pictures, in the precision and on the device of `like`."""
    shape = tuple(x.shape[1:])
    check_pictures(shape, transformation)
    return _grid(shape[1], shape[2], transformation.keeps_disk, like.dtype, like.device)


@lru_cache(maxsize=8)
@torch.inference_mode(False)  # training also uses it
def _grid(
    height: int, width: int, keeps_disk: bool, dtype: torch.dtype, device: torch.device
) -> Grid:
    rows = torch.arange(height, dtype=dtype, device=device) - (height - 1) / 2
    columns = torch.arange(width, dtype=dtype, device=device) - (width - 1) / 2
    positions = torch.complex(columns.expand(height, width), rows[:, None].expand(height, width))
    inside = torch.ones(height, width, dtype=torch.bool, device=device)
    if keeps_disk:
        inside = positions.abs() <= (min(height, width) - 1) / 2 - EDGE
    return Grid(positions, inside, positions[inside])


def continued(x: Tensor) -> Tensor:
    """Pictures with their edges repeated on each side. Further outside, nothing changes."""
    return functional.pad(x, (1, 1, 1, 1), mode="replicate")


def transform(x: Tensor, transformation: Transformed, amounts: Tensor) -> Tensor:
    """T(x, a) for pictures (n, channels, height, width), in the precision of the amounts.

    Args:
        x: The pictures.
        transformation: What is done to them.
        amounts: By how much each is transformed (n).
    """
    grid = grid_of(x, transformation, amounts)
    at = grid.positions * torch.polar(*transformation.polar(amounts))[:, None, None]
    wider = continued(x.to(amounts.dtype))
    height, width = wider.shape[2:]
    v = (at.imag + (height - 1) / 2).clamp(0, height - 1)
    u = (at.real + (width - 1) / 2).clamp(0, width - 1)
    row = v.floor().clamp(0, height - 2)
    column = u.floor().clamp(0, width - 2)
    down = (v - row)[:, None]
    right = (u - column)[:, None]
    first = (row * width + column).long().flatten(1)[:, None].expand(-1, x.shape[1], -1)
    values = wider.flatten(2)

    def corner(offset: int) -> Tensor:
        return values.gather(2, first + offset).view(x.shape)

    top = corner(0) * (1 - right) + corner(1) * right
    bottom = corner(width) * (1 - right) + corner(width + 1) * right
    return (top * (1 - down) + bottom * down) * grid.inside


def transform_at_random(x: Tensor, transformation: Transformed) -> Tensor:
    """Each picture transformed by a random amount up to the largest one, for training."""
    share = 2 * torch.rand(len(x), device=x.device) - 1
    return transform(x, transformation, transformation.largest * share)

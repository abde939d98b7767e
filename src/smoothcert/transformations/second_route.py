"""Margins checked by a second route, in NumPy: cells are divided until each part is proved.

It shares only the formulas of the transformation and the size of the disk with the route of a run.
The pixel at distance rho from the centre reads along a
path of length rho * L in a direction t that turns by at most some angle. With the largest slopes gx
and gy of the squares that the path can touch, no value changes by more than
rho * L * (gx (|tx| + angle) + gy (|ty| + angle)) on the way from the middle of a part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smoothcert.noises import Transformed
from smoothcert.plans import Cell, Certificate, Walk
from smoothcert.transformations.pictures import EDGE

_MOST_PARTS = 1000
"""After so many parts, a margin counts as not proved. True margins need about ten."""
_RELATIVE = 1e-12
"""The error of a computed path or distance is below this share of it."""
_BESIDE = 1e-9
"""In pixels: a path touches the squares that are so close to it."""

Values = NDArray[np.float64]


def uncovered(c: Certificate, x: Values) -> str | None:
    """The first cell of a walk whose pictures are not all within its margin, in words; None if
    there is none.

    Args:
        c: The certificate of a walk.
        x: The picture (channels, height, width), as it was certified.
    """
    assert isinstance(c.plan, Walk)
    assert isinstance(c.noise, Transformed)
    picture = Picture(x, c.noise)
    for cell, margin in c.plan.cells(c.looks, c.noise, c.label):
        if not picture.covers(cell, margin):
            about = f"from {cell.near:g} to {cell.far:g} {c.noise.unit}"
            return f"the margin {margin:g} does not cover its pictures {about}"
    return None


class Picture:
    """A picture, and what is read from it at other positions.

    Args:
        x: The picture (channels, height, width), as it was certified.
        transformation: What is done to it.
    """

    def __init__(self, x: Values, transformation: Transformed) -> None:
        self.x = np.pad(x, ((0, 0), (1, 1), (1, 1)), mode="edge")
        self.size = x.size
        self.transformation = transformation
        height, width = x.shape[1:]
        rows = np.arange(height) - (height - 1) / 2
        columns = np.arange(width) - (width - 1) / 2
        positions = columns + 1j * rows[:, None]
        radius = (min(height, width) - 1) / 2 - EDGE if transformation.keeps_disk else np.inf
        self.positions = positions[np.abs(positions) <= radius]
        across = np.abs(np.diff(self.x, axis=2))
        down = np.abs(np.diff(self.x, axis=1))
        self.slopes = (
            np.maximum(across[:, :-1], across[:, 1:]),
            np.maximum(down[:, :, :-1], down[:, :, 1:]),
        )

    def covers(self, cell: Cell, margin: float) -> bool:
        """Whether no picture in a cell is further from the one at its centre than the margin, with
        the errors of casting both to float32.
        """
        error = np.sqrt(self.size) * np.abs(self.x).max() * 2.0**-24 + 1e-9
        limit = margin - 2 * error
        centre = self.at(cell.centre)
        parts = [(cell.near, cell.centre), (cell.centre, cell.far)]
        for _ in range(_MOST_PARTS):
            if not parts:
                return True
            near, far = parts.pop()
            middle = (near + far) / 2
            distance = float(np.linalg.norm(self.at(middle) - centre))
            if distance > limit:
                return False
            if distance + self.change(middle, near, far) > limit:
                parts += [(near, middle), (middle, far)]
        return False

    def at(self, amount: float) -> Values:
        """The values of the transformed picture that are kept (channels, pixels)."""
        at = self._read_at(amount)
        height, width = self.x.shape[1:]
        v, u = at.imag.clip(0, height - 1), at.real.clip(0, width - 1)
        row, column = self._square(v, 1), self._square(u, 2)
        down, right = v - row, u - column
        x = self.x
        top = x[:, row, column] * (1 - right) + x[:, row, column + 1] * right
        bottom = x[:, row + 1, column] * (1 - right) + x[:, row + 1, column + 1] * right
        values: Values = top * (1 - down) + bottom * down
        return values

    def change(self, middle: float, near: float, far: float) -> float:
        """How far a picture in a part can be from the one in its middle, rounded up."""
        paths = [self.transformation.path(middle, end) for end in (near, far)]
        length, angle = (max(pair) * (1 + _RELATIVE) for pair in zip(*paths, strict=True))
        path = np.abs(self.positions) * length
        turned = np.exp(1j * self.transformation.polar(middle)[1]) * self.transformation.direction
        direction = self.positions * turned / np.maximum(np.abs(self.positions), _BESIDE)
        at = self._read_at(middle)
        rows = [self._square(at.imag + sign * (path + _BESIDE), 1) for sign in (-1, 1)]
        columns = [self._square(at.real + sign * (path + _BESIDE), 2) for sign in (-1, 1)]
        steepest = np.zeros((len(self.x), len(path)))
        for down in range(int((rows[1] - rows[0]).max()) + 1):
            row = np.minimum(rows[0] + down, rows[1])
            for right in range(int((columns[1] - columns[0]).max()) + 1):
                column = np.minimum(columns[0] + right, columns[1])
                across, down_slope = (slope[:, row, column] for slope in self.slopes)
                slope = across * (np.abs(direction.real) + angle + _RELATIVE)
                slope += down_slope * (np.abs(direction.imag) + angle + _RELATIVE)
                steepest = np.maximum(steepest, slope)
        return float(np.linalg.norm(steepest * path)) * (1 + _RELATIVE)

    def _read_at(self, amount: float) -> NDArray[np.complex128]:
        """Where each pixel that is kept reads, in columns and rows of the wider picture."""
        modulus, angle = self.transformation.polar(amount)
        height, width = self.x.shape[1:]
        centre = (width - 1) / 2 + 1j * (height - 1) / 2
        at: NDArray[np.complex128] = self.positions * modulus * np.exp(1j * angle) + centre
        return at

    def _square(self, position: Values, axis: int) -> NDArray[np.int64]:
        """The row or column of squares of a position."""
        square: NDArray[np.int64] = np.floor(position).astype(int)
        return square.clip(0, self.x.shape[axis] - 2)

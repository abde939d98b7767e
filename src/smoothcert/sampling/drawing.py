"""From random bits to noisy inputs: one class per description of drawing.

A drawer is the same for every device. The stream decides where the bits come from. CUDA devices
have fused kernels for the most common descriptions (`philox.py`) and use these classes for all
others; training uses them, too.

Normal and Laplace numbers are never smaller than those of the theorem: the cell of the uniform
distribution that the bits choose is represented by its outer edge, and `OUTWARD` covers what
float32 rounds on the way. Only where 23 or fewer bits of |u| are used, next to 0, it is the middle
of the cell: half of a cell has a probability of 2^-32. So P(|z| > t) is at least that of the
theorem less 2^-32, for every t, and signs are symmetric. The probability of a class on one side of
a threshold is therefore not larger than in the theorem, but for 2^-32, which `drawing_error`
charges. Where 1 - |u| is small, the spacing of float32 would make the numbers much larger than
needed, so that tail is computed from separate bits in float64.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor

from smoothcert.errors import InvalidInput
from smoothcert.noises import (
    Ablation,
    Blur,
    Brightness,
    Contrast,
    ContrastBrightness,
    Discrete,
    Splitting,
    Translation,
)
from smoothcert.noises.base import OUTWARD, Additive, AdditiveGrid, Draw, OwnDraw, Shape
from smoothcert.noises.patches import PatchNoise
from smoothcert.noises.rounded_normal import thresholds
from smoothcert.sampling.grid_noise import grid_noise

TailLaw: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""From 1 - |u| to the absolute value of a number."""
MoreBits: TypeAlias = Callable[[NDArray[np.int64]], NDArray[np.uint64]]
"""Gives 64 more random bits for each of these positions.

A position counts the 32-bit halves of the words of all rows.
"""

_TAIL_START = 1 - 2.0**-10
"""Where |u| is at least this, more bits are drawn, and float64 is used."""
_UNIT = 2.0**-31
"""The width of a cell of |u|, which has 31 bits."""
_OUTER_UNIT = _UNIT * (1 + 2.0**-22)
"""With three roundings, and the way from the middle of a cell to its edge."""
_LARGEST = 1 - 2.0**-24
"""float32 has no number between this and 1."""
_GRID_TAIL = 2.0**-20
_GRID_TAIL_PER_RATIO = 1e-6
"""On a grid, float32 is off by less than .01 where 1 - |u| is above both of these."""
_TRUSTED_DISTANCE = 0.48
"""On a grid, float32 decides a number that is at most this far from it."""
_LARGEST_WORD = 2**63 - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""The step of SplitMix64: 2^64 divided by the golden ratio."""


class Drawer(ABC):
    """Makes noisy inputs of one shape.

    Args:
        draw: The description.
        shape: The shape of an input.
    """

    enumerated = False
    """Whether the only word of a sample is its number, because nothing is random."""
    words = 1
    """64-bit words that one sample takes."""

    def __init__(self, draw: Any, shape: Shape) -> None:
        self.draw = draw
        self.shape = shape
        self.size = prod(shape)

    @abstractmethod
    def noisy(self, words: Tensor, x: Tensor, more: MoreBits | None = None) -> Tensor:
        """Noisy copies of inputs.

        Args:
            words: Random 64-bit words, of shape (rows, words).
            x: The inputs, of shape (rows, ...) or (1, ...).
            more: Gives more bits to the few numbers that need them. Without it, as in training,
                these numbers are less exact.
        """


_DRAWERS: dict[type, type[Drawer]] = {}
D = TypeVar("D", bound=type[Drawer])


def draws(kind: type[Draw]) -> Callable[[D], D]:
    """Register a drawer for a description."""

    def register(drawer: D) -> D:
        _DRAWERS[kind] = drawer
        return drawer

    return register


@lru_cache(maxsize=16)
def drawer_for(draw: Draw, shape: Shape) -> Drawer:
    """The drawer of a description."""
    kinds: tuple[type, ...] = (type(draw),)
    if isinstance(draw, OwnDraw):  # a user's noise may be a subclass
        kinds = type(draw).__mro__
    for kind in kinds:
        if kind in _DRAWERS:
            return _DRAWERS[kind](draw, shape)
    raise InvalidInput(
        "no-drawer",
        "no stream can draw {draw}: register a drawer for {kind} with "
        "smoothcert.sampling.drawing.draws",
        draw=str(draw),
        kind=type(draw).__name__,
    )


class _HalfWords(Drawer):
    """Base of drawers that take 32 bits for each number."""

    def __init__(self, draw: Any, shape: Shape) -> None:
        super().__init__(draw, shape)
        self.words = (self.size + 1) // 2

    def halves(self, words: Tensor) -> Tensor:
        """All 32-bit halves of the words. If the size is odd, the last one of a row is not used."""
        return words.view(torch.int32).view(len(words), -1)

    def shaped(self, numbers: Tensor) -> Tensor:
        return numbers[:, : self.size].view(-1, *self.shape)


@draws(Additive)
class _Additive(_HalfWords):
    def noisy(self, words: Tensor, x: Tensor, more: MoreBits | None = None) -> Tensor:
        law = _LAWS[self.draw.law]
        unit = _UNIT if law.tail is None else _OUTER_UNIT
        uniform = self.halves(words).float().add_(0.5).mul_(unit)
        if law.tail is None:
            z = uniform
        elif more is None:
            z = law.of_uniform(uniform.clamp_(-_LARGEST, _LARGEST))
        else:
            where = _tail_positions(uniform)
            values = _tail_numbers(words, where, law.tail, more) / law.factor
            where_on_device = torch.from_numpy(where).to(words.device)
            uniform.view(-1)[where_on_device] = 0  # some libraries are slow at the ends
            z = law.of_uniform(uniform)
            z.view(-1)[where_on_device] = torch.from_numpy(values).to(words.device, torch.float32)
        noisy = self.shaped(z).to(x.dtype)
        return torch.add(x, noisy, alpha=law.factor * self.draw.drawn_scale, out=noisy)


def _tail_positions(uniform: Tensor) -> NDArray[np.int64]:
    """Positions among all numbers where 1 - |u| is small."""
    numbers = uniform.cpu().numpy().ravel()
    return np.flatnonzero((numbers >= _TAIL_START) | (numbers <= -_TAIL_START))


def _tail_numbers(
    words: Tensor, where: NDArray[np.int64], law: TailLaw, more: MoreBits
) -> NDArray[np.float64]:
    """The numbers of a law at these positions, from 31 bits of 1 - |u| and 64 more."""
    bits = words.cpu().numpy().view(np.int32).ravel()[where].astype(np.int64)
    rest = (2.0**31 - 1 - (bits ^ (bits >> 63)) + (more(where) + 0.5) * 2.0**-64) * _UNIT
    numbers: NDArray[np.float64] = np.copysign(law(rest), bits)
    return numbers


def _laplace(uniform: Tensor) -> Tensor:
    """The inverse of the distribution function: -sign(u) log(1 - |u|)."""
    return uniform.abs().neg_().log1p_().mul_(-1).copysign_(uniform)


class _Law(NamedTuple):
    of_uniform: Callable[[Tensor], Tensor]
    """The law's number, divided by `factor`, for a uniform number u on (-1, 1)."""
    tail: TailLaw | None = None
    """The absolute value of the law's number, computed from 1 - |u|."""
    factor: float = 1.0


_LAWS = {
    "normal": _Law(torch.Tensor.erfinv_, lambda rest: -ndtri(rest / 2), math.sqrt(2)),
    "uniform": _Law(lambda uniform: uniform),
    "laplace": _Law(_laplace, lambda rest: -np.log(rest)),
}


@draws(AdditiveGrid)
class _AdditiveGrid(_HalfWords):
    """The rounded normal number by the inverse of its distribution function.

    float32 decides it, except next to a threshold and in the tails, where 64 bits are compared with
    the thresholds.
    """

    def noisy(self, words: Tensor, x: Tensor, more: MoreBits | None = None) -> Tensor:
        step = self.draw.step
        ratio = self.draw.deviation / step
        bits = self.halves(words)
        uniform = bits.float().mul_(_UNIT).clamp_(-_LARGEST, _LARGEST)
        y = uniform.erfinv().mul_(math.sqrt(2) * ratio)
        k = y.round()
        if more is not None:
            in_tail = uniform.abs() >= 1 - max(_GRID_TAIL, _GRID_TAIL_PER_RATIO * ratio)
            undecided = in_tail | ((y - k).abs() > _TRUSTED_DISTANCE)
            where = undecided.view(-1).nonzero()[:, 0]
            high = bits.reshape(-1)[where].cpu().numpy().astype(np.int64) + 2**31
            low = more(where.cpu().numpy()) >> np.uint64(32)
            word = (high.astype(np.uint64) << np.uint64(32)) | low
            table = thresholds(ratio)
            numbers = table.smallest + np.searchsorted(table.values, word, side="right")
            k.view(-1)[where] = torch.from_numpy(numbers).to(k)
        noisy: Tensor = (self.shaped(k) + (x / step).round()) * step
        return noisy


def _fraction(word: Tensor) -> Tensor:
    """A uniform number on (0, 1) in float64 from 63 of the 64 bits, exact to 53 bits next to 0."""
    if word.device.type == "mps":  # which has no float64
        word = word.cpu()
    return ((word & _LARGEST_WORD).double() + 0.5) * 2.0**-63


def _normal(word: Tensor, sigma: float) -> Tensor:
    """A normal number in float64, with the sign of a word and its other bits.

    The standard deviation is larger by `OUTWARD`.
    """
    size: Tensor = torch.special.ndtri(_fraction(word ^ (word >> 63) ^ _LARGEST_WORD) / 2).neg()
    return OUTWARD * sigma * size.copysign(word.to(size.device).double() + 0.5)


class _OneNumber(Drawer):
    """Base of drawers that change all values by the same numbers."""

    def for_rows(self, numbers: Tensor, x: Tensor) -> Tensor:
        """A number for each row, so that it can be combined with the values."""
        return numbers.float().to(x.device).view(-1, *[1] * len(self.shape))


@draws(Brightness)
class _Brightness(_OneNumber):
    def noisy(self, words: Tensor, x: Tensor, more: MoreBits | None = None) -> Tensor:
        return x + self.for_rows(_normal(words[:, 0], self.draw.sigma), x)


@draws(Contrast)
class _Contrast(_OneNumber):
    def noisy(self, words: Tensor, x: Tensor, more: MoreBits | None = None) -> Tensor:
        return x * self.for_rows(_normal(words[:, 0], self.draw.sigma).exp(), x)


@draws(ContrastBrightness)
class _ContrastBrightness(_OneNumber):
    words = 2

    def noisy(self, words: Tensor, x: Tensor, more: MoreBits | None = None) -> Tensor:
        factor = self.for_rows(_normal(words[:, 0], self.draw.sigma).exp(), x)
        return factor * (x + self.for_rows(_normal(words[:, 1], self.draw.sigma), x))


@draws(Blur)
class _Blur(Drawer):
    def noisy(self, words: Tensor, x: Tensor, more: MoreBits | None = None) -> Tensor:
        squared_radius = _fraction(words[:, 0]).log().mul(-self.draw.scale)
        return blurred(x, squared_radius).to(x)


def blurred(x: Tensor, squared_radius: Tensor) -> Tensor:
    """Pictures blurred by these squared radii, in float64; see `Blur`.

    Args:
        x: Pictures of shape (rows, ..., height, width) or (1, ..., height, width).
        squared_radius: One for each row, in float64.
    """
    *_, height, width = x.shape
    device = squared_radius.device
    columns = _cosines(height, device)
    rows = _cosines(width, device)
    rate = _rates(height, device)[:, None] + _rates(width, device)
    decay = torch.exp(-squared_radius.view(-1, *[1] * (x.ndim - 1)) * rate)
    spectrum = columns @ x.to(device, torch.float64) @ rows.T
    return columns.T @ (spectrum * decay) @ rows


@draws(Translation)
class _Translation(Drawer):
    words = 2

    def noisy(self, words: Tensor, x: Tensor, more: MoreBits | None = None) -> Tensor:
        grid = grid_noise(AdditiveGrid(self.draw.sigma, 1.0), words.device)
        shift = grid.smallest + torch.searchsorted(grid.table, words.contiguous(), right=True)
        rows = len(words)
        height, width = self.shape[-2:]
        down = (torch.arange(height, device=words.device) - shift[:, :1]) % height
        right = (torch.arange(width, device=words.device) - shift[:, 1:]) % width
        x = x.expand(rows, *self.shape).reshape(rows, -1, height, width)
        image = torch.arange(rows, device=words.device)[:, None, None]
        # This indexing moves the channels to the end: (rows, height, width, channels).
        moved = x[image, :, down[:, :, None], right[:, None, :]].permute(0, 3, 1, 2)
        return moved.reshape(rows, *self.shape)


@draws(Splitting)
class _Splitting(_HalfWords):
    def __init__(self, draw: Splitting, shape: Shape) -> None:
        super().__init__(draw, shape)
        if draw.levels:
            self.enumerated = True
            self.words = 1

    def noisy(self, words: Tensor, x: Tensor, more: MoreBits | None = None) -> Tensor:
        width = 2 * self.draw.scale
        if self.enumerated:
            low, high = self._cell_on_grid(words, x)
        else:
            offset = self.shaped(self.halves(words).float().mul_(width * 2.0**-32).add_(width / 2))
            high = offset + width * ((x - offset) / width).ceil()
            low = high - width
        return (high.clamp(max=1) + low.clamp(min=0)) / 2

    def _cell_on_grid(self, samples: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """The cell of each value, computed on integers: offsets lie halfway between two levels."""
        levels = self.draw.levels
        width = round(2 * self.draw.scale * levels)
        constants = _offset_of_each_value(self.size, width, samples.device)
        offset = ((samples + constants) % width).view(-1, *self.shape)
        level = (x * levels).round().long()
        cell = torch.div(level - offset - 1, width, rounding_mode="floor") + 1
        high = offset + width * cell
        return (high - width + 0.5) / levels, (high + 0.5) / levels


@draws(Ablation)
class _Ablation(Drawer):
    def __init__(self, draw: Ablation, shape: Shape) -> None:
        super().__init__(draw, shape)
        self.mask_shape = shape
        if len(shape) >= 3:  # a pixel is kept with all of its channels
            self.mask_shape = (1, *shape[1:])
        self.words = prod(self.mask_shape)

    def noisy(self, words: Tensor, x: Tensor, more: MoreBits | None = None) -> Tensor:
        kept = words.topk(self.draw.keep, dim=1, largest=False, sorted=False).indices
        mask = torch.zeros(words.shape, dtype=torch.bool, device=x.device).scatter_(1, kept, True)
        return _marked(mask.view(-1, *self.mask_shape), x)


@draws(PatchNoise)
class _PatchNoise(Drawer):
    enumerated = True

    def noisy(self, words: Tensor, x: Tensor, more: MoreBits | None = None) -> Tensor:
        height, width = self.shape[-2:]
        shown_height, shown_width = self.draw.window
        shown_height = shown_height or height
        down = (torch.arange(height, device=words.device) - words // width) % height
        right = (torch.arange(width, device=words.device) - words % width) % width
        shown = (down < shown_height)[:, :, None] & (right < shown_width)[:, None, :]
        return _marked(shown[:, None], x)


@draws(Discrete)
class _Discrete(Drawer):
    def __init__(self, draw: Discrete, shape: Shape) -> None:
        super().__init__(draw, shape)
        self.words = self.size
        if draw.values > 2:
            self.words *= 2
        # A value is kept if 64 random bits, as an integer, are below this.
        self.threshold = int(draw.share * 2**64)

    def noisy(self, words: Tensor, x: Tensor, more: MoreBits | None = None) -> Tensor:
        others = self.draw.values - 1
        value = (x * others).round().long()
        change = (words[:, : self.size] >= self.threshold - 2**63).view(-1, *self.shape)
        if others == 1:
            chosen = 1 - value
        else:
            choice = words[:, self.size :].view(-1, *self.shape)
            low = choice & 0xFFFFFFFF
            high = (choice >> 32) & 0xFFFFFFFF
            # The 64 bits, as a fraction, times `others`.
            other = (high * others + ((low * others) >> 32)) >> 32
            chosen = other + (other >= value)
        noisy: Tensor = torch.where(change, chosen, value).float() / others
        return noisy


def _marked(kept: Tensor, x: Tensor) -> Tensor:
    """Kept values x as pairs (x, 1 - x), all others as (0, 0)."""
    # A product with 0 would leave the sign of a hidden value, or NaN.
    return torch.cat((torch.where(kept, x, 0), torch.where(kept, 1 - x, 0)), dim=1)


def split_mix(key: int, position: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The numbers at these positions of the SplitMix64 generator with this key."""
    z = np.uint64(key) + (position + np.uint64(1)) * _GOLDEN  # arrays wrap around without a warning
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed


@lru_cache(maxsize=16)
def _cosines(size: int, device: torch.device) -> Tensor:
    """The orthonormal cosine transform of a picture that is reflected at its edges."""
    order = torch.arange(size, dtype=torch.float64)
    wave = torch.cos(math.pi / size * order[:, None] * (order + 0.5)) * math.sqrt(2 / size)
    wave[0] = math.sqrt(1 / size)
    return wave.to(device)


@lru_cache(maxsize=16)
def _rates(size: int, device: torch.device) -> Tensor:
    """How fast each cosine coefficient falls with the squared radius."""
    frequency = torch.arange(size, dtype=torch.float64) * (math.pi / size)
    return (2 * torch.sin(frequency / 2).square()).to(device)


# Constants stay on the device: a copy from the host would keep a training step from becoming a CUDA
# graph.
@lru_cache(maxsize=16)
def _offset_of_each_value(size: int, width: int, device: torch.device) -> Tensor:
    """The constant that each value of an input adds to the common offset of a sample."""
    constant = split_mix(0, np.arange(size, dtype=np.uint64)) % np.uint64(width)
    return torch.from_numpy(constant.astype(np.int64)).to(device)

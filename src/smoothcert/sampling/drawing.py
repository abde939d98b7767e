"""From random bits to noisy inputs: one class per description of drawing.

A drawer is the same for every device. Where the bits come from is the stream's business. CUDA devices have fused
kernels for the most common descriptions (`philox.py`) and use these classes for all others; training uses them, too.

Normal and Laplace numbers are never smaller than those of the theorem: the cell of the uniform distribution that the
bits choose is represented by its outer edge, and `OUTWARD` covers what float32 rounds on the way. Only where 23 or
fewer bits of |u| are used, next to 0, it is the middle of the cell: half of a cell has a probability of 2^-32. So
P(|z| > t) is at least that of the theorem less 2^-32, for every t, and signs are symmetric. The probability of a class
on one side of a threshold is therefore not larger than in the theorem, but for 2^-32, which `drawing_error` charges.
Where 1 - |u| is small, the spacing of float32 would make the numbers much larger than needed, so that tail is computed
from its own bits in float64.
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
from smoothcert.kernels.grid_noise import grid_noise
from smoothcert.noises import Ablation, Brightness, Discrete, Splitting, Translation
from smoothcert.noises.base import OUTWARD, Additive, AdditiveGrid, Draw, OwnDraw
from smoothcert.noises.patches import PatchNoise
from smoothcert.noises.rounded_normal import thresholds

MoreBits: TypeAlias = Callable[[NDArray[np.int64]], NDArray[np.uint64]]
"""Gives 64 more random bits for each of these positions among the 32-bit halves of the words of all rows."""

_TAIL_BITS = 10
"""Where 1 - |u| is smaller than two to the minus this, more bits are drawn, and float64 is used."""
_UNIT = 2.0**-31
_OUTER = _UNIT * (
    1 + 2.0**-22
)  # three roundings, and the way from the middle of a cell to its edge
# float32 has no number between this and 1.
_LARGEST = 1 - 2.0**-24
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


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

    def __init__(self, draw: Any, shape: tuple[int, ...]) -> None:
        self.draw, self.shape, self.size = draw, shape, prod(shape)

    @abstractmethod
    def noisy(self, words: Tensor, x: Tensor, more: MoreBits | None = None) -> Tensor:
        """Noisy copies of inputs, of shape (rows, ...)."""


_DRAWERS: dict[type, type[Drawer]] = {}
D = TypeVar("D", bound=type[Drawer])


def draws(kind: type[Draw]) -> Callable[[D], D]:
    """Register a drawer for a description."""

    def register(drawer: D) -> D:
        _DRAWERS[kind] = drawer
        return drawer

    return register


def drawer_for(draw: Draw, shape: tuple[int, ...]) -> Drawer:
    """The drawer of a description."""
    kinds = (
        type(draw).__mro__ if isinstance(draw, OwnDraw) else [type(draw)]
    )  # a user's noise may be a subclass
    for kind in kinds:
        if kind in _DRAWERS:
            return _DRAWERS[kind](draw, shape)
    raise InvalidInput(
        f"no stream can draw {draw}: register a drawer for {type(draw).__name__} with smoothcert.sampling.drawing.draws"
    )


class _HalfWords(Drawer):
    """Base of drawers that take 32 bits for each number."""

    def __init__(self, draw: Any, shape: tuple[int, ...]) -> None:
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
        uniform = self.halves(words).float().add_(0.5).mul_(_UNIT if law.tail is None else _OUTER)
        if law.tail is None:
            z = uniform
        elif more is None:
            z = law.of_uniform(uniform.clamp_(-_LARGEST, _LARGEST))
        else:
            where = _far(uniform)
            values = _tail(words, where, law.tail, more) / law.factor
            at = torch.from_numpy(where).to(words.device)
            uniform.view(-1)[at] = 0  # some libraries are slow at the ends
            z = law.of_uniform(uniform)
            z.view(-1)[at] = torch.from_numpy(values).to(words.device, torch.float32)
        noisy = self.shaped(z).to(x.dtype)
        return torch.add(x, noisy, alpha=law.factor * self.draw.drawn_scale, out=noisy)


def _far(uniform: Tensor) -> NDArray[np.int64]:
    """Positions among all numbers where 1 - |u| is small."""
    numbers, limit = uniform.cpu().numpy().ravel(), 1 - 2.0**-_TAIL_BITS
    return np.flatnonzero((numbers >= limit) | (numbers <= -limit))


def _tail(
    words: Tensor, where: NDArray[np.int64], law: Callable[[Any], Any], more: MoreBits
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
    tail: Callable[[Any], Any] | None = None
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

    float32 finds it, except next to a threshold and in the tails, where 64 bits are compared with the thresholds.
    """

    def noisy(self, words: Tensor, x: Tensor, more: MoreBits | None = None) -> Tensor:
        step, ratio = self.draw.step, self.draw.deviation / self.draw.step
        bits = self.halves(words)
        uniform = bits.float().mul_(_UNIT).clamp_(-_LARGEST, _LARGEST)
        # In float32, y is off by less than .01 where 1 - |u| is above this.
        tail = None if more is None else uniform.abs() >= 1 - max(2.0**-20, 1e-6 * ratio)
        y = uniform.erfinv_().mul_(math.sqrt(2) * ratio)
        k = y.round()
        if more is not None and tail is not None:
            where = (tail | ((y - k).abs() > 0.48)).view(-1).nonzero()[:, 0]
            table = thresholds(ratio)
            high = bits.reshape(-1)[where].cpu().numpy().astype(np.int64) + 2**31
            word = (high.astype(np.uint64) << np.uint64(32)) | (
                more(where.cpu().numpy()) >> np.uint64(32)
            )
            found = table.smallest + np.searchsorted(table.values, word, side="right")
            k.view(-1)[where] = torch.from_numpy(found).to(k)
        noisy: Tensor = (self.shaped(k) + (x / step).round()) * step
        return noisy


@draws(Brightness)
class _Brightness(Drawer):
    def noisy(self, words: Tensor, x: Tensor, more: MoreBits | None = None) -> Tensor:
        word = (
            words[:, 0].cpu() if words.device.type == "mps" else words[:, 0]
        )  # which has no float64
        beyond = (word ^ (word >> 63)).bitwise_not() & (
            2**63 - 1
        )  # how far |u| is from 1, in units of 2^-63
        z = (
            torch.special.ndtri((beyond.double() + 0.5) * 2.0**-64)
            .neg()
            .copysign(word.double() + 0.5)
        )
        noisy: Tensor = x + (OUTWARD * self.draw.sigma * z).float().view(
            -1, *[1] * len(self.shape)
        ).to(x.device)
        return noisy


@draws(Translation)
class _Translation(Drawer):
    words = 2

    def noisy(self, words: Tensor, x: Tensor, more: MoreBits | None = None) -> Tensor:
        grid = grid_noise(AdditiveGrid(self.draw.sigma, 1.0), words.device)
        shift = grid.smallest + torch.searchsorted(grid.table, words.contiguous(), right=True)
        rows, (height, width) = len(words), self.shape[-2:]
        down, right = (
            (torch.arange(length, device=words.device) - moved[:, None]) % length
            for length, moved in zip((height, width), shift.T, strict=True)
        )
        x = x.expand(rows, *self.shape).reshape(rows, -1, height, width)
        image = torch.arange(rows, device=words.device)[:, None, None]
        # This kind of indexing moves the channels to the end: (rows, height, width, channels).
        moved = x[image, :, down[:, :, None], right[:, None, :]].permute(0, 3, 1, 2)
        return moved.reshape(rows, *self.shape)


@draws(Splitting)
class _Splitting(_HalfWords):
    def __init__(self, draw: Splitting, shape: tuple[int, ...]) -> None:
        super().__init__(draw, shape)
        if draw.levels:
            self.enumerated, self.words = True, 1

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
        levels, offsets = self.draw.levels, round(2 * self.draw.scale * self.draw.levels)
        offset = ((samples + _own_offsets(self.size, offsets, samples.device)) % offsets).view(
            -1, *self.shape
        )
        level = (x * levels).round().long()
        high = offset + offsets * (
            torch.div(level - offset - 1, offsets, rounding_mode="floor") + 1
        )
        return (high - offsets + 0.5) / levels, (high + 0.5) / levels


@draws(Ablation)
class _Ablation(Drawer):
    def __init__(self, draw: Ablation, shape: tuple[int, ...]) -> None:
        super().__init__(draw, shape)
        self.words = prod(shape[1:] if len(shape) >= 3 else shape)

    def noisy(self, words: Tensor, x: Tensor, more: MoreBits | None = None) -> Tensor:
        kept = words.topk(self.draw.keep, dim=1, largest=False, sorted=False).indices
        mask = torch.zeros(words.shape, dtype=torch.bool, device=x.device).scatter_(1, kept, True)
        return _marked(
            mask.view(-1, *([1, *self.shape[1:]] if len(self.shape) >= 3 else self.shape)), x
        )


@draws(PatchNoise)
class _PatchNoise(Drawer):
    enumerated = True

    def noisy(self, words: Tensor, x: Tensor, more: MoreBits | None = None) -> Tensor:
        height, width = self.shape[-2:]
        shown_down, shown_right = self.draw.window
        right = (torch.arange(width, device=words.device) - words % width) % width < shown_right
        down = (torch.arange(height, device=words.device) - words // width) % height < (
            shown_down or height
        )
        return _marked((down[:, :, None] & right[:, None, :])[:, None], x)


@draws(Discrete)
class _Discrete(Drawer):
    def __init__(self, draw: Discrete, shape: tuple[int, ...]) -> None:
        super().__init__(draw, shape)
        self.words = self.size if draw.values == 2 else 2 * self.size
        self.threshold = int(
            draw.share * 2**64
        )  # a value is kept if 64 random bits, as an integer, are below this

    def noisy(self, words: Tensor, x: Tensor, more: MoreBits | None = None) -> Tensor:
        others = self.draw.values - 1
        value = (x * others).round().long()
        change = (words[:, : self.size] >= self.threshold - 2**63).view(-1, *self.shape)
        if others == 1:
            chosen = 1 - value
        else:
            choice = words[:, self.size :].view(-1, *self.shape)
            low, high = choice & 0xFFFFFFFF, (choice >> 32) & 0xFFFFFFFF
            other = (
                high * others + ((low * others) >> 32)
            ) >> 32  # the 64 bits, as a fraction, times `others`
            chosen = other + (other >= value)
        noisy: Tensor = torch.where(change, chosen, value).float() / others
        return noisy


def _marked(kept: Tensor, x: Tensor) -> Tensor:
    """Kept values x as pairs (x, 1 - x), all others as (0, 0)."""
    # A product with 0 would leave the sign of a hidden value, or NaN.
    return torch.cat((torch.where(kept, x, 0), torch.where(kept, 1 - x, 0)), dim=1)


def split_mix(key: int, position: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The numbers at these positions of the SplitMix64 generator with this key: any of them, at once."""
    z = np.uint64(key) + (position + np.uint64(1)) * _GOLDEN  # arrays wrap around without a warning
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed


# Constants on a device are kept: a copy from the host would keep a training step from becoming a CUDA graph.
@lru_cache(maxsize=16)
def _own_offsets(size: int, offsets: int, device: torch.device) -> Tensor:
    """The constant that each value of an input adds to the common offset of a sample."""
    constant = split_mix(0, np.arange(size, dtype=np.uint64)) % np.uint64(offsets)
    return torch.from_numpy(constant.astype(np.int64)).to(device)

"""Pictures of another size, or with other channels, than a network takes.

Both are changed inside of the classifier, after the noise and the denoiser. So sigma and radii keep
the units of the picture that the user has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.functional import interpolate

from smoothcert import _check
from smoothcert.errors import InvalidInput, setting
from smoothcert.models.base import Classifier, Network

_BILINEAR = "bilinear"
_GREY = (0.299, 0.587, 0.114)
"""The shares of red, green and blue in a grey value (ITU-R BT.601), as Pillow has them."""


@dataclass(frozen=True)
class Fit:
    """Brings a batch of pictures to the size and the channels that a network takes.

    Args:
        size: Height and width; None keeps them.
        mode: The filter: bilinear or bicubic. Both are antialiased, as those of Pillow and
            torchvision.
        channels: 3 repeats a grey picture, 1 makes a colour picture grey; None keeps them.
    """

    size: tuple[int, int] | None
    mode: str
    channels: int | None

    @classmethod
    def of(cls, resize: str | None, channels: int | None) -> Fit | None:
        """What the settings ask for; None if that is nothing.

        >>> Fit.of("224,bicubic", None)
        Fit(size=(224, 224), mode='bicubic', channels=None)
        """
        if resize is None and channels is None:
            return None
        if channels is not None:
            _check.one_of("channels", channels, (1, 3))
        if resize is None:
            return cls(None, _BILINEAR, channels)
        size, _, mode = resize.partition(",")
        mode = _check.one_of("the filter of resize", mode or _BILINEAR, (_BILINEAR, "bicubic"))
        return cls(_check.size("resize", size), mode, channels)

    def __call__(self, x: Tensor) -> Tensor:
        """The pictures as the network takes them.

        Args:
            x: Pictures of shape (batch, channels, height, width).
        """
        if self.channels == 1:
            x = grey(x)
        if self.size is not None:
            x = resized(x, self.size, self.mode)
        return x.expand(-1, 3, -1, -1) if self.channels == 3 else x

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that a picture of a shape gets."""
        has_channels = self.channels is None or shape[0] in (1, 3)
        if len(shape) != 3 or not has_channels:
            raise InvalidInput(
                "not-pictures",
                "{setting} is for pictures of shape (channels, height, width), not for {shape}",
                setting=setting("resize" if self.channels is None else "channels"),
                shape=shape,
            )
        channels, *size = shape
        return (self.channels or channels, *(self.size or size))


@fx.wrap
def resized(x: Tensor, size: tuple[int, int], mode: str) -> Tensor:
    """Pictures of another size. The filters need at least float32."""
    wide = x if x.dtype == torch.float64 else x.float()
    return interpolate(wide, size, mode=mode, antialias=True).to(x.dtype)


@fx.wrap
def grey(x: Tensor) -> Tensor:
    """Colour pictures in grey. Grey ones stay."""
    if x.shape[1] == 1:
        return x
    shares = x.new_tensor(_GREY).view(3, 1, 1)
    return (x * shares).sum(1, keepdim=True)


class FittedModule(nn.Module):
    """A network behind a `Fit`."""

    def __init__(self, fit: Fit, network: nn.Module) -> None:
        super().__init__()
        self.fit = fit
        self.network = network
        self.own_dtype = getattr(network, "own_dtype", None)

    def forward(self, x: Tensor) -> Any:
        """What the network returns.

        Args:
            x: Pictures as the user has them.
        """
        return self.network(self.fit(x))


@dataclass(frozen=True)
class FittedFunction:
    """A function behind a `Fit`. It may do anything, so it is no module that could be traced."""

    fit: Fit
    function: Network

    def __call__(self, x: Tensor) -> Any:
        """What the function returns."""
        return self.function(self.fit(x))


def fitted(classifier: Classifier, fit: Fit) -> Classifier:
    """A classifier that brings its inputs to the size and the channels that it takes."""
    module = classifier.module
    if isinstance(module, nn.Module):
        return replace(classifier, module=FittedModule(fit, module))
    return replace(classifier, module=FittedFunction(fit, module))

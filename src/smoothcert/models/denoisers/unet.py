"""The bundled denoiser: a U-Net of residual blocks, without normalisation layers."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from smoothcert.errors import InvalidInput
from smoothcert.models.denoisers.base import Denoiser
from smoothcert.noises.base import Shape

_CENTRE = 0.5
_DEVIATION = 0.25  # of the values of images, about


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut around them; before training, the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        nn.init.zeros_(self.conv2.weight)
        nn.init.zeros_(self.conv2.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """The output of the block."""
        return torch.relu(self.conv2(torch.relu(self.conv1(x))) + x)


class UNet(Denoiser):
    """A U-Net that is told the noise level in one more channel, as in FFDNet and DRUNet.

    The network sees inputs of variance 1 and estimates a mixture of image and noise, as in Karras
    et al. (2022): little noise leaves the input almost as it is, much noise makes the network
    estimate the image itself.

    Args:
        channels: Channels of an image.
        widths: Channels at each resolution. Each resolution has half the height and width of the
            one before.
        blocks: Residual blocks on each side of each resolution.
        patch: The first resolution has `patch` times fewer rows and columns than the image, and as
            many more channels.
        sigmas: The smallest and the largest standard deviation of the noise.
        shape: The shape of an image.
    """

    def __init__(
        self,
        channels: int,
        widths: tuple[int, ...],
        blocks: int,
        patch: int,
        sigmas: tuple[float, float],
        shape: Shape,
    ) -> None:
        super().__init__(sigmas, shape=shape)
        self.patch = patch
        self.enter = nn.Conv2d(channels * patch**2 + 1, widths[0], 3, padding=1)
        self.leave = nn.Conv2d(widths[0], channels * patch**2, 3, padding=1)
        self.encoders = nn.ModuleList(_blocks(width, blocks) for width in widths)
        self.decoders = nn.ModuleList(_blocks(width, blocks) for width in widths[:-1])
        neighbours = list(pairwise(widths))
        self.down = nn.ModuleList(
            nn.Conv2d(wide, narrow, 2, stride=2) for wide, narrow in neighbours
        )
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(narrow, wide, 2, stride=2) for wide, narrow in neighbours
        )

    def denoise(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Estimates of the clean inputs; see `Denoiser.denoise`."""
        sigma = sigma.to(x).view(-1, 1, 1, 1)
        variance = sigma**2 + _DEVIATION**2
        centred = x - _CENTRE
        residual = self.network(centred * variance.rsqrt(), 0.25 * sigma.clamp(min=1e-3).log())
        mixed: Tensor = centred * (_DEVIATION**2 / variance) + residual * self.output_scale(sigma)
        return mixed + _CENTRE

    @staticmethod
    def output_scale(sigma: Tensor) -> Tensor:
        """The factor c_out on the output of the network: the deviation of what it has to estimate.

        Args:
            sigma: The standard deviation of the noise.
        """
        return sigma * _DEVIATION * (sigma**2 + _DEVIATION**2).rsqrt()

    def network(self, x: Tensor, level: Tensor) -> Tensor:
        """The network itself, from inputs of variance 1 to outputs of variance 1.

        Args:
            x: Inputs of shape (batch, channels, height, width).
            level: The noise level of shape (1, 1, 1, 1) or (batch, 1, 1, 1).
        """
        if self.patch > 1:
            x = nn.functional.pixel_unshuffle(x, self.patch)
        x = torch.cat((x, torch.zeros_like(x[:, :1]) + level), 1)
        x = torch.relu(self.enter(x))
        shortcuts = []
        for encoder, down in zip(self.encoders[:-1], self.down, strict=True):
            x = encoder(x)
            shortcuts.append(x)
            x = torch.relu(down(x))
        x = self.encoders[-1](x)
        for decoder, up, shortcut in zip(
            reversed(self.decoders), reversed(self.up), reversed(shortcuts), strict=True
        ):
            x = decoder(torch.relu(up(x) + shortcut))
        x = self.leave(x)
        return nn.functional.pixel_shuffle(x, self.patch) if self.patch > 1 else x


def _blocks(width: int, count: int) -> nn.Sequential:
    return nn.Sequential(*(ResidualBlock(width) for _ in range(count)))


UNETS: dict[str, tuple[tuple[int, ...], int, int]] = {
    "unet-small": ((32, 64), 1, 2),
    "unet": ((64, 128, 256), 2, 1),
    "unet-large": ((128, 256, 512), 2, 1),
    "unet-imagenet": ((64, 128, 256, 512), 2, 2),
}
"""Widths, blocks and patch of the bundled denoisers; see `UNet`."""


def build_unet(name: str, *, shape: Shape, sigmas: tuple[float, float]) -> UNet:
    """A bundled denoiser with random weights.

    Args:
        name: The name of the denoiser.
        shape: The shape of an image: channels, height, width.
        sigmas: The smallest and the largest standard deviation of the noise.

    >>> denoiser = build_unet("unet-small", shape=(1, 28, 28), sigmas=(0.1, 0.5))
    >>> denoiser(torch.rand(2, 1, 28, 28), torch.tensor(0.25)).shape
    torch.Size([2, 1, 28, 28])
    """
    if name not in UNETS:
        raise InvalidInput(
            "unknown-denoiser",
            "unknown denoiser {name!r}: bundled are {bundled}",
            name=name,
            bundled=", ".join(UNETS),
        )
    widths, blocks, patch = UNETS[name]
    divisor = patch << (len(widths) - 1)
    if len(shape) != 3 or any(length % divisor for length in shape[1:]):
        raise InvalidInput(
            "edges-of-denoiser",
            "{name} takes images whose height and width are multiples of {divisor}, not inputs of "
            "shape {shape}",
            name=name,
            divisor=divisor,
            shape=shape,
        )
    return UNet(shape[0], widths, blocks, patch, sigmas, shape)

"""Checkpoints of improved-diffusion and guided-diffusion as denoisers: `openai:FILE`.

These are the diffusion models behind the best published certificates (Carlini et al. 2023). Their
files hold tensors by name and nothing else. Names and shapes tell the whole network except two
things: how many heads an attention layer has, and the noise schedule. These are the same in all
published files of a family, so they are presets (`PRESETS`).

The network estimates the noise at timestep t. With a learned variance it has twice the channels,
and the second half is not used.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert import _check
from smoothcert.errors import InvalidInput, first_line
from smoothcert.models.checkpoint import Shapes, read_checkpoint, shapes_of
from smoothcert.models.denoisers.diffusion import DiffusionDenoiser

Resampling: TypeAlias = Literal["none", "down", "up"]

_GROUPS = 32
"""Groups of every group normalisation."""
_LONGEST_PERIOD = 10_000
"""Of the sine waves that encode a timestep."""
_KNOWN_TIMESTEPS = 1_000
"""Networks with rescaled timesteps know 0 to 1,000, however many steps the schedule has."""


_MOST_STEPS = 1_000_000
"""Of a schedule. Published ones have 1,000 or 4,000."""


@dataclass(frozen=True)
class Preset:
    """What a file does not tell.

    Args:
        heads: Heads of each attention layer; 0 if `head_channels` tells it.
        head_channels: Channels of each head; 0 if `heads` tells it.
        schedule: "cosine" or "linear".
        steps: Timesteps of the schedule.
        rescaled: Whether the network was trained with timesteps that were rescaled to 0 to 1,000.
    """

    heads: int
    head_channels: int
    schedule: str
    steps: int
    rescaled: bool

    def __post_init__(self) -> None:
        _check.one_of("schedule", self.schedule, tuple(_SCHEDULES))
        for name, least in (("heads", 0), ("head_channels", 0), ("steps", 2)):
            _check.whole(name, getattr(self, name), least=least)
        if self.steps > _MOST_STEPS:
            raise InvalidInput(
                "too-many-steps",
                "steps must be at most {most:,}, got {steps:,}",
                most=_MOST_STEPS,
                steps=self.steps,
            )
        _check.one_of("rescaled", self.rescaled, (0, 1))
        if bool(self.heads) == bool(self.head_channels):
            raise InvalidInput(
                "no-heads",
                "attention needs either heads or head_channels above 0, got {heads} and {channels}",
                heads=self.heads,
                channels=self.head_channels,
            )


def _linear_betas(steps: int) -> Tensor:
    """From 0.0001 to 0.02 for 1,000 steps; more steps add less noise each."""
    scale = 1_000 / steps
    return torch.linspace(0.0001 * scale, 0.02 * scale, steps, dtype=torch.float64)


def _cosine_betas(steps: int) -> Tensor:
    """abar(t) = cos^2((t + 0.008) / 1.008 * pi / 2), and no step adds more than 0.999."""
    time = torch.linspace(0, 1, steps + 1, dtype=torch.float64)
    kept = torch.cos((time + 0.008) / 1.008 * math.pi / 2) ** 2
    return (1 - kept[1:] / kept[:-1]).clamp(max=0.999)


_SCHEDULES = {"linear": _linear_betas, "cosine": _cosine_betas}

PRESETS = {
    "improved": Preset(heads=4, head_channels=0, schedule="cosine", steps=4_000, rescaled=True),
    "guided": Preset(heads=0, head_channels=64, schedule="linear", steps=1_000, rescaled=False),
}
"""improved-diffusion, as for CIFAR-10, and guided-diffusion, as for ImageNet."""


def load(name: str) -> DiffusionDenoiser:
    """A denoiser from a checkpoint: a file, and settings behind commas, as in `cifar10.pt,heads=4`.

    Args:
        name: What follows `openai:`.
    """
    file, *settings = name.split(",")
    checkpoint = read_checkpoint(Path(file))
    shapes = shapes_of(checkpoint.state)
    preset = _preset(name, settings, shapes)
    try:
        network = OpenAIUNet(shapes, preset, file)
    except InvalidInput:
        raise
    except (IndexError, RuntimeError, TypeError, ValueError) as error:  # such as no dimensions
        raise InvalidInput(
            "shapes-do-not-fit",
            "{file}: the shapes of its tensors make no such network: {why}",
            file=file,
            why=first_line(error),
        ) from None
    checkpoint.load_into(network, name="this kind of network")
    kept = torch.cumprod(1 - _SCHEDULES[preset.schedule](preset.steps), 0)
    return DiffusionDenoiser(network.float(), kept)


def _preset(name: str, settings: list[str], shapes: Shapes) -> Preset:
    """The preset of the family that the file belongs to, changed by settings of the user."""
    has_plain_downsampling = any(key.endswith(".op.weight") for key in shapes)
    preset = PRESETS["improved" if has_plain_downsampling else "guided"]
    changes = _changes(name, settings)
    if "head_channels" in changes:
        changes.setdefault("heads", 0)
    elif "heads" in changes:
        changes["head_channels"] = 0
    return replace(preset, **changes)


def _changes(name: str, settings: list[str]) -> dict[str, Any]:
    """The settings behind commas, by name."""
    allowed = {field.name for field in fields(Preset)}
    changes: dict[str, Any] = {}
    for text in settings:
        key, _, value = text.partition("=")
        if key not in allowed or key in changes:
            raise InvalidInput(
                "bad-denoiser-setting",
                "cannot read {text!r} in `denoiser={given}`: behind commas are, each once, "
                "{allowed}",
                text=text,
                given=f"openai:{name}",
                allowed=", ".join(f"{key}=..." for key in sorted(allowed)),
            )
        changes[key] = int(value) if value.isascii() and value.isdecimal() else value
    return changes


class OpenAIUNet(nn.Module):
    """The U-Net of a checkpoint, with the names of its tensors.

    Args:
        shapes: The shapes of the tensors by name.
        preset: What the shapes do not tell.
        file: The file, for errors.
    """

    def __init__(self, shapes: Shapes, preset: Preset, file: str) -> None:
        super().__init__()
        build = _Builder(shapes, preset, file)
        self.scale = _KNOWN_TIMESTEPS / preset.steps if preset.rescaled else 1.0
        self.time_embed = build.sequence("time_embed")
        self.channels = build.shape("time_embed.0.weight")[1]
        self.input_blocks = build.input_blocks()
        self.middle_block = build.block("middle_block", "none")
        self.output_blocks = build.output_blocks()
        self.out = build.sequence("out")

    def extra_repr(self) -> str:
        """What determines the answers beside the weights. It is a part of the hash."""
        return f"scale={self.scale}"

    def forward(self, x: Tensor, timestep: Tensor) -> Tensor:
        """Estimates of the noise, and of its variance where that was learned."""
        waves = _waves(timestep.float() * self.scale, self.channels)
        # Not the format of `x`, so that a trace for one timestep knows the embedding.
        embedding = self.time_embed(waves.to(next(self.parameters(), waves).dtype))
        skipped = []
        for block in self.input_blocks:
            x = _apply(block, x, embedding)
            skipped.append(x)
        x = _apply(self.middle_block, x, embedding)
        for block in self.output_blocks:
            x = _apply(block, torch.cat([x, skipped.pop()], dim=1), embedding)
        estimate: Tensor = self.out(x)
        return estimate


def _apply(block: nn.Module, x: Tensor, embedding: Tensor) -> Tensor:
    """The parts of a block one after the other; only residual blocks see the timestep."""
    for part in block.children():
        x = part(x, embedding) if isinstance(part, ResidualBlock) else part(x)
    return x


def _waves(timestep: Tensor, channels: int) -> Tensor:
    """The encoding of timesteps: cosines and sines of geometrically spaced frequencies."""
    half = channels // 2
    place = torch.arange(half, dtype=torch.float32, device=timestep.device) / half
    angles = timestep[:, None] * torch.exp(-math.log(_LONGEST_PERIOD) * place)
    return torch.cat([angles.cos(), angles.sin()], dim=1)


class ResidualBlock(nn.Module):
    """Two convolutions around a skip connection. The timestep shifts, or scales and shifts.

    Args:
        channels: Channels that come in.
        width: Channels that go out.
        embedding: Numbers that encode the timestep.
        scales: Whether the timestep also scales the second normalisation.
        resampling: Whether the block halves or doubles the edges of the image.
    """

    def __init__(
        self, channels: int, width: int, embedding: int, *, scales: bool, resampling: Resampling
    ) -> None:
        super().__init__()
        self.scales = scales
        self.resampling = resampling
        self.in_layers = nn.Sequential(
            nn.GroupNorm(_GROUPS, channels), nn.SiLU(), nn.Conv2d(channels, width, 3, padding=1)
        )
        shifts = 2 * width if scales else width
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(embedding, shifts))
        self.out_layers = nn.Sequential(
            nn.GroupNorm(_GROUPS, width),
            nn.SiLU(),
            nn.Identity(),  # dropout in training
            nn.Conv2d(width, width, 3, padding=1),
        )
        self.skip_connection: nn.Module = nn.Identity()
        if channels != width:
            self.skip_connection = nn.Conv2d(channels, width, 1)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """The output for inputs and encoded timesteps."""
        normalise, activate, convolve = self.in_layers
        hidden = convolve(self._resampled(activate(normalise(x))))
        shift = self.emb_layers(embedding)[..., None, None]
        normalise, *rest = self.out_layers
        if self.scales:
            scale, shift = shift.chunk(2, dim=1)
            hidden = normalise(hidden) * (1 + scale) + shift
        else:
            hidden = normalise(hidden + shift)
        for layer in rest:
            hidden = layer(hidden)
        output: Tensor = self.skip_connection(self._resampled(x)) + hidden
        return output

    def _resampled(self, x: Tensor) -> Tensor:
        if self.resampling == "down":
            return functional.avg_pool2d(x, 2)
        if self.resampling == "up":
            return functional.interpolate(x, scale_factor=2, mode="nearest")
        return x


class Attention(nn.Module):
    """Self-attention over all pixels. Queries, keys and values of one head stand side by side.

    Args:
        channels: Channels.
        heads: Heads.
    """

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(_GROUPS, channels)
        self.qkv = nn.Conv1d(channels, 3 * channels, 1)
        self.proj_out = nn.Conv1d(channels, channels, 1)

    def extra_repr(self) -> str:
        """What determines the answers beside the weights. It is a part of the hash."""
        return f"heads={self.heads}"

    def forward(self, x: Tensor) -> Tensor:
        """The output for images. Pixels are rows here, as images with channels last store them."""
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        heads = torch.unflatten(_linear(self.qkv, pixels), 2, (self.heads, -1)).transpose(1, 2)
        query, key, value = heads.chunk(3, dim=-1)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        change = _linear(self.proj_out, mixed.transpose(1, 2).flatten(2)).transpose(1, 2)
        return x + torch.unflatten(change, 2, x.shape[2:])


def _linear(layer: nn.Conv1d, rows: Tensor) -> Tensor:
    """A convolution of edge 1 as what it is."""
    return functional.linear(rows, layer.weight.squeeze(2), layer.bias)


class Downsample(nn.Module):
    """A convolution that halves the edges."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.op = nn.Conv2d(channels, channels, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """The smaller images."""
        smaller: Tensor = self.op(x)
        return smaller


class Upsample(nn.Module):
    """Doubled edges, then a convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """The larger images."""
        larger: Tensor = self.conv(functional.interpolate(x, scale_factor=2, mode="nearest"))
        return larger


class _Builder:
    """Builds the parts of the network whose tensors have these names and shapes."""

    def __init__(self, shapes: Shapes, preset: Preset, file: str) -> None:
        self._shapes = shapes
        self._preset = preset
        self._file = file
        outputs = self._numbers("output_blocks")
        self._upsampling = list(filter(self._is_upsampling, outputs))
        self._per_level = len(outputs) // (len(self._upsampling) + 1)
        """Input blocks of a level with its downsampling, which is as many as output blocks."""

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that every such network has."""
        if name not in self._shapes:
            raise InvalidInput(
                "not-openai-checkpoint",
                "{file} has no {name}: it is no checkpoint of improved-diffusion or "
                "guided-diffusion, or it is cut off",
                file=self._file,
                name=name,
            )
        return self._shapes[name]

    def input_blocks(self) -> nn.ModuleList:
        """The blocks on the way down. The last one of each level halves the edges."""
        blocks = []
        last = len(self._numbers("input_blocks")) - 1
        for number in range(last + 1):
            halves = number > 0 and number % self._per_level == 0 and number < last
            blocks.append(self.block(f"input_blocks.{number}", "down" if halves else "none"))
        return nn.ModuleList(blocks)

    def output_blocks(self) -> nn.ModuleList:
        """The blocks on the way up."""
        blocks = []
        for number in self._numbers("output_blocks"):
            doubles = number in self._upsampling
            blocks.append(self.block(f"output_blocks.{number}", "up" if doubles else "none"))
        return nn.ModuleList(blocks)

    def block(self, name: str, resampling: Resampling) -> nn.ModuleList:
        """The parts of a block. Where it resamples, its last part does."""
        *parts, last = self._numbers(name)
        made = [self._part(f"{name}.{number}", "none") for number in parts]
        return nn.ModuleList([*made, self._part(f"{name}.{last}", resampling)])

    def sequence(self, name: str) -> nn.Sequential:
        """Two plain layers, with an activation between them."""
        return nn.Sequential(self._layer(f"{name}.0"), nn.SiLU(), self._layer(f"{name}.2"))

    def _part(self, name: str, resampling: Resampling) -> nn.Module:
        if f"{name}.in_layers.2.weight" in self._shapes:
            return self._residual_block(name, resampling)
        if f"{name}.qkv.weight" in self._shapes:
            channels = self.shape(f"{name}.norm.weight")[0]
            return Attention(channels, self._heads(channels))
        if f"{name}.op.weight" in self._shapes:
            return Downsample(self.shape(f"{name}.op.weight")[0])
        if f"{name}.conv.weight" in self._shapes:
            return Upsample(self.shape(f"{name}.conv.weight")[0])
        return self._layer(name)

    def _residual_block(self, name: str, resampling: Resampling) -> ResidualBlock:
        width, channels, *_ = self.shape(f"{name}.in_layers.2.weight")
        shifts, embedding = self.shape(f"{name}.emb_layers.1.weight")
        scales = shifts == 2 * width
        return ResidualBlock(channels, width, embedding, scales=scales, resampling=resampling)

    def _layer(self, name: str) -> nn.Module:
        """A convolution of edge 3, a linear layer or a normalisation, by the shape of weights."""
        width, *rest = self.shape(f"{name}.weight")
        if not rest:
            return nn.GroupNorm(_GROUPS, width)
        if len(rest) == 1:
            return nn.Linear(rest[0], width)
        return nn.Conv2d(rest[0], width, 3, padding=1)

    def _heads(self, channels: int) -> int:
        per_head = self._preset.head_channels
        heads = self._preset.heads or channels // per_head
        if heads < 1 or channels % (per_head or heads):
            raise InvalidInput(
                "wrong-heads",
                "{file} has attention over {channels} channels, which {shared} cannot share: give "
                "`denoiser={setting}`",
                file=self._file,
                channels=channels,
                heads=heads,
                shared=f"heads of {per_head} channels" if per_head else f"{heads} heads",
                setting=f"openai:{self._file},heads=N",
            )
        return heads

    def _is_upsampling(self, number: int) -> bool:
        """Whether an output block ends with a part that doubles the edges."""
        parts = self._numbers(f"output_blocks.{number}")
        last = f"output_blocks.{number}.{parts[-1]}"
        is_residual = len(parts) > 1 and f"{last}.in_layers.2.weight" in self._shapes
        return is_residual or f"{last}.conv.weight" in self._shapes

    def _numbers(self, name: str) -> list[int]:
        """The numbers of the parts below a name: 0, 1, 2 and so on."""
        below = re.compile(re.escape(name) + r"\.(\d+)\.")
        matches = [below.match(key) for key in self._shapes]
        numbers = sorted({int(match[1]) for match in matches if match is not None})
        if not numbers:
            self.shape(f"{name}.0.weight")
        return numbers

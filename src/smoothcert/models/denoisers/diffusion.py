"""Diffusion models as denoisers: `hf:FOLDER` for a `UNet2DModel` of diffusers, as in Carlini et al. (2023).

A variance-preserving diffusion model knows inputs y in [-1, 1] and, at timestep t, their noisy form
sqrt(abar_t) y + sqrt(1 - abar_t) N(0, I). We have x + N(0, sigma^2 I) with x in [0, 1]. So 2 (x + noise) - 1 is y with
noise of deviation 2 sigma, and t is chosen such that sqrt((1 - abar_t) / abar_t) is closest to 2 sigma. The model is
called once, and its estimate of y gives the one of x.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from smoothcert import _check
from smoothcert.errors import InvalidInput, first_line, needs
from smoothcert.models.denoisers.base import Denoiser

Prediction: TypeAlias = Literal["epsilon", "v_prediction", "sample"]
"""What a diffusion model estimates: the noise, a mixture of noise and image, or the image."""


class DiffusionDenoiser(Denoiser):
    """A variance-preserving diffusion model that removes noise in one step.

    Args:
        network: From noisy images in the units of the model, of shape (batch, channels, height, width), and a timestep
            to estimates. Channels beyond those of the images, such as estimates of the variance, are not used.
        alphas: abar_t for every timestep, decreasing.
        prediction: What the network estimates.
        shape: The shape of an image; None if the network takes any.
    """

    def __init__(
        self,
        network: nn.Module,
        alphas: Tensor,
        *,
        prediction: Prediction = "epsilon",
        shape: tuple[int, ...] | None = None,
    ) -> None:
        levels = _levels(alphas)
        super().__init__((float(levels[0]) / 2, float(levels[-1]) / 2), shape=shape)
        self.network = network
        self.alphas = (
            alphas.double().cpu()
        )  # not a buffer, which would be rounded with the weights of the network
        self.prediction: Prediction = _check.one_of("prediction", prediction, get_args(Prediction))

    def timestep(self, sigma: float) -> int:
        """The timestep whose noise level is closest to a standard deviation.

        Args:
            sigma: The standard deviation of the noise on images in [0, 1].
        """
        return int(self._timesteps(torch.tensor([sigma])))

    def denoise(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Estimates of the clean inputs; see `Denoiser.denoise`."""
        timesteps = self._timesteps(sigma)
        alphas = self.alphas[timesteps].to(x).view(-1, *[1] * (x.ndim - 1))
        return self.estimate(x, timesteps.to(x.device), alphas.sqrt(), (1 - alphas).sqrt())

    def estimate(
        self, x: Tensor, timestep: Tensor, signal: Tensor | float, noise: Tensor | float
    ) -> Tensor:
        """Estimates of the clean inputs for given timesteps.

        Args:
            x: Noisy inputs.
            timestep: One timestep for all inputs, or one for each of them.
            signal: sqrt(abar_t).
            noise: sqrt(1 - abar_t).
        """
        noisy = signal * (2 * x - 1)
        output: Tensor = self.network(noisy, timestep)[:, : x.shape[1]]
        if self.prediction == "epsilon":
            clean = (noisy - noise * output) / signal
        elif self.prediction == "v_prediction":
            clean = signal * noisy - noise * output
        else:
            clean = output
        return (clean.clamp(-1, 1) + 1) / 2

    def at(self, sigma: float) -> nn.Module:
        """See `Denoiser.at`."""
        return FixedTimestep(self, self.timestep(sigma))

    def describe(self, sigma: float) -> str:
        """See `Denoiser.describe`."""
        step = self.timestep(sigma)
        level = float(_levels(self.alphas)[step]) / 2
        return f"one step from timestep {step} of {len(self.alphas)}, whose noise level is that of sigma {level:.4g}"

    def extra_repr(self) -> str:
        """What determines the answers beside the weights. It is a part of the hash."""
        schedule = hashlib.sha256(self.alphas.numpy().tobytes()).hexdigest()
        return (
            f"prediction={self.prediction}, timesteps={len(self.alphas)}, schedule={schedule[:16]}"
        )

    def _timesteps(self, sigma: Tensor) -> Tensor:
        wanted = 2 * sigma.detach().double().cpu().view(-1, 1)
        return (_levels(self.alphas) - wanted).abs().argmin(1)


class FixedTimestep(nn.Module):
    """A diffusion model at one timestep: a module from noisy inputs to estimates of the clean ones."""

    timestep: Tensor

    def __init__(self, denoiser: DiffusionDenoiser, timestep: int) -> None:
        super().__init__()
        self.denoiser = denoiser
        alpha = float(denoiser.alphas[timestep])
        self.signal, self.noise = alpha**0.5, (1 - alpha) ** 0.5
        self.register_buffer("timestep", torch.tensor([timestep]))

    def forward(self, x: Tensor) -> Tensor:
        """Estimates of the clean inputs."""
        return self.denoiser.estimate(x, self.timestep, self.signal, self.noise)


class _Sample(nn.Module):
    """A `UNet2DModel` that returns only its estimate."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, timestep: Tensor) -> Tensor:
        estimate: Tensor = self.model(x, timestep, return_dict=False)[0]
        return estimate


def load(folder: str) -> DiffusionDenoiser:
    """A `UNet2DModel` in a folder, alone or in the folder of its pipeline."""
    spec = f"hf:{folder}"
    place = next(
        (p for p in (Path(folder), Path(folder, "unet")) if (p / "config.json").is_file()), None
    )
    if place is None:
        raise InvalidInput(
            f"{spec}: there is no config.json of a diffusers model in the folder {folder}"
        )
    config = _read(place / "config.json")
    kind, here = config.get("_class_name"), place.absolute()
    pipeline = here.parent if here.name == "unet" else here
    other_range = config.get("time_embedding_type", "positional") == "fourier" or config.get(
        "center_input_sample"
    )
    reasons = {
        f"it is a {kind}, not a UNet2DModel": kind != "UNet2DModel",
        "it needs the class of the image": config.get("class_embed_type")
        or config.get("num_class_embeds"),
        "it is not variance-preserving, for images in [-1, 1]": other_range,
        "it is a latent diffusion model": any(
            (pipeline / name).is_dir() for name in ("vae", "vqvae")
        ),
    }
    for reason, holds in reasons.items():
        if holds:
            raise InvalidInput(
                f"{spec} cannot be a denoiser: {reason}; use a diffusion model of images alone"
            )
    with needs("diffusers", what=spec):
        from diffusers import DDPMScheduler, UNet2DModel

    places = (Path(folder, "scheduler"), place, place.parent / "scheduler")
    file = next(
        (p / "scheduler_config.json" for p in places if (p / "scheduler_config.json").is_file()),
        None,
    )
    schedule = {} if file is None else _read(file)
    if schedule and "beta_schedule" not in schedule:
        raise InvalidInput(
            f"{spec}: its scheduler {schedule.get('_class_name')} has no beta_schedule, and only variance-preserving "
            "diffusion models can be used"
        )
    try:
        model = UNet2DModel.from_pretrained(
            place, use_safetensors=True, local_files_only=True, low_cpu_mem_usage=False
        )
        scheduler = DDPMScheduler.from_config(schedule)
    except Exception as error:  # settings that do not fit each other may raise any error
        raise InvalidInput(f"{spec} cannot be loaded: {first_line(error).rstrip('.')}") from None
    channels, size = model.config.in_channels, model.config.sample_size
    edges = (size, size) if isinstance(size, int) else size
    return DiffusionDenoiser(
        _Sample(model.float()),
        scheduler.alphas_cumprod,
        prediction=scheduler.config.prediction_type,
        shape=None if edges is None else (channels, *edges),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
        if not isinstance(content, dict):
            raise ValueError("it holds no settings")
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot read {path}: {first_line(error)}") from None
    return content


def _levels(alphas: Tensor) -> Tensor:
    """The deviation of the noise at each timestep relative to the image, for images in [-1, 1]."""
    alphas = alphas.double().cpu()
    return ((1 - alphas) / alphas).sqrt()

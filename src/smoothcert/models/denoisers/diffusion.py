"""Diffusion models as denoisers: `hf:FOLDER` for a `UNet2DModel` of diffusers.

This is the method of Carlini et al. (2023). A variance-preserving diffusion model knows inputs y in
[-1, 1] and, at timestep t, their noisy form sqrt(abar_t) y + sqrt(1 - abar_t) N(0, I). We have
x + N(0, sigma^2 I) with x in [0, 1]. So 2 (x + noise) - 1 is y with noise of deviation 2 sigma, and
t is chosen such that sqrt((1 - abar_t) / abar_t) is closest to 2 sigma. The model is called once,
and its estimate of y gives the one of x.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
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
        network: From noisy images in the units of the model, of shape (batch, channels, height,
            width), and a timestep to estimates. Channels beyond those of the images, such as
            estimates of the variance, are not used.
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
        alphas = alphas.double().cpu()
        levels = _levels(alphas)
        super().__init__((float(levels[0]) / 2, float(levels[-1]) / 2), shape=shape)
        self.network = network
        # Not a buffer, which would be rounded with the weights of the network.
        self.alphas = alphas
        self.prediction: Prediction = _check.one_of("prediction", prediction, get_args(Prediction))

    @property
    def config(self) -> str:
        """See `Denoiser.config`. Networks of diffusers have such entries beside their layers."""
        entries = getattr(self.network, "config", None)
        if not isinstance(entries, Mapping):
            return ""
        kept = {key: value for key, value in entries.items() if not key.startswith("_")}
        return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()

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
        return (
            f"one step from timestep {step} of {len(self.alphas)}, whose noise level is that of "
            f"sigma {level:.4g}"
        )

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
    """A diffusion model at one timestep: from noisy inputs to estimates of the clean ones."""

    timestep: Tensor

    def __init__(self, denoiser: DiffusionDenoiser, timestep: int) -> None:
        super().__init__()
        self.denoiser = denoiser
        alpha = float(denoiser.alphas[timestep])
        self.signal = alpha**0.5
        self.noise = (1 - alpha) ** 0.5
        self.register_buffer("timestep", torch.tensor([timestep]))

    def forward(self, x: Tensor) -> Tensor:
        """Estimates of the clean inputs."""
        return self.denoiser.estimate(x, self.timestep, self.signal, self.noise)


class _Sample(nn.Module):
    """A `UNet2DModel` that returns only its estimate."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.config = model.config

    def forward(self, x: Tensor, timestep: Tensor) -> Tensor:
        estimate: Tensor = self.model(x, timestep, return_dict=False)[0]
        return estimate


def load(folder: str) -> DiffusionDenoiser:
    """A `UNet2DModel` in a folder, alone or in the folder of its pipeline."""
    spec = f"hf:{folder}"
    place = _folder_with("config.json", Path(folder), Path(folder, "unet"))
    if place is None:
        raise InvalidInput(
            "no-diffusers-model",
            "{denoiser}: there is no config.json of a diffusers model in the folder {folder}",
            denoiser=spec,
            folder=folder,
        )
    if not _is_plain_model(place, _read(place / "config.json")):
        raise InvalidInput(
            "unfit-diffusion-model",
            "{denoiser} cannot be a denoiser: it must be a UNet2DModel that estimates images in "
            "[-1, 1] (not latents), is variance-preserving and is not told the class of the image",
            denoiser=spec,
        )
    with needs("diffusers", what=spec):
        from diffusers import DDPMScheduler, UNet2DModel

    schedule = _schedule(spec, place, Path(folder, "scheduler"))
    try:
        model = UNet2DModel.from_pretrained(
            place, use_safetensors=True, local_files_only=True, low_cpu_mem_usage=False
        )
        scheduler = DDPMScheduler.from_config(schedule)
    except Exception as error:  # settings that do not fit each other may raise any error
        raise InvalidInput(
            "diffusion-model-not-loaded",
            "{denoiser} cannot be loaded: {reason}",
            denoiser=spec,
            reason=first_line(error).rstrip("."),
        ) from None
    size = model.config.sample_size
    edges = (size, size) if isinstance(size, int) else size
    return DiffusionDenoiser(
        _Sample(model.float()),
        scheduler.alphas_cumprod,
        prediction=scheduler.config.prediction_type,
        shape=None if edges is None else (model.config.in_channels, *edges),
    )


def _folder_with(file: str, *folders: Path) -> Path | None:
    """The first of these folders that has a file."""
    return next((folder for folder in folders if (folder / file).is_file()), None)


def _is_plain_model(place: Path, config: dict[str, Any]) -> bool:
    """Whether a model of diffusers estimates clean images in [-1, 1], from noisy ones alone."""
    here = place.absolute()
    pipeline = here.parent if here.name == "unet" else here
    needs_more = ("class_embed_type", "num_class_embeds", "center_input_sample")
    return (
        config.get("_class_name") == "UNet2DModel"
        and config.get("time_embedding_type") != "fourier"
        and not any(config.get(key) for key in needs_more)
        and not any((pipeline / part).is_dir() for part in ("vae", "vqvae"))
    )


def _schedule(spec: str, place: Path, scheduler: Path) -> dict[str, Any]:
    """The settings of the noise schedule; empty for the defaults of diffusers."""
    folder = _folder_with("scheduler_config.json", scheduler, place, place.parent / "scheduler")
    schedule = {} if folder is None else _read(folder / "scheduler_config.json")
    if schedule and "beta_schedule" not in schedule:
        raise InvalidInput(
            "no-beta-schedule",
            "{denoiser}: its scheduler {scheduler} has no beta_schedule, and only "
            "variance-preserving diffusion models can be used",
            denoiser=spec,
            scheduler=schedule.get("_class_name"),
        )
    return schedule


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
        if not isinstance(content, dict):
            raise ValueError("it holds no settings")
    except (OSError, ValueError) as error:
        raise InvalidInput(
            "unreadable-file", "cannot read {path}: {reason}", path=path, reason=first_line(error)
        ) from None
    return content


def _levels(alphas: Tensor) -> Tensor:
    """The deviation of the noise at each timestep relative to the image, for images in [-1, 1]."""
    return ((1 - alphas) / alphas).sqrt()

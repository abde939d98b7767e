"""The settings of a smoothed classifier: the one table that everything else follows.

The constructor of `Smoothed`, the options of the command line with their help, what a run records
and what `repr` shows are all derived from the fields and the docstring of `Settings`. The command
line reads it before torch is loaded, so it imports nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch
    from torch import nn

    from smoothcert.noises import Noise


_NOT_GIVEN: Any = None
_RECORDED = {"recorded": True}
"""For what changes the votes, and has no entry of its own in the manifest of a run."""


def _option(kind: Any) -> dict[str, Any]:
    """The type of an option of the command line. Settings without one are for Python alone."""
    return {"option": kind}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a smoothed classifier.

    Args:
        noise: The smoothing noise. Give either this or `sigma`.
        sigma: The standard deviation of Gaussian noise. On CUDA, noise for 8-bit images is drawn on
            their grid, as `GridGaussian(sigma)`, which is exact in floating point and costs little
            there. Otherwise, this is `Gaussian(sigma)`. A run that is resumed keeps its noise.
        weights: A checkpoint (.safetensors, .pth, .pth.tar) for a model that is given by its name.
            Several, separated by commas, are an ensemble: the mean of their logits is certified.
        classes: The number of classes, if the model returns labels.
        denoiser: Removes the noise before the model sees an input: weights of the training method
            "denoiser", hf:FOLDER for a diffusers UNet2DModel, openai:FILE for improved-diffusion
            and guided-diffusion, file.py:function or package.module:function; in Python also a module.
            Certificates are about the denoiser and the model together.
        local: Local smoothing, as in 5,0.25: the classifier averages its logits over 5 noises of
            standard deviation 0.25, added after the denoiser. The noises are the same for every
            input, and the mean is what is certified.
        resize: Resize pictures inside of the classifier, after the noise and the denoiser, to 224,
            224x160 (height and width) or 224,bicubic. Bilinear by default. Radii keep the units of
            the given picture.
        channels: Change the channels there as well: 3 repeats grey pictures, 1 makes colour
            pictures grey.
        groups: Certify groups of classes: votes for the classes of a group are summed before
            anything is decided. A TOML file, as in groups.toml or groups.toml:kind for one of its
            levels; in Python also a dictionary. A label stands for its group.
        stochastic: The model is random by design. Its random numbers then depend on the noisy input
            alone, and inputs are classified one at a time. A module of your own function stays in
            the mode in which it is returned, so dropout can be on.
        seed: The key of the noise: the same seed draws the same noise.
        device: cpu, cuda, cuda:N or mps. Default: the fastest one.
        dtype: The number format of the classifier. Default: float16 on CUDA, else bfloat16 where
            the device has it, else float32; a format is left out if, on noisy copies of the first
            inputs, an output is not finite or more than 2% of the labels differ from float32. A
            model in float64 stays in it. A run that is resumed keeps its format.
        batch: Rows per forward pass. Default: chosen by measuring.
        compile: How to speed up the classifier. fast: kernels of our own, ready in seconds, the
            default on CUDA. default: torch's compiler. max: the compiler tunes convolutions, for
            half a minute or more.
        pad: Whether a call in memory fills up batches to the given `batch`, for models that take
            only batches of this size. If the batch size is measured, it does not. Runs on disk
            always do.
    """

    noise: Noise = _NOT_GIVEN
    sigma: float | None = None
    weights: str | Path | None = field(default=None, metadata=_option(str | None))
    classes: int | None = field(default=None, metadata=_option(int | None))
    denoiser: str | Path | nn.Module | None = field(default=None, metadata=_option(str | None))
    local: str | tuple[int, float] | None = field(
        default=None, metadata=_option(str | None) | _RECORDED
    )
    resize: str | int | None = field(default=None, metadata=_option(str | None) | _RECORDED)
    channels: int | None = field(default=None, metadata=_option(int | None) | _RECORDED)
    groups: str | Path | Mapping[str, Any] | None = field(
        default=None, metadata=_option(str | None) | _RECORDED
    )
    stochastic: bool = field(default=False, metadata=_option(bool) | _RECORDED)
    seed: int = field(default=0, metadata=_option(int))
    device: str | int | torch.device = field(default="auto", metadata=_option(str))
    dtype: str | torch.dtype = field(
        default="auto",
        metadata=_option(Literal["auto", "float32", "bfloat16", "float16", "float64"]),
    )
    batch: int | str = field(default="auto", metadata=_option(str))
    compile: str = field(
        default="auto", metadata=_option(Literal["auto", "none", "fast", "default", "max"])
    )
    pad: bool = True


NAMES = tuple(setting.name for setting in fields(Settings))
"""The names of all settings."""
DEFAULTS = {setting.name: setting.default for setting in fields(Settings)}
"""Their defaults."""
OPTIONS = {
    setting.name: setting.metadata["option"]
    for setting in fields(Settings)
    if "option" in setting.metadata
}
"""The settings that the command line has, with the types of the options."""


def recorded_settings(settings: Settings) -> dict[str, Any]:
    """The settings that a manifest records under `settings`.

    Defaults are left out, so that a run of an earlier version, which did not have the setting, can
    be resumed. All versions record `stochastic`.
    """
    names = [setting.name for setting in fields(Settings) if "recorded" in setting.metadata]
    values = {name: getattr(settings, name) for name in names}
    return {
        name: value
        for name, value in values.items()
        if value != DEFAULTS[name] or name == "stochastic"
    }

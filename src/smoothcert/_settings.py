"""The settings of a smoothed classifier and of a plan: the tables that everything else follows.

The constructor of `Smoothed`, the options of the command line with their help, what a run records
and what `repr` shows are all derived from the fields and the docstring of `Settings`. `certify` and
the command line describe a plan by `PlanSettings`. The command line reads them before torch is
loaded, so this file imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        noise: The smoothing noise, or its name and numbers as on the command line, as in
            "gaussian:0.5". Give either this or `sigma`.
        sigma: The standard deviation of Gaussian noise. On CUDA, noise for 8-bit images is drawn on
            their grid, as `GridGaussian(sigma)`, which is exact in floating point and costs little
            there. Otherwise, this is `Gaussian(sigma)`. A run that is resumed keeps its noise.
        transform: Certify pictures that are turned by degrees or zoomed by percent, with radii up
            to this amount: "rotation", "rotation:45", "zoom", "zoom:25". Default: 30 degrees, 20
            percent. The noise is then the one on top.
        weights: A checkpoint (.safetensors, .pth, .pth.tar) for a model that is given by its name.
            Several, separated by commas, or a list in Python, are an ensemble: the mean of their
            logits is certified.
        classes: The number of classes, if the model returns labels.
        denoiser: Removes the noise before the model sees an input: weights of the training method
            "denoiser", hf:FOLDER for a diffusers UNet2DModel, openai:FILE for improved-diffusion
            and guided-diffusion, file.py:function or package.module:function; in Python also a
            module. Certificates are about the denoiser and the model together.
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

    noise: Noise | Any = _NOT_GIVEN
    sigma: float | None = None
    transform: str | None = None
    weights: str | Path | Sequence[str | Path] | None = field(
        default=None, metadata=_option(str | None)
    )
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
PLACE_NAMES = ("model", "weights", "denoiser", "data")
"""What of a run is given again if it has moved."""
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


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """The settings of a plan. What is not given is None; the plan then has its own default.

    Args:
        radii: Radii, separated by commas. They are decided, unless you give a --method or a budget;
            then they are only shown.
        method: input-specific: as many samples as each input needs. radii: decide --radii. walk:
            decide --radii of a --transform. fixed: the same for all inputs. price: samples that add
            --price to the radius. exact: count all outcomes of a noise that has few, as
            splitting:0.5,255 or bands:4. Or the name of a plan of --import. Several, as in
            radii,input-specific, share their samples. Default: walk with --transform, radii with
            --radii, price with --budget or --minutes, else input-specific.
        protocol: cohen: what papers do, 100,000 samples for every input after 100 for the class,
            alpha 0.001, plain Gaussian noise and float32. iss: input-specific sampling as it was
            published, which counts the pilot again (not sound).
        samples: The ceiling. Default: 100,000.
        known_labels: Certify the label itself instead of the predicted class.
        decline: input-specific: how much smaller than the reference a radius may be. Default: 0.05.
        kind: Whether the decline is absolute or relative. Default: absolute.
        reference: The reference of the decline: the radius at the ceiling, or the ideal radius.
            Default: ceiling.
        price: price: how much radius a sample has to add, as in 1e-6.
        bound: runner-up: also bound the other classes, which certifies more. Default: binary, as in
            papers.
        top: Certify that the class stays among so many most probable ones. Default: 1.
        give_up: radii: give up a radius when the chance to prove it falls below this. Default:
            0.02.
        alpha: The largest probability that one certificate is wrong. Default: 0.001.
        pilot: Samples of the first look. Default: 1% of the ceiling, at least 100; 50 or 105 where
            radii are decided.
        pilot_use: fresh: the pilot only plans. reuse: it also counts, as published (not sound).
            Default: fresh.
        grid: exact, or the paper's grid of step 0.001. Default: exact; paper with --pilot-use
            reuse.
    """

    radii: Sequence[float] | None = None
    method: str | None = None
    protocol: Literal["cohen", "iss"] | None = None
    samples: int | None = None
    known_labels: bool = False
    decline: float | None = None
    kind: Literal["absolute", "relative"] | None = None
    reference: Literal["ceiling", "ideal"] | None = None
    price: float | None = None
    bound: Literal["binary", "runner-up"] | None = None
    top: int | None = None
    give_up: float | None = None
    alpha: float | None = None
    pilot: int | None = None
    pilot_use: Literal["fresh", "reuse"] | None = None
    grid: Literal["exact", "paper"] | None = None

    @property
    def given(self) -> dict[str, Any]:
        """What the user gave."""
        return {
            name: value
            for name, value in vars(self).items()
            if value is not None and value is not False
        }


PLAN_NAMES = tuple(setting.name for setting in fields(PlanSettings))
"""The names of the settings of plans."""

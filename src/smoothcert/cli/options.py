"""Options that several commands share: the classifier, the noise, the plan and the machines."""

from __future__ import annotations

import time
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import smoothcert as sc
from smoothcert._settings import DEFAULTS, OPTIONS, Settings

STARTED = time.perf_counter()
"""When the command was started: Python has loaded only the command line before."""


def folder(text: str) -> Path:
    """The folder of `--out`. An empty text, as from an unset shell variable, is an error."""
    if not str(text):
        raise typer.BadParameter("the value is empty (is a shell variable not set?): name a folder")
    return Path(text)


Folder = Annotated[Path, typer.Option(parser=folder, metavar="<path>")]
Data = Annotated[
    str,
    typer.Option(
        help="fashion-mnist, mnist, cifar10, cifar10:DIR, imagenet:DIR, hf:NAME, an .npz file "
        "or a folder of images."
    ),
]
InputSize = Annotated[
    str | None,
    typer.Option(
        help="Bring pictures to this size before the noise, as in 224 or 224x160 (height and "
        "width). Radii are about the resized pictures; --resize keeps those of the given ones."
    ),
]
Skip = Annotated[
    int | None, typer.Option(help="Take every N-th input: 20 takes ids 0, 20, 40, ...")
]
Limit = Annotated[int | None, typer.Option(help="Take at most this many inputs.")]
Ids = Annotated[str | None, typer.Option(help="Take these inputs, as in 0,5,10-20.")]
Transform = Annotated[str | None, typer.Option(metavar="NAME[:LARGEST]")]
NoiseName = Annotated[
    str | None,
    typer.Option(
        help="The noise and its strength: gaussian:0.5, grid-gaussian:0.5, uniform:0.5, "
        "laplace:0.5, splitting:0.5, ablation:45, discrete:0.2,256 (256 levels), translation:2, "
        "brightness:0.1, contrast:0.3, contrast-brightness:0.3, blur:10, bands:4, blocks:12, or a "
        "noise of --import.",
    ),
]


def resized(data: str, size: str | None) -> str:
    """The name of data whose pictures are brought to one size, if there is one."""
    return data if size is None else f"resized:{size}:{data}"


_SettingsOptions: Any = make_dataclass(
    "_SettingsOptions",
    [
        ("model", str | None, None),
        *((name, kind, DEFAULTS[name]) for name, kind in OPTIONS.items()),
    ],
    namespace={"__doc__": Settings.__doc__},
    frozen=True,
)


class SubjectOptions(_SettingsOptions):  # type: ignore[misc]
    """The classifier and its `Settings`, without the noise.

    Args:
        model: fashion-cnn, fashion-cnn-clean, cifar-resnet18, cifar-resnet20, cifar-resnet110,
            torchvision:NAME, timm:NAME, hf:NAME_OR_FOLDER, onnx:FILE, file.py:function or
            package.module:function. The function takes no arguments and returns the model. Not
            needed if the --weights contain it.
    """


@dataclass(frozen=True)
class PlaceOptions:
    """Where the parts of a run are now.

    Args:
        model: The model, if it has moved or is your own code. Default: as in the run.
        weights: Where its weights are now. Default: as in the run.
        denoiser: The denoiser, if it has moved or is your own code. Default: as in the run.
        data: Where the data is now, as for certify. Default: as in the run.
    """

    model: str | None = None
    weights: str | None = None
    denoiser: str | None = None
    data: str | None = None


@dataclass(frozen=True)
class NoiseOptions:
    """The smoothing noise, where the data or the device may be unknown.

    Args:
        sigma: Standard deviation of Gaussian noise (inputs in [0, 1]); short for gaussian:S.
        size: Numbers in an input (ablation: pixels), if there is no data.
    """

    sigma: float | None = None
    noise: NoiseName = None
    size: int | None = None

    def build(self) -> sc.Noise:
        """The noise that the options describe."""
        from smoothcert.noises import noise_of

        noise = noise_of(noise_named(self.noise), self.sigma)
        return noise if self.size is None else noise.for_size(self.size)

    def described(self) -> sc.Noise | None:
        """The noise that the options describe; None if they describe none."""
        if self.sigma is None and self.noise is None:
            return None
        return self.build()


def noise_named(text: str | None) -> sc.Noise | None:
    """The noise of --noise, if it is given."""
    if text is None:
        return None
    from smoothcert.noises import noise_from_text

    return noise_from_text(text, option="--noise")


@dataclass(frozen=True)
class MachineOptions:
    """Where to compute.

    Args:
        executor: Where to compute: on this machine, or on a Ray cluster.
        devices: local: start one process per device: cuda:0,cuda:1 or all.
        address: ray: auto or HOST:PORT. Default: a new Ray instance.
        workers: ray: the number of workers, or auto: as many as fit.
        gpus_per_worker: ray: GPUs per worker. Default: 1 if there are any.
    """

    executor: Literal["local", "ray"] = "local"
    devices: str | None = None
    address: str | None = None
    workers: str | None = None
    gpus_per_worker: float | None = None


PANELS = {
    "Model": (
        ("model", "weights", "denoiser"),
        ("classes", "local", "resize", "channels", "groups", "stochastic", "transform"),
    ),
    "Inputs": (("data", "skip", "limit"), ("ids", "input_size", "shard")),
    "Noise": (("sigma",), ("noise", "seed", "size")),
    "Plan": (
        ("radii", "method", "protocol", "samples", "known_labels", "budget"),
        (
            "minutes",
            "joint",
            "alpha",
            "bound",
            "top",
            "pilot",
            "decline",
            "kind",
            "reference",
            "price",
            "give_up",
            "pilot_use",
            "grid",
        ),
    ),
    "Output": (("out", "dry_run"), ("track", "quiet", "json")),
    "Speed": ((), ("device", "dtype", "batch", "compile")),
    "Many machines": ((), ("executor", "devices", "address", "workers", "gpus_per_worker")),
}
"""The panels in the help of a command with many options: what is shown, and what few need."""

"""Options that several commands share: the classifier, the noise, the plan and the machines."""

from __future__ import annotations

import time
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, overload

import typer

import smoothcert as sc
from smoothcert._registry import class_named, offered_subclasses
from smoothcert._settings import DEFAULTS, OPTIONS, PlanSettings, Settings
from smoothcert.cli.command import Group, Panel
from smoothcert.errors import InvalidInput

if TYPE_CHECKING:
    from smoothcert.executors import Executor
    from smoothcert.noises.transformed import Transformed

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
        help="fashion-mnist, mnist, cifar10, imagenet:DIR, hf:NAME, an .npz file or a folder of "
        "images."
    ),
]
InputSize = Annotated[
    str | None,
    typer.Option(
        help="Bring pictures to this size before the noise, as in 224 or 224x160 (height and "
        "width). Radii are about the resized pictures; --resize keeps those of the given ones."
    ),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:N or mps. Default: the fastest one.")]
Skip = Annotated[
    int | None, typer.Option(help="Take every N-th input: 20 takes ids 0, 20, 40, ...")
]
Limit = Annotated[int | None, typer.Option(help="Take at most this many inputs.")]
Ids = Annotated[str | None, typer.Option(help="Take these inputs, as in 0,5,10-20.")]
Transform = Annotated[str | None, typer.Option(metavar="NAME[:LARGEST]")]


def resized(data: str, size: str | None) -> str:
    """The name of data whose pictures are brought to one size, if there is one."""
    return data if size is None else f"resized:{size}:{data}"


@overload
def numbers(name: str, text: str) -> list[float]: ...
@overload
def numbers(name: str, text: None) -> None: ...
def numbers(name: str, text: str | None) -> list[float] | None:
    """The numbers of a comma-separated list; None if the option is not given."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(
            "not-numbers",
            "{name} must be numbers separated by commas, got {value!r}",
            name=name,
            value=text,
        ) from None


_SettingsOptions: Any = make_dataclass(
    "_SettingsOptions",
    [
        ("model", str | None, None),
        *((name, kind, DEFAULTS[name]) for name, kind in OPTIONS.items()),
    ],
    bases=(Group,),
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
class PlaceOptions(Group):
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


_NoiseName = Annotated[
    str | None,
    typer.Option(
        help="The noise and its strength: gaussian:0.5, grid-gaussian:0.5, uniform:0.5, "
        "laplace:0.5, splitting:0.5, ablation:45, discrete:0.2,256 (256 levels), translation:2, "
        "brightness:0.1, contrast:0.3, contrast-brightness:0.3, blur:10, bands:4, blocks:12, or a "
        "noise of --import.",
    ),
]


@dataclass(frozen=True)
class CertifiedNoiseOptions(Group):
    """The smoothing noise of a run, which knows its data and its device.

    Args:
        sigma: Standard deviation of Gaussian noise (inputs in [0, 1]): grid-gaussian:S for 8-bit
            images on CUDA, else gaussian:S. A run that is resumed keeps its noise.
    """

    sigma: float | None = None
    noise: _NoiseName = None

    def build(self) -> sc.Noise:
        """The noise that the options describe."""
        noise = self.described()
        if noise is None:
            raise InvalidInput(
                "no-noise", "the noise is missing: give --sigma, or --noise as in gaussian:0.5"
            )
        return noise

    def described(self) -> sc.Noise | None:
        """The noise that the options describe; None if they describe none."""
        if self.noise is None:
            return None if self.sigma is None else sc.Gaussian(self.sigma)
        if self.sigma is not None:
            raise InvalidInput(
                "sigma-and-noise",
                "--sigma {sigma:g} and --noise {noise} exclude one another: give one of them",
                sigma=self.sigma,
                noise=self.noise,
            )
        return _noise_named(self.noise)


def transformed(noise: sc.Noise, transform: str) -> Transformed:
    """The noise on top of the transformation of `--transform`."""
    from smoothcert.noises.transformed import TRANSFORMATIONS

    name, _, largest = transform.partition(":")
    kind = class_named("--transform", name, TRANSFORMATIONS)
    amounts = numbers("--transform", largest) if largest else []
    if len(amounts) > 1:
        raise InvalidInput(
            "several-amounts",
            "--transform {transform}: give one amount, the largest, as in {name}:20",
            transform=transform,
            name=name,
        )
    result: Transformed = kind(noise, *amounts)
    return result


def _noise_named(text: str) -> sc.Noise:
    """The noise of a name and its strength, as in gaussian:0.5."""
    from smoothcert.noises import Transformed
    from smoothcert.noises.base import dashed

    name, _, strength = text.partition(":")
    classes = [cls for cls in offered_subclasses(sc.Noise) if not issubclass(cls, Transformed)]
    cls = class_named("--noise", name, {dashed(cls.__name__): cls for cls in classes})
    try:
        values = [float(part) for part in strength.split(",")]
    except ValueError:
        raise InvalidInput(
            "no-strength",
            "--noise {noise}: write the strength after a colon, as in {name}:0.5",
            noise=text,
            name=name,
        ) from None
    try:
        noise: sc.Noise = cls(*values)
    except TypeError:
        raise InvalidInput(
            "unfit-strength",
            "--noise {noise}: {name} does not take {strength}",
            noise=text,
            name=name,
            strength=strength,
        ) from None
    return noise


@dataclass(frozen=True)
class SweepOptions(Group):
    """The smoothing noise of one run, or of several with different sigmas.

    Args:
        sigma: Standard deviation of Gaussian noise (inputs in [0, 1]): grid-gaussian:S for 8-bit
            images on CUDA, else gaussian:S. A run that is resumed keeps its noise. Several, as in
            0.12,0.25,0.5: one run each, in folders of --out, and a page that recommends one.
            {sigma} in --weights and --model stands for each.
        transform: Certify pictures that are turned by degrees or zoomed by percent, with --radii up
            to this amount: rotation, rotation:45, zoom, zoom:25. Default: 30 degrees, 20 percent.
    """

    sigma: Annotated[str | None, typer.Option(metavar="S[,S,...]")] = None
    noise: _NoiseName = None
    transform: Transform = None

    def runs(self) -> list[dict[str, Any]]:
        """The noise of each run: `noise=` or `sigma=` as `certify` takes them."""
        if self.transform is not None:
            return [{"noise": transformed(self._single(), self.transform)}]
        if self.sigma is None:
            return [{"noise": CertifiedNoiseOptions(None, self.noise).build()}]
        sigmas = dict.fromkeys(numbers("--sigma", self.sigma))
        for sigma in sigmas:
            CertifiedNoiseOptions(sigma, self.noise).build()  # this checks it
        return [{"sigma": sigma} for sigma in sigmas]

    def _single(self) -> sc.Noise:
        """The noise of a run that cannot be one of several."""
        sigmas = numbers("--sigma", self.sigma)
        if sigmas is None:
            return CertifiedNoiseOptions(None, self.noise).build()
        if len(sigmas) > 1:
            raise InvalidInput(
                "several-sigmas", "--transform takes one --sigma, got {sigma}", sigma=self.sigma
            )
        return CertifiedNoiseOptions(sigmas[0], self.noise).build()


@dataclass(frozen=True)
class NoiseOptions(CertifiedNoiseOptions):
    """The smoothing noise, where the data or the device may be unknown.

    Args:
        sigma: Standard deviation of Gaussian noise (inputs in [0, 1]); short for gaussian:S.
        size: Numbers in an input (ablation: pixels), if there is no data.
    """

    size: int | None = None

    def described(self) -> sc.Noise | None:
        """The noise that the options describe; None if they describe none."""
        noise = super().described()
        if noise is None or self.size is None:
            return noise
        return noise.for_size(self.size)


@dataclass(frozen=True, kw_only=True)
class PlanOptions(PlanSettings, Group):
    """The settings of a plan, with its radii as they are typed."""

    radii: str | None = None  # type: ignore[assignment]

    @property
    def given(self) -> dict[str, Any]:
        """The options that the user gave."""
        given = super().given
        if self.radii is not None:
            given["radii"] = numbers("--radii", self.radii)
        return given

    def build(self) -> sc.Plan:
        """The plan that the options describe."""
        from smoothcert.plans.from_settings import plan_from

        return plan_from(PlanSettings(**self.given))

    def shown_radii(self) -> list[float] | None:
        """The radii to show certified accuracy at, in increasing order; None without --radii."""
        from smoothcert.plans.from_settings import shown_radii

        return shown_radii(self.given.get("radii"))


@dataclass(frozen=True)
class MachineOptions(Group):
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

    def build(self) -> Executor:
        """The executor that the options describe."""
        from smoothcert.executors import choose_executor

        settings = self.settings()
        return choose_executor(settings.pop("executor"), **settings)


PANELS = (
    Panel(
        "Model",
        ("model", "weights", "denoiser"),
        ("classes", "local", "resize", "channels", "groups", "stochastic", "transform"),
    ),
    Panel("Inputs", ("data", "skip", "limit"), ("ids", "input_size", "shard")),
    Panel("Noise", ("sigma",), ("noise", "seed", "size")),
    Panel(
        "Plan",
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
    Panel("Output", ("out", "dry_run"), ("track", "quiet", "json")),
    Panel("Speed", (), ("device", "dtype", "batch", "compile")),
    Panel("Many machines", (), ("executor", "devices", "address", "workers", "gpus_per_worker")),
)
"""How the help of a command with many options shows them."""

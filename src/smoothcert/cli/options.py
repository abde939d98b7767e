"""Options that several commands share: the classifier, the noise, the plan and the machines."""

from __future__ import annotations

import inspect
import time
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, overload

import typer

import smoothcert as sc
from smoothcert._registry import class_named, named_by_user, offered_subclasses
from smoothcert._settings import DEFAULTS, OPTIONS, Settings
from smoothcert.cli.command import Group
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


@dataclass(frozen=True)
class PlanOptions(Group):
    """The plan. An option that is not given is None; the plan then has its own default.

    Plan:
        method: input-specific: as many samples as each input needs. price: samples that add --price
            to the radius. radii: decide --radii. walk: decide --radii of a --transform, its
            default. fixed: the same for all inputs. exact: count all
            outcomes of a noise that has few, as splitting:0.5,255 or bands:4. Or the name of a plan
            of --import. Default: input-specific; price with --budget or --minutes.
        samples: The ceiling. Default: 100,000.
        radii: Radii, separated by commas: to decide with --method radii, else to show certified
            accuracy at.
        decline: input-specific: how much smaller than the reference a radius may be. Default: 0.05.
        kind: Whether the decline is absolute or relative. Default: absolute.
        reference: The reference of the decline: the radius at the ceiling, or the ideal radius.
            Default: ceiling.
        price: price: how much radius a sample has to add, as in 1e-6.
        bound: runner-up: also bound the other classes, which certifies more. Default: binary, as in
            papers.
        give_up: radii: give up a radius when the chance to prove it falls below this. Default:
            0.02.
        known_labels: Certify the label itself instead of the predicted class.
        alpha: The largest probability that one certificate is wrong. Default: 0.001.
        pilot: Samples of the first look. Default: 1% of the ceiling, at least 100; 50 or 105 with
            --method radii.
        pilot_use: fresh: the pilot only plans. reuse: it also counts, as published (not sound).
            Default: fresh.
        grid: exact, or the paper's grid of step 0.001. Default: exact; paper with --pilot-use
            reuse.
    """

    method: str | None = None
    samples: int | None = None
    radii: str | None = None
    decline: float | None = None
    kind: Literal["absolute", "relative"] | None = None
    reference: Literal["ceiling", "ideal"] | None = None
    price: float | None = None
    bound: Literal["binary", "runner-up"] | None = None
    give_up: float | None = None
    known_labels: bool = False
    alpha: float | None = None
    pilot: int | None = None
    pilot_use: Literal["fresh", "reuse"] | None = None
    grid: Literal["exact", "paper"] | None = None

    def build(self, *, budget: bool = False, default: str = "input-specific") -> sc.Plan:
        """The plan that the options describe, without its price if a budget will set it.

        Args:
            budget: Whether there is a budget.
            default: The method if the user names none.
        """
        method = self.method or ("price" if budget else default)
        plans = _plans()
        cls = class_named("--method", method, plans)
        parameters = _parameters_of(cls)
        settings = self._settings_for(method, parameters)
        if budget and "price" in parameters:
            settings.setdefault("price", 0.0)
        for name in settings:
            if name not in parameters:
                owners = [key for key, plan in plans.items() if name in _parameters_of(plan)]
                raise InvalidInput(
                    "option-of-another-method",
                    "--{option} is for --method {owners}: leave it out with --method {method}",
                    option=name.replace("_", "-"),
                    owners=" or ".join(owners),
                    method=method,
                )
        self._check_complete(method, parameters, settings)
        plan: sc.Plan = cls(**settings)
        return plan

    def _settings_for(
        self, method: str, parameters: dict[str, inspect.Parameter]
    ) -> dict[str, Any]:
        """The options that the user gave, as settings of a plan."""
        from smoothcert import _check

        settings = {
            name: value
            for name, value in self.settings().items()
            if value is not None and value is not False and name not in ("method", "radii")
        }
        if self.pilot is not None:  # a plan takes 0 for its default
            settings["pilot"] = _check.whole("pilot", self.pilot, least=1)
        if "radii" not in parameters:
            return settings  # they are only shown
        if self.radii is None:
            raise InvalidInput(
                "no-radii",
                "--method {method} needs --radii, as in --radii 0,0.25,0.5",
                method=method,
            )
        settings["radii"] = tuple(numbers("--radii", self.radii))
        return settings

    def _check_complete(
        self, method: str, parameters: dict[str, inspect.Parameter], settings: dict[str, Any]
    ) -> None:
        """Check that no setting without a default is missing."""
        missing = [
            name
            for name, parameter in parameters.items()
            if parameter.default is parameter.empty and name not in settings
        ]
        if missing:
            has_option = hasattr(self, missing[0])
            raise InvalidInput(
                "missing-setting",
                "--method {method} needs {missing}: {how}",
                method=method,
                missing=", ".join(missing),
                how=f"give --{missing[0]}" if has_option else "use it from Python",
            )

    def shown_radii(self) -> list[float] | None:
        """The radii to show certified accuracy at, in increasing order; None without --radii."""
        from smoothcert import _check

        if self.radii is None:
            return None
        return sorted(set(_check.radii(numbers("--radii", self.radii))))


@dataclass(frozen=True)
class MachineOptions(Group):
    """Where to compute.

    Many devices:
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


def _plans() -> dict[str, Any]:
    """All plans by name. A subclass of a built-in plan has its name unless it says another one."""
    from smoothcert.plans import METHODS

    return named_by_user(sc.Plan) | METHODS


def _parameters_of(cls: Any) -> dict[str, inspect.Parameter]:
    """The settings of a plan by name."""
    _, *parameters = inspect.signature(cls.__init__).parameters.items()
    return dict(parameters)

"""Groups of options that several commands share: the classifier, the noise and the plan.

A command has one parameter per group, annotated with the class of the group. `expand` makes every field of the class an
option of the command.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from smoothcert._registry import home
from smoothcert.cli.options import Device, numbers
from smoothcert.errors import InvalidInput

if TYPE_CHECKING:
    from smoothcert.noises import Noise
    from smoothcert.plans import Plan

_PLAN = "Plan"
_OPTIONS = {
    "samples": "--samples",
    "alpha": "--alpha",
    "decline": "--decline",
    "kind": "--kind",
    "reference": "--reference",
    "bound": "--bound",
    "pilot": "--pilot",
    "pilot_use": "--pilot-use",
    "grid": "--grid",
    "known_labels": "--known-labels",
    "radii": "--radii",
}


@dataclass(frozen=True)
class SubjectOptions:
    """The classifier and how it is run: the settings of `Smoothed` without the noise."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="fashion-cnn, fashion-cnn-clean, cifar-resnet18, cifar-resnet20, cifar-resnet110, torchvision:NAME, "
            "timm:NAME, hf:NAME_OR_FOLDER, onnx:FILE, file.py:function or package.module:function. Not needed if the "
            "--weights contain it.",
        ),
    ] = None
    weights: Annotated[str | None, typer.Option("--weights", help="A checkpoint (.safetensors, .pth, .pth.tar).")] = (
        None
    )
    classes: Annotated[
        int | None, typer.Option("--classes", help="The number of classes, if the model returns labels.")
    ] = None
    denoiser: Annotated[
        str | None,
        typer.Option(
            "--denoiser",
            help="Removes the noise before the model sees an input: weights of train --method denoiser, hf:FOLDER for "
            "a diffusers UNet2DModel, file.py:function or package.module:function.",
        ),
    ] = None
    stochastic: Annotated[
        bool,
        typer.Option(
            "--stochastic",
            help="The model is random by design. Its random numbers then depend on the noisy input alone, and inputs "
            "are classified one at a time. A module of your own function stays in the mode in which it is returned, "
            "so dropout can be on.",
        ),
    ] = False
    seed: Annotated[int, typer.Option("--seed", help="The key of the noise: the same seed draws the same noise.")] = 0
    device: Device = "auto"
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16", "float64"],
        typer.Option(
            "--dtype",
            help="Number format of the classifier. Default: bfloat16 where the device has it and gives the labels of "
            "float32, else float32; float64 for a model that is in float64.",
        ),
    ] = "auto"
    batch: Annotated[str, typer.Option("--batch", help="Rows per forward pass. Default: chosen by measuring.")] = "auto"
    compile: Annotated[
        Literal["auto", "none", "fast", "default", "max"],
        typer.Option(
            "--compile",
            help="How to speed up the classifier. fast: kernels of our own, ready in seconds, the default on CUDA. "
            "default: torch's compiler. max: the compiler tunes convolutions, for half a minute or more.",
        ),
    ] = "auto"

    def settings(self) -> dict[str, Any]:
        """The settings by name, without the model."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "model"}


@dataclass(frozen=True)
class PlaceOptions:
    """Where the parts of a run are now."""

    model: Annotated[
        str | None,
        typer.Option("--model", help="The model, if it has moved or is your own code. Default: as in the run."),
    ] = None
    weights: Annotated[
        str | None, typer.Option("--weights", help="Where its weights are now. Default: as in the run.")
    ] = None
    denoiser: Annotated[
        str | None,
        typer.Option("--denoiser", help="The denoiser, if it has moved or is your own code. Default: as in the run."),
    ] = None
    data: Annotated[
        str | None, typer.Option("--data", help="Where the data is now, as for certify. Default: as in the run.")
    ] = None

    def places(self) -> dict[str, Any]:
        """The places by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class CertifiedNoiseOptions:
    """The smoothing noise of a run, which knows its data and its device."""

    sigma: Annotated[
        float | None,
        typer.Option(
            "--sigma",
            help="Standard deviation of Gaussian noise (inputs in [0, 1]): grid-gaussian:S for 8-bit images on CUDA, "
            "else gaussian:S. A run that is resumed keeps its noise.",
        ),
    ] = None
    noise: Annotated[
        str | None,
        typer.Option(
            "--noise",
            help="The noise and its strength: gaussian:0.5, grid-gaussian:0.5, uniform:0.5, laplace:0.5, "
            "splitting:0.5, ablation:45, discrete:0.2,256 (256 levels), translation:2, brightness:0.1, or "
            "a noise of --import.",
        ),
    ] = None

    def build(self) -> Noise:
        """The noise that the options describe."""
        if (found := self.given()) is not None:
            return found
        raise InvalidInput("the noise is missing: give --sigma, or --noise as in gaussian:0.5")

    def given(self) -> Noise | None:
        """The noise that the options describe; None if they describe none."""
        from smoothcert.noises import Gaussian, Noise
        from smoothcert.noises.base import dashed

        if self.sigma is not None and self.noise is not None:
            raise InvalidInput(f"--sigma {self.sigma:g} and --noise {self.noise} exclude one another: give one of them")
        if self.noise is None:
            return None if self.sigma is None else Gaussian(self.sigma)
        known = {dashed(cls.__name__): cls for cls in _subclasses(Noise)}
        name, _, strength = self.noise.partition(":")
        if name not in known:
            _refuse_unfinished(cls for cls in _abstract_subclasses(Noise) if dashed(cls.__name__) == name)
            raise InvalidInput(f"unknown noise {name!r}: choose one of {', '.join(sorted(known))}")
        try:
            values = [float(part) for part in strength.split(",")]
        except ValueError:
            raise InvalidInput(f"--noise {self.noise}: write the strength after a colon, as in {name}:0.5") from None
        try:
            made: Noise = known[name](*values)
            return made
        except TypeError:
            raise InvalidInput(f"--noise {self.noise}: {name} does not take {strength}") from None


@dataclass(frozen=True)
class NoiseOptions(CertifiedNoiseOptions):
    """The smoothing noise, where the data or the device may be unknown."""

    sigma: Annotated[
        float | None,
        typer.Option("--sigma", help="Standard deviation of Gaussian noise (inputs in [0, 1]); short for gaussian:S."),
    ] = None
    size: Annotated[
        int | None,
        typer.Option("--size", help="Numbers in an input (ablation: pixels), if there is no data."),
    ] = None

    def given(self) -> Noise | None:
        """The noise that the options describe; None if they describe none."""
        found = super().given()
        return found if found is None or self.size is None else found.for_size(self.size)


@dataclass(frozen=True)
class PlanOptions:
    """The plan. An option that is not given is None; the plan then has its own default."""

    method: Annotated[
        str,
        typer.Option(
            "--method",
            help="input-specific: as many samples as each input needs. radii: decide --radii. fixed: the same for all "
            "inputs. exact: count all outcomes of a noise that has few, as splitting:0.5,255. Or the name of a plan "
            "of --import.",
            rich_help_panel=_PLAN,
        ),
    ] = "input-specific"
    samples: Annotated[
        int | None,
        typer.Option("--samples", help="The ceiling. Default: 100,000.", rich_help_panel=_PLAN),
    ] = None
    radii: Annotated[
        str | None,
        typer.Option(
            "--radii",
            help="Radii, separated by commas: to decide with --method radii, else to show certified accuracy at.",
            rich_help_panel=_PLAN,
        ),
    ] = None
    decline: Annotated[
        float | None,
        typer.Option(
            "--decline",
            help="input-specific: how much smaller than the reference a radius may be. Default: 0.05.",
            rich_help_panel=_PLAN,
        ),
    ] = None
    kind: Annotated[
        Literal["absolute", "relative"] | None,
        typer.Option(
            "--kind", help="Whether the decline is absolute or relative. Default: absolute.", rich_help_panel=_PLAN
        ),
    ] = None
    reference: Annotated[
        Literal["ceiling", "ideal"] | None,
        typer.Option(
            "--reference",
            help="The reference of the decline: the radius at the ceiling, or the ideal radius. Default: ceiling.",
            rich_help_panel=_PLAN,
        ),
    ] = None
    bound: Annotated[
        Literal["binary", "runner-up"] | None,
        typer.Option(
            "--bound",
            help="runner-up: also bound the other classes, which certifies more. Default: binary, as in papers.",
            rich_help_panel=_PLAN,
        ),
    ] = None
    known_labels: Annotated[
        bool,
        typer.Option(
            "--known-labels", help="Certify the label itself instead of the predicted class.", rich_help_panel=_PLAN
        ),
    ] = False
    alpha: Annotated[
        float | None,
        typer.Option(
            "--alpha", help="Probability that one certificate is wrong, at most. Default: 0.001.", rich_help_panel=_PLAN
        ),
    ] = None
    pilot: Annotated[
        int | None,
        typer.Option(
            "--pilot",
            help="Samples of the first look. Default: 1% of the ceiling, at least 100; 50 with --method radii.",
            rich_help_panel=_PLAN,
        ),
    ] = None
    pilot_use: Annotated[
        Literal["fresh", "reuse"] | None,
        typer.Option(
            "--pilot-use",
            help="fresh: the pilot only plans. reuse: it also counts, as published (not sound). Default: fresh.",
            rich_help_panel=_PLAN,
        ),
    ] = None
    grid: Annotated[
        Literal["exact", "paper"] | None,
        typer.Option(
            "--grid",
            help="exact, or the paper's grid of step 0.001. Default: exact; paper with --pilot-use reuse.",
            rich_help_panel=_PLAN,
        ),
    ] = None

    def build(self) -> Plan:
        """The plan that the options describe. An option that the plan does not have is an error."""
        from smoothcert import _check
        from smoothcert.plans import Plan

        known = {cls.name: cls for cls in _subclasses(Plan) if isinstance(getattr(cls, "name", None), str)}
        known.pop("combined", None)  # it needs other plans, which options cannot describe
        if self.method not in known:
            _refuse_unfinished(cls for cls in _abstract_subclasses(Plan) if getattr(cls, "name", None) == self.method)
            close = get_close_matches(self.method, known, n=1)
            hint = f": did you mean {close[0]}?" if close else ""
            raise InvalidInput(f"--method must be one of {', '.join(sorted(known))}, got {self.method!r}{hint}")
        cls = known[self.method]
        if not is_dataclass(cls):
            raise InvalidInput(f"{cls.__name__} cannot be used: make it a frozen dataclass (@dataclass(frozen=True))")
        own = {field.name: field for field in fields(cls)}
        values = {name: getattr(self, name) for name in _OPTIONS}
        given = {name: value for name, value in values.items() if value is not None and value is not False}
        if "radii" in own:
            if self.radii is None:
                raise InvalidInput(f"--method {self.method} needs --radii, as in --radii 0,0.25,0.5")
            given["radii"] = tuple(numbers("--radii", self.radii))
        else:
            given.pop("radii", None)  # these are only shown
        if self.pilot is not None:
            given["pilot"] = _check.whole("pilot", self.pilot, least=1)
        for name in given:
            if name not in own:
                classes = {other: c for other, c in known.items() if is_dataclass(c)}
                owners = [other for other, c in classes.items() if name in {f.name for f in fields(c)}]
                raise InvalidInput(
                    f"{_OPTIONS[name]} is for --method {' or '.join(owners)}: leave it out with --method {self.method}"
                )
        needed = [n for n, f in own.items() if f.init and f.default is MISSING and f.default_factory is MISSING]
        if missing := [name for name in needed if name not in given]:
            raise InvalidInput(f"--method {self.method} needs {', '.join(missing)}: use it from Python")
        made: Plan = known[self.method](**given)
        return made

    def shown_radii(self) -> list[float] | None:
        """The radii to show certified accuracy at, in increasing order; None if they are not given."""
        return None if self.radii is None else sorted(set(numbers("--radii", self.radii)))


_GROUPS = (SubjectOptions, PlaceOptions, NoiseOptions, CertifiedNoiseOptions, PlanOptions)


def expand(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameters of a command that are groups (noise and plan) by their fields."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type] = {name: hint for name, hint in hints.items() if hint in _GROUPS}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        inner = get_type_hints(groups[name], include_extras=True)
        parameters += [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=inner[f.name])
            for f in fields(groups[name])
        ]

    def expanded(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{f.name: values.pop(f.name) for f in fields(group)})
        command(**values)

    expanded.__name__, expanded.__doc__, expanded.__module__ = command.__name__, command.__doc__, command.__module__
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {p.name: p.annotation for p in parameters}
    return expanded


def _subclasses(cls: Any) -> list[Any]:
    """All subclasses that are neither abstract nor private."""
    return [sub for sub in _descendants(cls) if not inspect.isabstract(sub) and not sub.__name__.startswith("_")]


def _abstract_subclasses(cls: Any) -> list[Any]:
    """All subclasses of the user that lack a method."""
    return [sub for sub in _descendants(cls) if inspect.isabstract(sub) and home(sub) is not None]


def _descendants(cls: Any) -> list[Any]:
    return [found for sub in cls.__subclasses__() for found in (*_descendants(sub), sub)]


def _refuse_unfinished(classes: Iterable[Any]) -> None:
    for cls in classes:
        missing = " and ".join(sorted(cls.__abstractmethods__))
        raise InvalidInput(f"{cls.__name__} of module {cls.__module__} cannot be used: it does not define {missing}")

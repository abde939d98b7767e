"""Options that several commands share, and how results are printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from smoothcert.plans import PilotPlan


def folder(text: str) -> Path:
    """What `--out` names; a variable of the shell that is not set does not name the current folder."""
    if not str(text):
        raise typer.BadParameter("it is empty (a variable that is not set?): name a folder")
    return Path(text)


Sigma = Annotated[float, typer.Option("--sigma", help="Standard deviation of the Gaussian noise (inputs in [0, 1]).")]
Samples = Annotated[int, typer.Option("--samples", help="The ceiling: the sample size whose radius is the reference.")]
Decline = Annotated[float, typer.Option("--decline", help="How much of the ceiling's radius may be given up.")]
Kind = Annotated[Literal["absolute", "relative"], typer.Option("--kind", help="What the decline is measured in.")]
Alpha = Annotated[float, typer.Option("--alpha", help="Probability that one certificate is wrong, at most.")]
Pilot = Annotated[
    int | None,
    typer.Option("--pilot", help="Samples of the first look. Default: 1% of the ceiling, at least 100."),
]
PilotUse = Annotated[
    Literal["fresh", "reuse"],
    typer.Option("--pilot-use", help="fresh: the pilot only plans. reuse: count it again, as published (not sound)."),
]
Grid = Annotated[
    Literal["exact", "paper"] | None,
    typer.Option(
        "--grid",
        help="exact, or the paper's grid of step 0.001. Default: exact; paper with --pilot-use reuse.",
    ),
]
Method = Annotated[
    Literal["input-specific", "fixed"],
    typer.Option("--method", help="Input-specific sampling, or the same for all."),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="fashion-cnn, cifar-resnet20, cifar-resnet110, torchvision:NAME, timm:NAME, hf:NAME_OR_FOLDER, onnx:FILE "
        "or package.module:factory. May be left out where --weights tell it.",
    ),
]
Weights = Annotated[str | None, typer.Option("--weights", help="A checkpoint (.safetensors, .pth, .pth.tar).")]
Classes = Annotated[int | None, typer.Option("--classes", help="Number of classes, where the model does not tell.")]
Data = Annotated[
    str,
    typer.Option(
        "--data",
        help="fashion-mnist, cifar10:DIR, imagenet:DIR, hf:NAME, an .npz file or a folder of images.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Key of the noise: the same seed draws the same noise.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:N, mps. Default: the fastest there is.")]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16", "float16"],
    typer.Option(
        "--dtype", help="Number format of the classifier. Default: bfloat16 where the device has it, else float32."
    ),
]
Batch = Annotated[str, typer.Option("--batch", help="Rows per forward pass. Default: chosen by measuring.")]
Compile = Annotated[
    Literal["auto", "none", "default", "max"],
    typer.Option(
        "--compile",
        help="Compile the classifier. Default: on CUDA. max tunes convolutions, for half a minute or more.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def build_plan(
    method: str,
    *,
    samples: int,
    decline: float,
    kind: Kind,
    pilot: int | None,
    pilot_use: PilotUse,
    alpha: float,
    grid: Grid,
) -> PilotPlan:
    """The plan that the options describe."""
    from smoothcert import _check
    from smoothcert.errors import InvalidInput
    from smoothcert.plans import Fixed, InputSpecific

    common: dict[str, Any] = {"alpha": alpha, "pilot_use": pilot_use}
    settings: dict[str, Any] = {"decline": decline, "kind": kind, "grid": grid}
    if pilot is not None:
        common["pilot"] = _check.whole("pilot", pilot, least=1)
    if method == "fixed":
        for name, value in settings.items():
            if value != getattr(InputSpecific, name):
                raise InvalidInput(f"--{name} is for input-specific sampling: leave it out with --method fixed")
        return Fixed(samples, **common)
    return InputSpecific(samples, **settings, **common)


def numbers(name: str, text: str) -> list[float]:
    """A comma-separated list of numbers."""
    from smoothcert.errors import InvalidInput

    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(f"{name} must be numbers separated by commas, got {text!r}") from None


def print_json(result: dict[str, Any]) -> None:
    print(json.dumps(result, indent=2, allow_nan=False))


def print_table(title: str, columns: list[str], rows: list[list[str]], caption: str | None = None) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
    for column in columns:
        table.add_column(column, justify="right" if column != columns[0] else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)

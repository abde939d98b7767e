"""Options that several commands share, and how results are printed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from smoothcert.errors import InvalidInput


def folder(text: str) -> Path:
    """The folder of `--out`. An empty text, as from an unset shell variable, is an error."""
    if not str(text):
        raise typer.BadParameter("the value is empty (is a shell variable not set?): name a folder")
    return Path(text)


Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="fashion-cnn, fashion-cnn-clean, cifar-resnet18, cifar-resnet20, cifar-resnet110, torchvision:NAME, "
        "timm:NAME, hf:NAME_OR_FOLDER, onnx:FILE, file.py:function or package.module:function. Not needed if the "
        "--weights contain it.",
    ),
]
Weights = Annotated[str | None, typer.Option("--weights", help="A checkpoint (.safetensors, .pth, .pth.tar).")]
Classes = Annotated[
    int | None, typer.Option("--classes", help="The number of classes, if the model does not contain it.")
]
Denoiser = Annotated[
    str | None,
    typer.Option(
        "--denoiser",
        help="Removes the noise before the model sees an input: weights of train --method denoiser, hf:FOLDER for a "
        "diffusers UNet2DModel, file.py:function or package.module:function.",
    ),
]
Stochastic = Annotated[
    bool,
    typer.Option(
        "--stochastic",
        help="The model is random by design. Its random numbers then depend on the noisy input alone, and inputs are "
        "classified one at a time. A module of your own function stays in the mode in which it is returned, so dropout "
        "can be on.",
    ),
]
Data = Annotated[
    str,
    typer.Option(
        "--data",
        help="fashion-mnist, cifar10:DIR, imagenet:DIR, hf:NAME, an .npz file or a folder of images.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="The key of the noise: the same seed draws the same noise.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:N or mps. Default: the fastest one.")]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16", "float16", "float64"],
    typer.Option(
        "--dtype",
        help="Number format of the classifier. Default: bfloat16 where the device has it and gives the labels of "
        "float32, else float32; float64 for a model that is in float64.",
    ),
]
Batch = Annotated[str, typer.Option("--batch", help="Rows per forward pass. Default: chosen by measuring.")]
Compile = Annotated[
    Literal["auto", "none", "fast", "stages", "default", "max"],
    typer.Option(
        "--compile",
        help="How to speed up the classifier. fast: fused operations, ready in seconds, the default on CUDA. stages: "
        "one kernel per stage of a CIFAR ResNet, which fast uses by itself. default: torch's compiler. max: the "
        "compiler tunes convolutions, for half a minute or more.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def refuse_to_replace(out: Path, results: Iterable[Path]) -> None:
    """Raise if a file to write would replace the journal of a run, or results that the command reads."""
    from smoothcert.runs.journal import FILE

    is_read = out.is_file() and any(path.is_file() and path.samefile(out) for path in results)
    if is_read or out.name == FILE:
        raise InvalidInput(f"--out {out} would replace {'what is read' if is_read else 'a run'}: choose another file")


def numbers(name: str, text: str) -> list[float]:
    """Parse a comma-separated list of numbers."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(f"{name} must be numbers separated by commas, got {text!r}") from None


def print_json(result: dict[str, Any]) -> None:
    """Print a result as JSON."""
    print(json.dumps(result, indent=2, allow_nan=False))


def print_table(title: str, columns: list[str], rows: list[list[str]], caption: str | None = None) -> None:
    """Print a table. The first column is aligned to the left, all others to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
    for column in columns:
        table.add_column(column, justify="right" if column != columns[0] else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)

"""Options that several commands share, and how results are printed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from smoothcert.errors import InvalidInput

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
    typer.Option(help="fashion-mnist, mnist, cifar10, imagenet:DIR, hf:NAME, an .npz file or a folder of images."),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:N or mps. Default: the fastest one.")]
Skip = Annotated[int | None, typer.Option(help="Take every N-th input: 20 takes ids 0, 20, 40, ...")]
Limit = Annotated[int | None, typer.Option(help="Take at most this many inputs.")]
Ids = Annotated[str | None, typer.Option(help="Take these inputs, as in 0,5,10-20.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Runs = Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs, exports or published logs.")]
Reference = Annotated[
    Path | None, typer.Option(help="The run that MAD is measured against. Default: the fixed run at its ceiling.")
]
Radii = Annotated[str | None, typer.Option(help="Radii for certified accuracy, separated by commas.")]
LogRadius = Annotated[
    float | None, typer.Option(help="The radius that was tested, for a log that only says whether it was proved.")
]


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

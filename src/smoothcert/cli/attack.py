"""`smoothcert attack`: attack the smoothed classifier of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from smoothcert.cli.groups import PlaceOptions, expand
from smoothcert.cli.options import Json, numbers, print_json, print_table


@expand
def command(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    places: PlaceOptions,
    norm: Annotated[
        Literal["l1", "l2", "linf"] | None, typer.Option(help="Default: the norm of the certificates.")
    ] = None,
    ids: Annotated[str | None, typer.Option(help="Attack these inputs, as in 0,5,10-20. Default: all.")] = None,
    limit: Annotated[int | None, typer.Option(help="Attack at most this many inputs.")] = None,
    radii: Annotated[str | None, typer.Option(help="Radii to show, separated by commas.")] = None,
    steps: Annotated[int, typer.Option(help="Steps of gradient ascent in an attempt.")] = 20,
    copies: Annotated[int, typer.Option(help="Noisy copies over which a gradient is averaged.")] = 16,
    attempts: Annotated[int, typer.Option(help="Searches for each input.")] = 8,
    samples: Annotated[int, typer.Option(help="The most samples to decide whether an attempt succeeded.")] = 10_000,
    alpha: Annotated[float, typer.Option(help="Probability to call an input broken that is not, at most.")] = 0.001,
    restart: Annotated[
        bool, typer.Option("--restart", help="Attack again, with other settings. What was found then goes.")
    ] = False,
    json: Json = False,
) -> None:
    """Search the smallest change of each input that alters the answer. Run it again to resume."""
    from math import inf

    import numpy as np
    from rich.console import Console
    from rich.progress import Progress

    from smoothcert.tasks.attack import attack

    with Progress(transient=True, console=Console(stderr=True)) as bar:
        task = bar.add_task("attacked inputs", total=None)
        found = attack(
            run,
            norm=norm,
            ids=ids,
            limit=limit,
            steps=steps,
            copies=copies,
            attempts=attempts,
            samples=samples,
            alpha=alpha,
            restart=restart,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            **places.settings(),
        )
    shown = found.plain(None if radii is None else numbers("--radii", radii))
    if json:
        return print_json(shown)
    rows = [
        [f"{radius:g}", f"{proved:.1%}", f"{survived:.1%}"]
        for radius, proved, survived in zip(
            shown["radii"], shown["certified_accuracy"], shown["attacked_accuracy"], strict=True
        )
    ]
    caption = f"{len(found)} inputs. The truth lies between the two columns."
    print_table(f"{run}, changes in {found.norm}", ["r", "certified", "not broken by attacks"], rows, caption)
    altered = found.distance[(found.distance > 0) & (found.distance < inf)]
    if len(altered):
        smallest, median = f"{altered.min():.3f}", f"{np.median(altered):.3f}"
        print(f"{len(altered)} answers were altered; smallest change {smallest}, median {median}")
    if len(found.broken):
        listed = ", ".join(map(str, found.broken[:10]))
        print(f"{len(found.broken)} broken WITHIN the certified radius (alpha allows some): inputs {listed}")
    else:
        print("no input was broken within its certified radius")

"""`smoothcert attack`: attack the smoothed classifier of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from smoothcert.cli.command import Group
from smoothcert.cli.groups import PlaceOptions
from smoothcert.cli.options import Json, numbers, print_json, print_table


@dataclass(frozen=True)
class SearchOptions(Group):
    """How changes are searched.

    Args:
        norm: Default: the norm of the certificates.
        ids: Attack these inputs, as in 0,5,10-20. Default: all.
        limit: Attack at most this many inputs.
        steps: Steps of gradient ascent in an attempt.
        copies: Noisy copies over which a gradient is averaged.
        attempts: Searches for each input.
        samples: The most samples to decide whether an attempt succeeded.
        alpha: Probability to call an input broken that is not, at most.
        restart: Attack again, with other settings. What was found then goes.
    """

    norm: Literal["l1", "l2", "linf"] | None = None
    ids: str | None = None
    limit: int | None = None
    steps: int = 20
    copies: int = 16
    attempts: int = 8
    samples: int = 10_000
    alpha: float = 0.001
    restart: bool = False


def command(
    run: Path, *, places: PlaceOptions, search: SearchOptions, radii: str | None = None, json: Json = False
) -> None:
    """Search the smallest change of each input that alters the answer. Run it again to resume.

    Args:
        run: The run's folder.
        radii: Radii to show, separated by commas.
    """
    from math import inf

    import numpy as np
    from rich.console import Console
    from rich.progress import Progress

    from smoothcert.tasks.attack import attack

    console = Console(stderr=True)
    with Progress(transient=True, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("attacked inputs", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        found = attack(run, progress=show, **search.settings(), **places.settings())
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

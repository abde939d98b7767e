"""`smoothcert report`: write an HTML page about runs, or figures for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.cli.groups import PlaceOptions
from smoothcert.cli.options import LogRadius, Radii, Reference, Runs, numbers, refuse_to_replace
from smoothcert.errors import InvalidInput

if TYPE_CHECKING:
    from smoothcert.report.explained import Explained
    from smoothcert.runs.results import Results

_MOST_IDS = 10**6


def command(
    runs: Runs,
    *,
    places: PlaceOptions,
    out: Path = Path("report.html"),
    reference: Reference = None,
    radii: Radii = None,
    log_radius: LogRadius = None,
    explain: str | None = None,
    figures: Path | None = None,
) -> None:
    """Write one self-contained page about runs, to read offline or to send to a colleague.

    Args:
        out: The page to write. An earlier page of this name is replaced.
        explain: Explain the certificates of these inputs in pictures, as in 0,5,10-12.
        figures: Also write every figure as PDF, SVG and PNG to this folder.
    """
    from smoothcert.report import write_report
    from smoothcert.runs.collect import collect

    data = places.data
    if explain is None and (given := [name for name, place in places.settings().items() if place and name != "data"]):
        raise InvalidInput(f"--{given[0]} is for --explain: give the inputs to explain, as in --explain 0,1,2")
    refuse_to_replace(out, runs)
    results = collect(runs, radius=log_radius)
    page = write_report(
        results,
        out,
        reference=reference,
        radii=None if radii is None else numbers("--radii", radii),
        dataset=None if data is None else _load(data),
        explained=() if explain is None else _explained(results, explain, places.settings()),
    )
    print(f"{page}: {page.stat().st_size / 1e6:.1f} MB")
    if figures is not None:
        from smoothcert.report.figures import save_figures

        for path in save_figures(results, figures):
            print(path)


def _load(data: str) -> Any:
    from smoothcert.data import load_dataset  # this imports torch, so we do it only for pictures

    return load_dataset(data)


def _explained(results: Sequence[Results], ids: str, places: dict[str, Any]) -> list[Explained]:
    """The inputs with these ids, of every run that is a folder: exports and logs have neither a model nor votes."""
    from smoothcert.data import select_ids
    from smoothcert.runs.run import Run
    from smoothcert.tasks.explain import explain

    folders = [run for run in results if isinstance(run, Run)]
    if not folders:
        raise InvalidInput("--explain needs the folder of a run: exports and logs have no model and no votes")
    return [one for run in folders for one in explain(run, select_ids(_MOST_IDS, ids=ids), **places)]

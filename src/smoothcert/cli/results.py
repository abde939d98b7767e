"""Commands about runs that exist: `merge`, `table`, `compare`, `report` and `export`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import smoothcert as sc
from smoothcert._files import check_output
from smoothcert._settings import DEFAULTS
from smoothcert.cli.command import Output
from smoothcert.cli.options import (
    Folder,
    Ids,
    Limit,
    NoiseName,
    PlaceOptions,
    Skip,
    SubjectOptions,
    Transform,
    noise_named,
)
from smoothcert.errors import InvalidInput, number_of

Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN", help="Folders of runs, exports or published logs.")
]
Reference = Annotated[
    Path | None,
    typer.Option(
        help="The run that MAD is measured against. Default: the fixed run at its ceiling."
    ),
]
Radii = Annotated[Sequence[float] | None, typer.Option(help="Radii for certified accuracy.")]


def merge(runs: Runs, *, out: Folder, partial: bool = False) -> Output:
    """Merge the runs of several jobs, such as those of certify --shard.

    Args:
        runs: The folders of the runs.
        out: A new folder for the merged run.
        partial: Merge although certificates are missing.
    """
    run = sc.merge(runs, out=out, partial=partial)
    line = f"{out}: {number_of(len(run), 'input')} of {number_of(len(runs), 'run')}"
    if run.asked > len(run):
        line += f"; missing: {run.asked - len(run):,}"
    plain = {"out": str(out), "inputs": len(run), "asked": run.asked, "complete": run.complete}
    return Output(plain, [line])


def ask(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    *,
    top: int | None = None,
    groups: str | None = None,
    finest: bool = False,
    radii: Sequence[float] | None = None,
    alpha: float | None = None,
    out: str | None = None,
    report: Path | None = None,
) -> Output:
    """Ask the votes of a run another question, without a new forward pass.

    Args:
        top: Does each class stay among so many most probable ones?
        groups: Which group of classes is it? A TOML file, as in groups.toml or groups.toml:kind for
            one of its levels.
        finest: What is the finest answer that the votes prove, from the groups of all levels to a
            class?
        radii: finest: the radii at which answers are claimed. At a single one,
            alpha is not divided. Default: those that the plan decides, or all.
        alpha: The largest probability that the answer to one input is wrong. Default: the alpha of
            the run.
        out: Write the answers, as export does: .csv, .json or .parquet. For the finest answer, the
            name contains {level}: one file for each.
        report: Also write a page, as in answers.html.
    """
    from smoothcert.runs.questions import level_of, question_of

    if finest and out is not None and "{level}" not in out:
        raise InvalidInput(
            "no-level-in-name",
            "--out needs {{level}} in the name, one file for each, as in answers-{{level}}.csv",
        )
    check_output(out, reads=[run])
    check_output(report, reads=[run])
    asked: dict[str, Any] = {"top": top, "groups": groups, "finest": finest, "alpha": alpha}
    answer = sc.ask(run, radii=radii, **asked)
    answers = answer if isinstance(answer, list) else [answer]
    rows = sc.table(answers, radii=radii)
    lines = [rows.render(), question_of(answers[0]) or ""]
    if out is not None:
        for one in answers:
            path = out.format(level=level_of(one))
            sc.write_results(one, path)
            lines.append(f"{path}: {number_of(len(one), 'input')}")
    if report is not None:
        lines.append(_size(sc.write_report(answers, report)))
    return Output(rows.plain(), lines)


def table(
    runs: Runs = [],  # noqa: B006
    *,
    names: Annotated[list[str], typer.Option(metavar="NAME=RUN")] = [],  # noqa: B006
    columns: str | None = None,
    caption: str | None = None,
    reference: Reference = None,
    radii: Radii = None,
    format: Literal["terminal", "markdown", "latex"] = "terminal",
) -> Output:
    """Compare runs: average samples, time, MAD, ACR and certified accuracy, and mark the best.

    Args:
        names: A run under a name of your own, as in Ours=runs/a. May be repeated.
        columns: Show these columns, as in acr,ca: method, noise, norm, alpha, format, inputs,
            samples, time, mad, acr, ca, attacked, abstained, not-certified.
        caption: What to write above the table.
        format: The format of the table. latex is for the package booktabs.
    """
    for run in runs:
        if "=" in str(run) and not Path(run).exists():
            raise InvalidInput(
                "not-a-named-run", "each name is an option of its own: --names {value}", value=run
            )
    named = _named(names)
    others = [sc.read_results(run) for run in runs if run not in named.values()]
    rows = sc.table(
        [*others, *(replace(sc.read_results(run), name=name) for name, run in named.items())],
        reference=reference,
        radii=radii,
        columns=None if columns is None else columns.split(","),
        caption=caption,
    )
    return Output(rows.plain(), [rows.render(format)])


def _named(names: Sequence[str]) -> dict[str, Path]:
    """The runs of `--names` by their names."""
    pairs = [text.partition("=") for text in names]
    for name, _, place in pairs:
        if not name or not place:
            raise InvalidInput(
                "not-a-named-run",
                "--names takes a name and a run, as in --names Ours=runs/a, got {value!r}",
                value=name or place,
            )
    return {name: Path(place) for name, _, place in pairs}


def compare(
    a: Annotated[str, typer.Argument(metavar="A")],
    b: Annotated[str, typer.Argument(metavar="B")],
    *,
    sigma: float | None = None,
    noise: NoiseName = None,
    transform: Transform = None,
    subject: SubjectOptions,
    radius: Sequence[float] | None = None,
    margin: float = 0.0,
    confidence: float = 0.95,
    report: Path | None = None,
    data: str | None = None,
    out: Path | None = None,
    samples: int | None = None,
    alpha: float | None = None,
    bound: Literal["binary", "runner-up"] | None = None,
    skip: Skip = None,
    limit: Limit = None,
    ids: Ids = None,
) -> Output:
    """Compare two runs on their common inputs, or two models: certify both until it is clear.

    Args:
        a: A run; with --data, a model or a checkpoint.
        b: What to compare with it.
        radius: The radius of certified accuracy, or several: 0.25,0.5.
        margin: How many points of certified accuracy B may lose and still count as not worse.
        confidence: The confidence of the intervals.
        report: Also write a page with pictures, as in compare.html.

    Models instead of runs:
        data: The data, as for certify: A and B are models.
        sigma: Standard deviation of Gaussian noise (inputs in [0, 1]): grid-gaussian:S for 8-bit
            images on CUDA, else gaussian:S. A run that is resumed keeps its noise.
        transform: Pictures that are turned or zoomed, with --radius up to this amount, as for
            certify.
        out: The folder of both runs. The same command resumes them.
        samples: The ceiling for each input. Default: 100,000.
        alpha: The largest probability that one certificate is wrong. Default: 0.001.
        bound: runner-up: also bound the other classes. Default: binary; always runner-up with
            --transform.
    """
    check_output(report, reads=[a, b, data, *vars(subject).values()])
    options: dict[str, Any] = {
        "data": data,
        "out": out,
        "ids": ids,
        "skip": skip,
        "limit": limit,
        "sigma": sigma,
        "noise": noise_named(noise),
        "transform": transform,
        "samples": samples,
        "alpha": alpha,
        "bound": bound,
        **vars(subject),
    }
    models = {name: value for name, value in options.items() if value != DEFAULTS.get(name)}
    if models:
        models["on_part"] = _show_part
    comparison = sc.compare(a, b, radius=radius, margin=margin, confidence=confidence, **models)
    lines = [str(comparison)]
    if report is not None:
        lines.append(_size(sc.write_report(comparison, report)))
    return Output(comparison.plain(), lines)


def _show_part(part: sc.Comparison) -> None:
    figures = "; ".join(f"at {d.radius:g} {d.figures}" for d in part.differences)
    print(f"{number_of(len(part.a), 'input')}: {figures}", file=sys.stderr)


def _size(page: Path) -> str:
    return f"{page}: {page.stat().st_size / 1e6:.1f} MB"


def report(
    runs: Runs,
    *,
    places: PlaceOptions,
    out: Path = Path("report.html"),
    reference: Reference = None,
    radii: Radii = None,
    explain: str | None = None,
    figures: Path | None = None,
) -> None:
    """Write one self-contained page about runs, to read offline or to send to a colleague.

    Args:
        out: The page to write. An earlier page of this name is replaced.
        explain: Explain the certificates of these inputs in pictures, as in 0,5,10-12.
        figures: Also write every figure as PDF, SVG and PNG to this folder.
    """
    from smoothcert.runs.formats import collect

    check_output(out, reads=[*runs, reference, *vars(places).values()])
    results = collect(runs)
    explained = _explained(results, explain, places)
    dataset = None
    if places.data is not None:
        dataset = sc.load_dataset(places.data)
    page = sc.write_report(
        results,
        out,
        reference=reference,
        radii=radii,
        dataset=dataset,
        explained=explained,
    )
    print(_size(page))
    if figures is not None:
        from smoothcert.report.figures import save_figures

        for path in save_figures(results, figures):
            print(path)


def _explained(
    results: Sequence[sc.Results], explain: str | None, places: PlaceOptions
) -> list[sc.Explained]:
    """The certificates of `--explain` in pictures. Only they need a model, and so torch."""
    if explain is None:
        for name, place in vars(places).items():
            if place and name != "data":
                raise InvalidInput(
                    "only-for-explain",
                    "--{name} is for --explain: give the inputs to explain, as in --explain 0,1,2",
                    name=name,
                )
        return []
    from smoothcert.data import select_ids
    from smoothcert.runs.manifest import MOST_INPUTS

    runs = [run for run in results if isinstance(run, sc.Run)]
    if not runs:
        raise InvalidInput(
            "no-run-to-explain",
            "--explain needs the folder of a run: exports and logs have no model and no votes",
        )
    ids = select_ids(MOST_INPUTS, ids=explain)
    return [one for run in runs for one in sc.explain(run, ids, **vars(places))]


def export(
    run: Path,
    *,
    format: Literal["cohen", "csv", "parquet", "json", "sok", "card"] | None = None,
    out: Path | None = None,
    radii: Sequence[float] | None = None,
) -> None:
    """Write the certificates of a run as a file. Radii are rounded down.

    Args:
        run: A run's folder, an export or a published log.
        format: cohen: the published form of logs, tab-separated. csv, parquet, json: all columns
            and settings. sok: rows for the SoK leaderboard, in YAML. card: a model card for Hugging
            Face, in Markdown. Default: by the ending of the file; cohen for .tsv.
        out: The file to write. Default: standard output.
        radii: sok, card: the radii of the rows.
    """
    from smoothcert.runs.formats import beside, format_of

    chosen = format_of(out, format)
    results = sc.read_results(run)
    content = sc.write_results(results, out, chosen, radii=radii)
    if out is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    line = f"{out}: {number_of(len(results), 'input')}"
    if chosen == "csv":
        line += f"; noise, plan and manifest are in {beside(out).name}"
    print(line)

"""The page: numbers from `Results`, Jinja templates that escape them, Vega for the charts.

All is in one file. The page makes no requests. Its content security policy forbids them, and it
allows only the page's own two scripts, which it names by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from importlib.resources import files
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smoothcert._files import write_output
from smoothcert._registry import defining_module, describe
from smoothcert._version import __version__
from smoothcert.errors import InvalidInput
from smoothcert.plans import Plan
from smoothcert.plans.coverage import caveat, exact_coverage
from smoothcert.report import vega
from smoothcert.report.chart import Chart
from smoothcert.report.charts import (
    certified_accuracy,
    charts,
    difference,
    finest_answers,
    finest_shares,
)
from smoothcert.report.explained import Explained
from smoothcert.report.pictures import by_interest, pictures_of
from smoothcert.report.wording import acr_note, class_name, in_norm, promise, units
from smoothcert.runs.comparison import Comparison
from smoothcert.runs.formats import Source, collect
from smoothcert.runs.questions import are_levels, level_of, question_of
from smoothcert.runs.recommendation import Recommendation
from smoothcert.runs.recorded_data import dataset_of
from smoothcert.runs.results import Results, is_unit
from smoothcert.runs.summary import certified_radii, p_reached_by, usual_radii
from smoothcert.runs.table import table
from smoothcert.runs.words import (
    all_together,
    duration,
    grouped,
    shortfall,
    uncertified,
    what_to_deploy,
)
from smoothcert.statistics.group_sequential import default_looks
from smoothcert.statistics.metrics import certified, evenly, round_down

if TYPE_CHECKING:
    from jinja2 import Environment

    from smoothcert.data import Dataset

ROWS = 10_000
"""Certificates that a page lists, over all runs; larger runs are thinned out evenly."""
_ANSWERS = 500
"""Inputs whose finest answers a page lists; larger runs are thinned out evenly."""
_COMPARED = 24
"""Pictures of inputs that only one of two runs certifies, at one radius."""
_PICTURES = 1_200_000
"""Characters that all thumbnails of a page may take together."""
_WHOLE_NUMBERS = ("id", "label", "prediction", "samples", "missing")
_ALWAYS_LISTED = ("id", "label", "prediction", "radius")


def write_report(
    results: Source | Sequence[Source] | Comparison,
    out: str | Path,
    *,
    reference: Source | None = None,
    radii: Sequence[float] | None = None,
    dataset: Dataset | None = None,
    explained: Sequence[Explained] = (),
    recommendation: Recommendation | None = None,
) -> Path:
    """Write the page about these runs.

    Args:
        results: The runs, exports or published logs, or their folders and files; or what `compare`
            returns.
        out: The file to write.
        reference: The run that MAD is against; by default the best one among the runs themselves.
        radii: The radii r of the columns CA r.
        dataset: Where the pictures of the inputs come from; by default the data set that the runs
            name.
        explained: Certificates to explain in pictures, as `explain` returns them.
        recommendation: Which run to take, and why, as `recommend` returns it.

    Returns:
        The path of the page.
    """
    if isinstance(results, Comparison):
        return _write_comparison(results, out, dataset)
    runs = collect(results)
    if are_levels(runs):
        return _write_answers(runs, out, radii, dataset)
    shown = inputs_of(runs, dataset, by_interest(runs), budget=_PICTURES)
    data = {
        "runs": [_certificates(run, ROWS // len(runs)) for run in runs],
        "classes": list(shown["class_names"] or ()),
        "pictures": shown["pictures"],
    }
    return write_page(
        out,
        "page.html",
        runs,
        charts(runs),
        data,
        explained=explained,
        recommendation=recommendation,
        table=table(runs, reference=reference, radii=radii),
        plans=grouped((run.plan, run.name) for run in runs if run.plan),
        guarantees=_guarantees(runs),
    )


def _write_answers(
    runs: Sequence[Results],
    out: str | Path,
    radii: Sequence[float] | None,
    dataset: Dataset | None,
) -> Path:
    """Write the page about the finest answers: one band, and the answer to each input."""
    levels = sorted(runs, key=_groups_of)
    radii = sorted(radii or usual_radii(levels))
    kept = levels[-1].id[evenly(len(levels[-1]), _ANSWERS)].tolist()
    shown = inputs_of(levels, dataset, kept)
    return write_page(
        out,
        "finest.html",
        levels,
        [finest_answers(levels, radii)],
        names=["nothing", *map(level_of, levels)][::-1],
        shares=finest_shares(levels, radii)[::-1].tolist(),
        radii=radii,
        answers={id: finest_of(levels, id, radii, shown["class_names"]) for id in kept},
        question=question_of(levels[0]),
        all_inputs=len(levels[0]),
        **shown,
    )


def inputs_of(
    runs: Sequence[Results], dataset: Dataset | None, ids: Iterable[int], *, budget: float = inf
) -> dict[str, Any]:
    """What pages show about inputs: the names of classes, and labels and pictures by id.

    Args:
        runs: The runs.
        dataset: Where the pictures come from; by default the data set that the runs name.
        ids: The inputs that get a picture.
        budget: Characters that all pictures together may take.
    """
    dataset = dataset_of([run.manifest for run in runs], dataset)
    labels = dict(zip(runs[-1].id.tolist(), runs[-1].label.tolist(), strict=True))
    if dataset is None:
        return {"class_names": None, "labels": labels, "pictures": {}}
    pictures = pictures_of(dataset, runs, ids, budget=budget)
    return {"class_names": dataset.class_names, "labels": labels, "pictures": pictures}


def _groups_of(results: Results) -> float:
    """How fine a level is: its number of groups, or infinity for classes."""
    return inf if results.groups is None else results.groups.count


def finest_of(
    levels: Sequence[Results],
    id: int,
    radii: Sequence[float],
    class_names: Sequence[str] | None,
) -> list[tuple[str, str]]:
    """The finest proved answer to an input at each radius, and its level; both empty for none.

    Args:
        levels: The answers of each level, from coarse to fine.
        id: The number of the input.
        radii: The radii.
        class_names: The names of the classes, if they are known.
    """
    shown = [("", "")] * len(radii)
    for level in levels:
        one = level.only(level.id == id)
        names = class_names if level.groups is None else level.groups.names
        answer = (class_name(int(one.prediction[0]), names), level_of(level))
        [reached] = certified(one.radius, ~one.abstained, radii, closed=one.closed)
        shown = [
            answer if is_finer else coarser
            for is_finer, coarser in zip(reached, shown, strict=True)
        ]
    return shown


def _write_comparison(comparison: Comparison, out: str | Path, dataset: Dataset | None) -> Path:
    """Write the page about a comparison.

    It has the claims in words, and pictures of inputs that only one run certifies.
    """
    runs = [comparison.a, comparison.b]
    shown = []
    if comparison.curve:
        shown = [certified_accuracy(runs), difference(comparison, comparison.curve)]
    pictured: list[int] = []
    for one in comparison.differences:
        pictured += [*one.only_a[:_COMPARED], *one.only_b[:_COMPARED]]
    return write_page(
        out,
        "compared.html",
        runs,
        shown,
        comparison=comparison,
        most=_COMPARED,
        **inputs_of(runs, dataset, pictured),
    )


def write_page(
    out: str | Path,
    template: str,
    runs: Sequence[Results],
    shown: Sequence[Chart] = (),
    data: Mapping[str, Any] | None = None,
    **values: Any,
) -> Path:
    """Write a page about these runs with these charts, with data for its script."""
    scripts = [_vega_script(), _text("page.js")]
    drawings = {chart.id: vega.spec(chart) for chart in shown}
    page = environment().get_template(template)
    text = page.render(
        **values,
        results=runs,
        charts=shown,
        data={"config": vega.STYLES["page"], "charts": drawings, **(data or {})},
        style=_text("page.css"),
        scripts=scripts,
        hashes=" ".join(f"'sha256-{_hash(script)}'" for script in scripts),
        version=__version__,
    )
    write_output(out, text.encode(), reads=[run.path for run in runs])
    return Path(out)


def kind(plan: Plan) -> str:
    """The name of a built-in plan; empty for a plan of the user."""
    return plan.name if defining_module(type(plan)) is None else ""


_FILTERS = (
    acr_note,
    all_together,
    caveat,
    certified_radii,
    class_name,
    default_looks,
    describe,
    duration,
    in_norm,
    is_unit,
    kind,
    p_reached_by,
    promise,
    question_of,
    round_down,
    shortfall,
    uncertified,
    units,
    what_to_deploy,
)
"""Functions that templates call."""


@cache
def environment() -> Environment:
    """Where templates are found, and their filters."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    templates = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {function.__name__: function for function in _FILTERS}
    templates.filters |= {"number": "{:g}".format, "share": "{:.1%}".format}
    templates.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return templates


def _certificates(run: Results, most: int) -> dict[str, Any]:
    """The columns of at most so many certificates, for the script of the page."""
    kept = evenly(len(run), most)
    columns = {name: run.columns[name][kept].tolist() for name in _WHOLE_NUMBERS}
    columns["radius"] = _plain(run.radius[kept], _rounded_down)
    columns["p"] = _plain(run.p[kept], lambda p: round(p, 5))
    if np.isfinite(run.upper).any():  # without bounds on other classes, p tells enough
        columns["lower"] = _plain(run.lower[kept], _rounded_down)
        columns["upper"] = _plain(run.upper[kept], lambda bound: -_rounded_down(-bound))
    return {
        "name": run.name,
        "groups": run.groups and list(run.groups.names),
        "inputs": len(run),
        "uncertified": uncertified(run),
        "known_labels": run.known_labels,
        "columns": {
            name: column
            for name, column in columns.items()
            if name in _ALWAYS_LISTED or any(column)
        },
    }


def _plain(values: NDArray[np.float64], rounded: Callable[[float], float]) -> list[float | None]:
    """Rounded numbers; None for what is not a number."""
    return [None if np.isnan(value) else rounded(value) for value in values.tolist()]


def _rounded_down(value: float) -> float:
    return float(round_down(value, 4))


def _guarantees(runs: Sequence[Results]) -> list[dict[str, Any]]:
    """The failure probability of each plan in use, under each noise, with the names of its runs."""
    plans = grouped(
        ((run.certified_by, run.noise), run.name) for run in runs if run.certified_by and run.noise
    )
    guarantees = []
    for (plan, noise), names in plans.items():
        # Nothing is known about a plan that bounds other classes in its own way.
        with suppress(InvalidInput):
            coverage = exact_coverage(plan, noise)
            guarantees.append({"plan": plan, "runs": names, "coverage": coverage})
    return guarantees


@lru_cache(maxsize=1)
def _vega_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    from vl_convert import javascript_bundle

    return javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

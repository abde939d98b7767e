"""The page: numbers from `Results`, a Jinja template that escapes them, Vega for the charts, all in one file.

The page makes no requests. Its content security policy forbids them, and it allows only the page's own two scripts,
which it names by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smoothcert._files import write_output
from smoothcert._registry import describe
from smoothcert._version import __version__
from smoothcert.errors import InvalidInput, SmoothcertError
from smoothcert.plans import AtRadii, Combined, Exact, Fixed, InputSpecific, PilotPlan, Plan, Price
from smoothcert.plans.base import follows
from smoothcert.plans.coverage import caveat, exact_coverage
from smoothcert.report import vega
from smoothcert.report.charts import certified_accuracy, charts, difference
from smoothcert.report.explained import Explained
from smoothcert.report.pictures import pictures_of, thumbnails
from smoothcert.report.wording import (
    acr_note,
    class_name,
    grouped,
    in_norm,
    promise,
    uncertified,
    units,
)
from smoothcert.runs.comparison import Comparison, Recommendation
from smoothcert.runs.formats import Source, collect
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.results import Results, is_unit
from smoothcert.runs.table import duration, table
from smoothcert.statistics.boundaries import default_looks
from smoothcert.statistics.metrics import evenly, round_down

if TYPE_CHECKING:
    from jinja2 import Environment

    from smoothcert.data import Dataset

ROWS = 10_000
"""Certificates that a page lists, over all runs; larger runs are thinned out evenly."""
POINTS = 6_000
"""Inputs that the scatter plot shows, over all runs; larger runs are thinned out evenly."""
_COMPARED = 24
"""Pictures of inputs that only one of two runs certifies, at one radius."""
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
        results: The runs, exports or published logs, or their folders and files; or what `compare` returns.
        out: The file to write.
        reference: The run that MAD is against; by default the best one among the runs themselves.
        radii: The radii r of the columns CA r.
        dataset: Where the pictures of the inputs come from; by default the data set that the runs name.
        explained: Certificates to explain in pictures, as `explain` returns them.
        recommendation: Which run to take, and why, as `recommend` returns it.

    Returns:
        The path of the page.
    """
    if isinstance(results, Comparison):
        return _write_comparison(results, out, dataset)
    runs = collect(results)
    dataset = dataset_of([run.manifest for run in runs], dataset)
    return write_page(
        out,
        "page.html",
        runs,
        charts(runs, most_points=POINTS),
        {
            "runs": [_certificates(r, ROWS // len(runs)) for r in runs],
            "classes": list(dataset.class_names or ()) if dataset else [],
            "pictures": thumbnails(dataset, runs) if dataset else {},
        },
        explained=explained,
        recommendation=recommendation,
        table=table(runs, reference=reference, radii=radii),
        plans=grouped((r.plan, r.name) for r in runs if r.plan),
        guarantees=_guarantees(runs),
    )


def _write_comparison(comparison: Comparison, out: str | Path, dataset: Dataset | None) -> Path:
    """Write the page about a comparison: its claims in words, and pictures of inputs that only one run certifies."""
    runs = [comparison.a, comparison.b]
    dataset = dataset_of([run.manifest for run in runs], dataset)
    listed = [
        id for d in comparison.differences for ids in (d.only_a, d.only_b) for id in ids[:_COMPARED]
    ]
    return write_page(
        out,
        "compared.html",
        runs,
        [certified_accuracy(runs), difference(comparison, comparison.curve)]
        if comparison.curve
        else [],
        comparison=comparison,
        pictures=pictures_of(dataset, runs, listed) if dataset else {},
        most=_COMPARED,
        labels=dict(zip(comparison.a.id.tolist(), comparison.a.label.tolist(), strict=True)),
        class_names=dataset.class_names if dataset else None,
    )


def write_page(
    out: str | Path,
    template: str,
    runs: Sequence[Results],
    shown: Sequence[vega.Chart] = (),
    data: Mapping[str, Any] | None = None,
    **values: Any,
) -> Path:
    """Write a page about these runs with these charts, with data for its script."""
    scripts = [_vega_script(), _text("page.js")]
    drawn = {"config": vega.PAGE.config, "charts": {chart.id: vega.spec(chart) for chart in shown}}
    page = environment().get_template(template)
    text = page.render(
        **values,
        results=runs,
        charts=shown,
        data=drawn | dict(data or {}),
        style=_text("page.css"),
        scripts=scripts,
        hashes=" ".join(f"'sha256-{_hash(script)}'" for script in scripts),
        series=range(1, vega.SERIES + 1),
        version=__version__,
    )
    write_output(out, text.encode(), reads=[run.path for run in runs])
    return Path(out)


def kind(plan: Plan) -> str:
    """The name of the built-in rule that a plan follows; "pilot" for another rule of two looks, else empty."""
    known = (
        kind.name
        for kind in (Fixed, InputSpecific, Price, AtRadii, Exact, Combined)
        if follows(plan, kind)
    )
    return next(known, "pilot" if follows(plan, PilotPlan) else "")


def environment() -> Environment:
    """Where templates are found, and their filters."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    made = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"caveat": caveat, "kind": kind, "looks": default_looks, "is_unit": is_unit}
    made.filters |= {"promise": promise, "units": units, "in_norm": in_norm, "acr_note": acr_note}
    made.filters |= {"describe": describe, "uncertified": uncertified, "class_name": class_name}
    made.filters |= {
        "down": round_down,
        "duration": duration,
        "share": "{:.1%}".format,
        "number": "{:g}".format,
    }
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return made


def _certificates(results: Results, most: int) -> dict[str, Any]:
    kept = evenly(len(results), most)
    bounded = np.where(
        np.isfinite(results.upper).any(), 1, np.nan
    )  # without bounds on other classes, p tells enough
    whole = ("id", "label", "prediction", "samples", "missing")
    columns = {name: results.columns[name][kept].tolist() for name in whole} | {
        "radius": [float(round_down(radius, 4)) for radius in results.radius[kept].tolist()],
        "p": [None if np.isnan(p) else round(p, 5) for p in results.p[kept].tolist()],
        "lower": [
            None if np.isnan(v) else float(round_down(v, 4))
            for v in (bounded * results.lower[kept]).tolist()
        ],
        "upper": [
            None if np.isnan(v) else -float(round_down(-v, 4)) for v in results.upper[kept].tolist()
        ],
    }
    return {
        "name": results.name,
        "inputs": len(results),
        "uncertified": uncertified(results),
        "known_labels": results.known_labels,
        "columns": {
            name: column
            for name, column in columns.items()
            if name in _ALWAYS_LISTED or any(column)
        },
    }


def _guarantees(results: Sequence[Results]) -> list[dict[str, Any]]:
    """The failure probability of each plan in use, under each noise, with the names of its runs."""
    plans = grouped(
        ((r.certified_by, r.noise), r.name) for r in results if r.certified_by and r.noise
    )
    found = []
    for (plan, noise), runs in plans.items():
        with suppress(
            InvalidInput
        ):  # nothing is known about a plan that bounds other classes in its own way
            found.append({"plan": plan, "runs": runs, "found": exact_coverage(plan, noise)})
    return found


def dataset_of(
    manifests: Sequence[Manifest | None], given: Dataset | None = None
) -> Dataset | None:
    """The given data set, or the one that all runs were made on, if they agree and it can be loaded by its name.

    Published logs do not name theirs, so they are not asked. A given data set that no run was made on is refused.
    """
    made_on = {(m.data, m.data_hash, m.in_memory) for m in manifests if m is not None}
    if given is not None:
        if None not in manifests and given.fingerprint not in {hash for _, hash, _ in made_on}:
            raise InvalidInput(
                f"{given.name} is not the data that the runs were made on: leave it out, or give theirs"
            )
        return given
    if len(made_on) != 1:
        return None
    [(name, fingerprint, in_memory)] = made_on
    if in_memory:
        return None
    from smoothcert.data import load_dataset

    try:
        found = load_dataset(name)
    except SmoothcertError:
        return None
    return found if found.fingerprint == fingerprint else None


@lru_cache(maxsize=1)
def _vega_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    from vl_convert import javascript_bundle

    return javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

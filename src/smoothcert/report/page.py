"""The page: numbers from `Results`, a Jinja template that escapes them, Vega for the charts, all in one file.

The page may not reach for anything: its content security policy forbids every request and every script but its own
two, which are named by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smoothcert._files import write_whole
from smoothcert._version import __version__
from smoothcert.plans.coverage import Coverage, exact_coverage
from smoothcert.errors import InvalidInput, SmoothcertError
from smoothcert.statistics.metrics import round_down
from smoothcert.noises import Noise
from smoothcert._registry import describe
from smoothcert.plans import Plan
from smoothcert.report.charts import CONFIG, SERIES, charts
from smoothcert.report.thumbnails import thumbnails
from smoothcert.runs.results import Results
from smoothcert.runs.table import compare, duration

if TYPE_CHECKING:
    from smoothcert.datasets import Dataset

ROWS = 50_000
"""Certificates that a page lists, over all runs; larger runs are thinned out evenly."""


@dataclass(frozen=True)
class Guarantee:
    """A plan, the runs that used it, and how often its certificates really fail."""

    plan: Plan
    noise: Noise
    runs: list[str]
    found: Coverage


def write_report(
    results: Sequence[Results],
    out: str | Path,
    *,
    reference: Results | None = None,
    radii: Sequence[float] | None = None,
    dataset: Dataset | None = None,
) -> Path:
    """Write the page about these runs to `out`. Pictures come from `dataset`, by default the one the runs name."""
    page = render(results, reference=reference, radii=radii, dataset=dataset)
    write_whole(out, page.encode())
    return Path(out)


def render(
    results: Sequence[Results],
    *,
    reference: Results | None = None,
    radii: Sequence[float] | None = None,
    dataset: Dataset | None = None,
) -> str:
    """The page as text."""
    from jinja2 import Environment, StrictUndefined

    if not results:
        raise InvalidInput("a report needs at least one run")
    results = _distinct(results)
    table = compare(results, reference=reference, radii=radii)
    dataset = _dataset_of(results) if dataset is None else _checked(dataset, results)
    shown = charts(results)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"down": round_down, "duration": duration, "share": lambda v: f"{v:.1%}"}
    scripts = [_vega(), _text("page.js")]
    return environment.from_string(_text("page.html")).render(
        results=results,
        table=table,
        charts=shown,
        guarantees=_guarantees(results),
        settings={r.name: dict(_settings(r)) for r in results},
        data=_embedded(
            {
                "config": CONFIG,
                "charts": {chart.id: chart.spec for chart in shown},
                "runs": [_certificates(r, ROWS // len(results)) for r in results],
                "classes": list(dataset.class_names or ()) if dataset else [],
                "pictures": thumbnails(dataset, results) if dataset else {},
            }
        ),
        style=_text("page.css"),
        scripts=scripts,
        hashes=" ".join(f"'sha256-{_hash(script)}'" for script in scripts),
        series=range(1, SERIES + 1),
        version=__version__,
    )


def _distinct(results: Sequence[Results]) -> list[Results]:
    """Runs of the same name are told apart by a number."""
    names = [r.name for r in results]
    return [
        replace(r, name=f"{r.name} ({names[: i + 1].count(r.name)})") if names.count(r.name) > 1 else r
        for i, r in enumerate(results)
    ]


def _certificates(results: Results, most: int) -> dict[str, Any]:
    kept = np.unique(np.linspace(0, len(results) - 1, min(len(results), most)).astype(int))
    known = {"samples": np.any(results.samples), "p": np.any(results.counted), "missing": np.any(results.missing)}
    columns = {
        "id": results.id[kept].tolist(),
        "label": results.label[kept].tolist(),
        "prediction": results.prediction[kept].tolist(),
        "radius": [float(round_down(radius, 4)) for radius in results.radius[kept].tolist()],
        "samples": results.samples[kept].tolist(),
        "p": [None if np.isnan(p) else round(p, 5) for p in results.p[kept].tolist()],
        "missing": results.missing[kept].tolist(),
    }
    return {
        "name": results.name,
        "inputs": len(results),
        "columns": {name: column for name, column in columns.items() if known.get(name, True)},
    }


def _guarantees(results: Sequence[Results]) -> list[Guarantee]:
    """The exact failure probability of each plan in use."""
    used: dict[tuple[Plan, Noise], list[str]] = {}
    for r in results:
        if (plan := r.certified_by) is not None and r.noise is not None:
            used.setdefault((plan, r.noise), []).append(r.name)
    return [Guarantee(plan, noise, runs, exact_coverage(plan, noise)) for (plan, noise), runs in used.items()]


def _settings(results: Results) -> Iterator[tuple[str, Any]]:
    """Noise, plan and manifest as flat pairs, nested names joined by dots; not what only a program reads."""
    for title, part in (("noise", results.noise), ("plan", results.plan)):
        if part is not None:
            yield from _flat(title, describe(part))
    if results.manifest is not None:
        hidden = {"answers", "noise", "plan"}
        yield from _flat("", {k: v for k, v in results.manifest.plain().items() if k not in hidden})


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping):
            yield from _flat(name, value)
        else:
            yield name, value


def _dataset_of(results: Sequence[Results]) -> Dataset | None:
    """The data set that all runs (logs do not tell) were made on, if they agree and its name is enough to load it."""
    named = {(r.manifest.data, r.manifest.data_hash) for r in results if r.manifest is not None}
    if len(named) != 1:
        return None
    [(name, fingerprint)] = named
    from smoothcert.datasets import load_dataset

    try:
        found = load_dataset(name)
    except SmoothcertError:
        return None
    return found if found.fingerprint == fingerprint else None


def _checked(dataset: Dataset, results: Sequence[Results]) -> Dataset:
    """Refuse pictures that no run was made on; a published log does not tell."""
    made_on = {r.manifest.data_hash if r.manifest else None for r in results}
    if not made_on & {dataset.fingerprint, None}:
        raise InvalidInput(
            f"{dataset.name} is not the data that the runs were made on; leave out --data or give theirs"
        )
    return dataset


def _embedded(data: Any) -> str:
    """JSON that no HTML parser can be led out of."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


@lru_cache(maxsize=1)
def _vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    from vl_convert import javascript_bundle

    return javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

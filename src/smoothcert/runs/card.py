"""A model card in Markdown, in the layout of Hugging Face: metadata in YAML, then what was certified and how."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files

from smoothcert.plans.coverage import caveat
from smoothcert.runs.leaderboard import check_reportable
from smoothcert.runs.results import Results
from smoothcert.statistics import metrics


def to_card(results: Results, radii: Sequence[float] | None = None) -> bytes:
    """Fill the template `card.md`. Without radii, certified accuracy is shown at those of a table."""
    from jinja2 import Environment, StrictUndefined

    noise, plan = check_reportable(results)
    m = results.manifest
    radii = radii or results.decided_radii or metrics.default_radii(float(results.radius.max()))
    band = results.certified_accuracy_band(radii)
    settings = {
        "inputs": f"{len(results):,}",
        "noise": noise,
        "plan": plan,
        "samples per input": f"{results.average_samples or 0:,.0f}",
    } | (
        {}
        if m is None
        else {name: getattr(m, name) for name in ("values", "dtype", "seed", "weights_hash", "data_hash")}
    )
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    environment.filters |= {"quoted": json.dumps, "down": metrics.round_down}
    template = files(__package__).joinpath("card.md").read_text(encoding="utf-8")
    page = environment.from_string(template).render(
        model=m.classifier if m else results.name,
        data=m.data if m else "unknown",
        noise=noise,
        plan=plan,
        doubt=caveat(plan),
        settings=settings,
        rows=list(zip(radii, results.certified_accuracy(radii).tolist(), *(end.tolist() for end in band), strict=True)),
    )
    return page.encode()

"""Which figures of several runs may not stand beside each other, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from smoothcert.plans.coverage import caveat
from smoothcert.runs.results import Results

_PAGE = "the page 'comparable' of the documentation says which numbers compare"


def not_comparable(runs: Sequence[Results]) -> list[str]:
    """One line about what may not be compared, or none. What a log does not tell is left out.

    Args:
        runs: The runs of a table.
    """
    settings = [_differing(name, runs) for name in _DIFFERENCES]
    differing = [words for words in (_other_inputs(runs), *settings) if words]
    clauses = []
    if differing:
        clauses.append(f"CA and ACR, because the runs differ in {', '.join(differing)}")
    noise = _values(runs, lambda run: run.noise and run.noise.short)
    if len(noise) > 1:
        clauses.append(f"ACR of different noises ({', '.join(noise)})")
    decided = [run.decided_radii is not None for run in runs]
    if any(decided) and len(runs) > 1:
        clauses.append("ACR where radii are only decided")
    return [f"not to be compared: {'; '.join(clauses)}. {_PAGE}"] if clauses else []


def _differing(name: str, runs: Sequence[Results]) -> str:
    """What differs, with its values; empty if nothing does."""
    values = _values(runs, _DIFFERENCES[name])
    return f"{name} ({', '.join(values)})" if len(values) > 1 else ""


def _values(runs: Sequence[Results], value: Callable[[Results], Any]) -> list[str]:
    """The different values of several runs, without unknown ones."""
    values = (value(run) for run in runs)
    return list(dict.fromkeys(str(one) for one in values if one is not None))


def _other_inputs(runs: Sequence[Results]) -> str:
    """That runs have other inputs or labels; empty if they do not."""
    first = runs[0]
    for run in runs:
        if not (np.array_equal(run.id, first.id) and np.array_equal(run.label, first.label)):
            return f"inputs ({', '.join(_values(runs, lambda one: f'{len(one):,}'))})"
    return ""


def _ceiling(run: Results) -> str | None:
    if run.manifest is not None and run.manifest.budget is not None:
        return "a budget"
    plan = run.certified_by
    return None if plan is None or not plan.samples else f"{plan.samples:,}"


def _alpha(run: Results) -> str | None:
    plan = run.certified_by
    if plan is None:
        return None
    return f"{plan.alpha:g}" if caveat(plan) is None else f"{plan.alpha:g}, not proved"


def _bound(run: Results) -> str | None:
    plan = run.certified_by
    return None if plan is None else plan.bound


def _norm(run: Results) -> str | None:
    return None if run.noise is None else run.noise.norm


_DIFFERENCES = {"ceiling": _ceiling, "alpha": _alpha, "bound": _bound, "norm": _norm}
"""What changes what a number means, and how a run tells it."""

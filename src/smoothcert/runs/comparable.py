"""Which figures of several runs may not stand beside each other, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from smoothcert.plans import Plan
from smoothcert.plans.coverage import caveat
from smoothcert.runs.results import Results, question_in_words

_PAGE = "the page 'comparable' of the documentation says which numbers compare"


def not_comparable(runs: Sequence[Results]) -> list[str]:
    """One line about what may not be compared, or none. What a log does not tell is left out.

    Args:
        runs: The runs of a table.
    """
    noises = [run.noise for run in runs if run.noise is not None]
    planned = [(run.certified_by, run) for run in runs if run.certified_by is not None]
    settings = [_differing(name, [of(*one) for one in planned]) for name, of in _OF_PLANS.items()]
    settings.append(_differing("norm", [noise.norm for noise in noises]))
    inputs = "the question" if _other_questions(runs) else _other_inputs(runs)
    differing = [words for words in (inputs, *settings) if words]
    clauses = []
    if differing:
        clauses.append(f"CA and ACR, because the runs differ in {', '.join(differing)}")
    names = _different([noise.short for noise in noises])
    if len(names) > 1:
        clauses.append(f"ACR of different noises ({', '.join(names)})")
    decided = [run.decided_radii is not None for run in runs]
    if any(decided) and len(runs) > 1:
        clauses.append("ACR where radii are only decided")
    return [f"not to be compared: {'; '.join(clauses)}. {_PAGE}"] if clauses else []


def _differing(name: str, values: Sequence[str | None]) -> str:
    """What differs, with its values; empty if nothing does."""
    different = _different(values)
    return f"{name} ({', '.join(different)})" if len(different) > 1 else ""


def _different(values: Sequence[str | None]) -> list[str]:
    """Each value once, without unknown ones."""
    return list(dict.fromkeys(filter(None, values)))


def _other_questions(runs: Sequence[Results]) -> bool:
    """Whether the claims of some runs are about other groups or places than those of others."""
    return len({question_in_words(run) for run in runs}) > 1


def _other_inputs(runs: Sequence[Results]) -> str:
    """That runs have other inputs or labels; empty if they do not."""
    first = runs[0]
    for run in runs:
        if not (np.array_equal(run.id, first.id) and np.array_equal(run.label, first.label)):
            return f"inputs ({', '.join(_different([f'{len(one):,}' for one in runs]))})"
    return ""


def _ceiling(plan: Plan, run: Results) -> str | None:
    if run.manifest is not None and run.manifest.budget is not None:
        return "a budget"
    return f"{plan.samples:,}" if plan.samples else None


def _alpha(plan: Plan, run: Results) -> str:
    return f"{plan.alpha:g}" if caveat(plan) is None else f"{plan.alpha:g}, not proved"


_OF_PLANS: dict[str, Callable[[Plan, Results], str | None]] = {
    "ceiling": _ceiling,
    "alpha": _alpha,
    "bound": lambda plan, run: plan.bound,
}
"""What of a plan changes what a number means, and how a run tells it."""

"""Which figures of several runs may not stand beside each other, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from smoothcert.noises import Noise, Transformed
from smoothcert.plans import Plan
from smoothcert.plans.coverage import caveat
from smoothcert.runs.logs import slack
from smoothcert.runs.results import Results
from smoothcert.runs.summary import question_in_words, same_inputs
from smoothcert.statistics.bounds import lower_bound
from smoothcert.statistics.metrics import round_down

_SETTINGS = ("ceiling", "alpha", "bound", "norm")
_PAGE = "the page 'comparable' of the documentation says which numbers compare"


def not_comparable(runs: Sequence[Results]) -> list[str]:
    """One line about what may not be compared, or none. What a log does not tell is left out.

    Args:
        runs: The runs of a table.
    """
    settings = [_settings(run) for run in runs]
    differing = [_other_inputs(runs)]
    differing += [_differing(name, [one.get(name) for one in settings]) for name in _SETTINGS]
    differing.append(_other_logs(runs))
    listed = ", ".join(filter(None, differing))
    noises = [run.noise.short for run in runs if run.noise is not None]
    clauses = [
        f"CA and ACR, because the runs differ in {listed}" if listed else "",
        _differing("ACR of different noises", noises),
    ]
    if len(runs) > 1 and any(run.closed for run in runs):
        clauses.append("ACR where radii are only decided")
    said = "; ".join(filter(None, clauses))
    return [f"not to be compared: {said}. {_PAGE}"] if said else []


def _other_inputs(runs: Sequence[Results]) -> str:
    """That runs have other inputs or labels, or were asked other questions; else empty."""
    if len({question_in_words(run) for run in runs}) > 1:
        return "the question"
    if all(same_inputs(run, runs[0]) for run in runs):
        return ""
    return f"inputs ({', '.join(_different(f'{len(run):,}' for run in runs))})"


def _other_logs(runs: Sequence[Results]) -> str:
    """Logs with radii that no run beside them can prove: of other noise, samples or alpha."""
    logs = [run for run in runs if run.plan is None]
    proved = [_most(run.certified_by, run.noise) for run in runs if run.certified_by is not None]
    if not logs or not proved:
        return ""
    others = [log.name for log in logs if (log.radius - slack(log)).max() > max(proved)]
    if not others:
        return ""
    named = ", ".join(others)
    return f"noise, samples or alpha (radii of {named} are above {round_down(max(proved))})"


def _most(plan: Plan, noise: Noise | None) -> float:
    """The largest radius that the samples of a plan can prove with the votes of the class alone."""
    if noise is None or isinstance(noise, Transformed) or not plan.samples or not plan.alpha:
        return inf
    return float(noise.radius(lower_bound(plan.samples, plan.samples, alpha=plan.alpha)))


def _settings(run: Results) -> dict[str, str]:
    """What changes the meaning of the figures of a run, as far as it is known."""
    settings = {}
    plan = run.certified_by
    if plan is not None:
        settings = {"ceiling": f"{plan.samples:,}", "alpha": f"{plan.alpha:g}", "bound": plan.bound}
        if run.budget is not None:
            settings["ceiling"] = "a budget"
        elif not plan.samples:
            del settings["ceiling"]
        if caveat(plan) is not None:
            settings["alpha"] += ", not proved"
    if run.noise is not None:
        settings["norm"] = run.noise.norm
    return settings


def _differing(name: str, values: Iterable[str | None]) -> str:
    """What differs, with its values; empty if nothing does."""
    different = _different(values)
    return f"{name} ({', '.join(different)})" if len(different) > 1 else ""


def _different(values: Iterable[str | None]) -> list[str]:
    """Each value once, without unknown ones."""
    return list(dict.fromkeys(filter(None, values)))

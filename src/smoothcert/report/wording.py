"""What the page and the charts say about runs, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothcert.runs.results import Results

Common = TypeVar("Common")


def outcomes(results: Results) -> NDArray[np.str_]:
    """What became of each input, as one of `OUTCOMES`.

    With known labels, an input without a certificate was not certified for its label. Nobody knows whether it is wrong.
    """
    conditions = [results.abstained, results.correct, results.wrong]
    return np.select(conditions, [uncertified(results), "correct", "wrong"], "no label")


def uncertified(results: Results) -> str:
    """The word for an input without a certificate: "abstained", or "not certified" where labels were known."""
    return "not certified" if known_labels(results) else "abstained"


def known_labels(results: Results) -> bool:
    """Whether the class was the label, so that nobody knows whether an input without a certificate is wrong."""
    return results.certified_by is not None and results.certified_by.known_labels


def norms(results: Sequence[Results]) -> list[str]:
    """The norms in which these runs measure radii, each once. Published logs do not tell theirs."""
    return list(dict.fromkeys(r.noise.norm for r in results if r.noise is not None))


def promise(results: Sequence[Results]) -> str:
    """Which changes a radius r speaks of, in words that follow "no".

    Runs whose radii speak of different changes are named, and so are runs beside published logs.
    """
    runs = grouped((r.noise.certified_change("r"), r.name) for r in results if r.noise is not None)
    if not runs:
        return "change of the input that is smaller than r, in the norm of the noise,"
    if len(runs) == 1 and all(r.noise is not None for r in results):
        return next(iter(runs))
    return " and no ".join(f"{change} ({', '.join(names)})" for change, names in runs.items())


def units(results: Sequence[Results]) -> str:
    """The inputs that radii are for, in words that follow "for"; runs with other inputs are named."""
    runs = grouped((_inputs(r), r.name) for r in results)
    if len(runs) == 1:
        return next(iter(runs))
    return " and for ".join(f"{known} ({', '.join(names)})" for known, names in runs.items())


def _inputs(results: Results) -> str:
    values = None if results.manifest is None else results.manifest.values
    if results.in_unit_interval:
        return "inputs in [0, 1]"
    return (
        "inputs with values that are not recorded"
        if values is None
        else "inputs with values in [{:g}, {:g}]".format(*values)
    )


def grouped(named: Iterable[tuple[Common, str]]) -> dict[Common, list[str]]:
    """The names of runs by what they have in common."""
    found: dict[Common, list[str]] = {}
    for common, name in named:
        found.setdefault(common, []).append(name)
    return found


def acr_note(results: Sequence[Results]) -> str:
    """A sentence about runs that decide chosen radii; empty if there are none."""
    return asked("ACR counts only the radii that were asked for", results)


def in_norm(results: Sequence[Results]) -> str:
    """The norm of the radii, to follow the title of an axis; empty where it is unknown."""
    known = norms(results)
    if not known:
        return ""
    if len(known) > 1:
        return f" ({' or '.join(known)}, by run)"
    return f" ({known[0]})" if all(r.noise is not None for r in results) else f" ({known[0]} where known)"


def different_norms(results: Sequence[Results]) -> str:
    """A warning about runs with different norms; empty if they agree."""
    known = norms(results)
    if len(known) < 2:
        return ""
    runs = ", ".join(f"{r.name}: {r.noise.norm}" for r in results if r.noise is not None)
    return f"The runs measure radii in different norms, which cannot be compared ({runs})."


def asked(text: str, results: Sequence[Results]) -> str:
    """A sentence about the runs that decide chosen radii, with their names unless all do; empty if none does."""
    names = [r.name for r in results if r.decided_radii is not None]
    if not names:
        return ""
    return f"{text}." if len(names) == len(results) else f"{text} ({', '.join(names)})."

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
    return "not certified" if results.known_labels else "abstained"


def norms(results: Sequence[Results]) -> list[str]:
    """The norms in which these runs measure radii, each once. Published logs do not tell theirs."""
    return list(dict.fromkeys(r.noise.norm for r in results if r.noise is not None))


def promise(results: Sequence[Results]) -> str:
    """Which changes a radius r speaks of, in words that follow "no". Runs that differ in that are named."""
    unknown = "change of the input that is smaller than r, in the norm of the noise,"
    changes = grouped(
        (r.noise.certified_change("r") if r.noise else unknown, r.name) for r in results
    )
    return _with_names(changes, " and no ")


def units(results: Sequence[Results]) -> str:
    """The inputs that radii are for, in words that follow "for". Runs that differ in that are named."""
    return _with_names(grouped((_inputs(r), r.name) for r in results), " and for ")


def _inputs(results: Results) -> str:
    if results.in_unit_interval:
        return "inputs in [0, 1]"
    return f"inputs with values {f'in {results.other_range}' if results.other_range else 'that are not recorded'}"


def grouped(named: Iterable[tuple[Common, str]]) -> dict[Common, list[str]]:
    """The names of runs by what they have in common."""
    found: dict[Common, list[str]] = {}
    for common, name in named:
        found.setdefault(common, []).append(name)
    return found


def _with_names(runs: dict[str, list[str]], between: str) -> str:
    """What is said about runs; with their names if it differs."""
    if len(runs) < 2:
        return "".join(runs)
    return between.join(f"{words} ({', '.join(names)})" for words, names in runs.items())


def acr_note(results: Sequence[Results]) -> str:
    """A sentence about runs that decide chosen radii; empty if there are none."""
    return asked("ACR counts only the radii that were asked for", results)


def in_norm(results: Sequence[Results]) -> str:
    """The norms of the radii in brackets, to follow a word; empty where they are unknown."""
    known, unknown = norms(results), any(r.noise is None for r in results)
    return f" ({' or '.join(known)}{' where known' if unknown else ''})" if known else ""


def different_norms(results: Sequence[Results]) -> str:
    """A warning about runs with different norms; empty if they agree."""
    return (
        "The runs measure radii in different norms, which cannot be compared."
        if len(norms(results)) > 1
        else ""
    )


def asked(text: str, results: Sequence[Results]) -> str:
    """A sentence about the runs that decide chosen radii, with their names unless all do; empty if none does."""
    return _about([r for r in results if r.decided_radii is not None], text, results)


def stopped(results: Sequence[Results]) -> str:
    """What is wrong with the shares of votes of runs that stopped early; empty if none did."""
    found = dict.fromkeys(r.bias_of_p for r in results if r.bias_of_p)
    return " ".join(
        _about([r for r in results if r.bias_of_p == bias], f"Sampling {bias}", results)
        for bias in found
    )


def _about(some: Sequence[Results], text: str, results: Sequence[Results]) -> str:
    """A sentence about some of the results, with their names unless it is about all."""
    if not some:
        return ""
    return (
        f"{text}." if len(some) == len(results) else f"{text} ({', '.join(r.name for r in some)})."
    )


def class_name(number: int, names: Sequence[str] | None) -> str:
    """The name of a class, or its number if it has no name."""
    return names[number] if names and 0 <= number < len(names) else f"class {number}"

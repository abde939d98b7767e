"""What the page and the charts say about runs, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from smoothcert.runs.results import Results
from smoothcert.runs.words import bias_of_p, grouped, norm_in_brackets, uncertified


def sentences(*parts: str) -> str:
    """These sentences, without empty ones."""
    return " ".join(filter(None, parts))


def when(condition: bool, sentence: str) -> str:
    """The sentence where it applies, otherwise an empty one."""
    return sentence if condition else ""


def outcomes(run: Results) -> NDArray[np.str_]:
    """What became of each input, as one of `OUTCOMES`.

    With known labels, an input without a certificate was not certified for its label. Nobody knows
    whether it is wrong.
    """
    conditions = [run.abstained, run.correct, run.wrong]
    return np.select(conditions, [uncertified(run), "correct", "wrong"], "no label")


def norms(runs: Sequence[Results]) -> list[str]:
    """The norms in which these runs measure radii, each once. Published logs have none."""
    return list(dict.fromkeys(norm_in_brackets(run.noise) for run in runs if run.noise is not None))


def promise(runs: Sequence[Results]) -> str:
    """The changes that a radius r is about, in words after "no"; with names if runs differ."""
    return _about_each(runs, _change, between=" and no ")


def _change(run: Results) -> str:
    if run.noise is None:
        return "change of the input that is smaller than r, in the norm of the noise,"
    return run.noise.certified_change("r")


def units(runs: Sequence[Results]) -> str:
    """The inputs that radii are for, in words that follow "for"; with names if runs differ."""
    return _about_each(runs, _inputs, between=" and for ")


def _inputs(run: Results) -> str:
    if run.in_unit_interval:
        return "inputs in [0, 1]"
    if run.other_range:
        return f"inputs with values in {run.other_range}"
    return "inputs with values that are not recorded"


def _about_each(runs: Sequence[Results], words: Callable[[Results], str], *, between: str) -> str:
    """What is said about runs; with their names if it differs."""
    names = grouped((words(run), run.name) for run in runs)
    if len(names) < 2:
        return "".join(names)
    return between.join(f"{said} ({', '.join(of)})" for said, of in names.items())


def acr_note(runs: Sequence[Results]) -> str:
    """A sentence about runs that decide chosen radii; empty if there are none."""
    return on_decided_radii("ACR counts only the radii that were asked for", runs)


def in_norm(runs: Sequence[Results]) -> str:
    """The norms of the radii in brackets, to follow a word; empty where they are unknown."""
    named = " or ".join(norms(runs))
    if not named:
        return ""
    if any(run.noise is None for run in runs):
        named += " where known"
    return f" ({named})"


def different_norms(runs: Sequence[Results]) -> str:
    """A warning about runs with different norms; empty if they agree."""
    warning = "The runs measure radii in different norms, which cannot be compared."
    return when(len(norms(runs)) > 1, warning)


def on_decided_radii(text: str, runs: Sequence[Results]) -> str:
    """A sentence about the runs that decide chosen radii; empty if none does."""
    return _about([run.name for run in runs if run.closed], text, runs)


def stopped(runs: Sequence[Results]) -> str:
    """How the shares of votes of runs that stopped early are biased; empty if none did."""
    biases = grouped((bias_of_p(run), run.name) for run in runs if bias_of_p(run))
    return sentences(*(_about(names, f"Sampling {bias}", runs) for bias, names in biases.items()))


def _about(names: Sequence[str], text: str, runs: Sequence[Results]) -> str:
    """A sentence about some of the runs, with their names unless it is about all."""
    if not names:
        return ""
    if len(names) == len(runs):
        return f"{text}."
    return f"{text} ({', '.join(names)})."


def class_name(number: int, names: Sequence[str] | None) -> str:
    """The name of a class, or its number if it has no name."""
    if names and 0 <= number < len(names):
        return names[number]
    return f"class {number}"

"""The rows and columns of a table of runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from smoothcert.plans.coverage import caveat
from smoothcert.runs.attacks import Attacks
from smoothcert.runs.results import Results
from smoothcert.runs.summary import certified_radii, p_reached_by, question_in_words
from smoothcert.runs.words import duration
from smoothcert.statistics import metrics


@dataclass(frozen=True, eq=False)
class Row:
    """One run. Unknown values are None.

    Args:
        run: The results.
        certified_accuracy: Certified accuracy by radius.
        mad: The largest decline of a radius.
        ceiling: Samples of the fixed run that `mad` is measured against.
        attacks: What attacks on the run achieved.
    """

    run: Results
    certified_accuracy: dict[float, float | None]
    mad: float | None
    ceiling: int | None
    attacks: Attacks | None

    @property
    def rules(self) -> dict[str, Any]:
        """What runs must have in common to be compared, beside their inputs."""
        plan = self.run.plan
        return {
            "noise": self.run.noise,
            "values": self.run.other_range,
            "alpha": plan and plan.alpha,
            "alpha_proved": plan and caveat(plan) is None,
            "bound": plan and plan.bound,
            "question": question_in_words(self.run),
        }

    @cached_property
    def values(self) -> dict[str, Any]:
        """The row as a dictionary for JSON."""
        run = self.run
        radii = certified_radii(run) or dict.fromkeys(_FIGURES)
        return {
            "name": run.name,
            "method": self._method,
            **self.rules,
            "noise": run.noise and str(run.noise),
            "dtype": run.manifest and (run.manifest.dtype or None),
            "inputs": len(run),
            "asked": run.asked,
            "unlabelled": run.unlabelled,
            "left_out": run.left_out,
            "average_samples": run.average_samples,
            "acr": run.acr if run.labelled else None,
            "acr_counts_only_decided_radii": run.closed,
            "abstained": float(run.abstained.mean()),
            "known_labels": run.known_labels,
            "seconds": run.total_seconds,
            "mad": self.mad,
            **{f"{name}_radius": value for name, value in radii.items()},
            **{f"p_reached_by_{share}": p_reached_by(run, p) for share, p in _SHARES.items()},
            "certified_accuracy": {f"{r:g}": s for r, s in self.certified_accuracy.items()},
            "attacks": self.attacks and self.attacks.plain(list(self.certified_accuracy)),
        }

    @property
    def _method(self) -> str | None:
        """The plan in a few words; None if it is not known."""
        if self.run.plan is None:
            return None
        parts = [str(self.run.plan)]
        budget = self.run.budget
        if budget is not None:
            if budget["samples"] is None:
                size = f"{budget['minutes']:g} minutes"
            else:
                size = f"{budget['samples']:,} samples"
            parts = [str(self.run.requested_plan), f"budget of {size}"]
        if not self.rules["alpha_proved"]:
            parts.append("alpha not proved")
        return ", ".join(parts)


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        title: Its title.
        value: The key of its values, or a function: a number, a text that is not compared with
            others, or None.
        shown: The text of a number.
        best: `min` or `max`; None if no value is better than another.
        averaged: For an estimate, what it is the mean of: one value per input.
        only_where_different: Whether to show the column only if its values differ.
        key: What those who choose columns call it; empty if it cannot be chosen.
    """

    title: str
    value: str | Callable[[Row], Any]
    shown: Callable[[Any], str] = str
    best: Callable[..., Row] | None = None
    averaged: Callable[[Results], NDArray[Any]] | None = None
    only_where_different: bool = False
    key: str = ""

    def _value(self, row: Row) -> Any:
        return row.values[self.value] if isinstance(self.value, str) else self.value(row)

    def number(self, row: Row) -> Any:
        """The value of a row, if it can be compared."""
        value = self._value(row)
        return None if isinstance(value, str) else value

    def competes(self, row: Row) -> bool:
        """Whether the value of a row is compared with others. Where less is better, 0 is not."""
        value = self.number(row)
        return bool(value) or (value is not None and self.best is max)

    def text(self, row: Row) -> str:
        """The cell of a row."""
        value = self._value(row)
        if value is None:
            return "-"
        return value if isinstance(value, str) else self.shown(value)


def accuracy_column(radius: float) -> Column:
    def averaged(run: Results) -> NDArray[Any]:
        return run.certified([radius])[:, 0]

    return Column(
        f"CA {radius:g}",
        lambda row: row.certified_accuracy[radius],
        "{:.1%}".format,
        max,
        averaged,
        key="ca",
    )


def attacked_column(radius: float) -> Column:
    """How many answers no attack altered. The certified share and this one enclose the truth."""

    def value(row: Row) -> str | None:
        attacks = row.attacks
        if attacks is None:
            return None
        share = f"{float(attacks.attacked_accuracy(radius)):.1%}"
        return share if len(attacks) == len(row.run) else f"{share} of {len(attacks)}"

    return Column(f"attacked {radius:g}", value, key="attacked")


def _inputs(row: Row) -> str:
    done = len(row.run)
    return str(done) if done == row.run.asked else f"{done}/{row.run.asked}"


def _acr(row: Row) -> float | str | None:
    """The ACR. That of a run which decides radii counts only these, so it is not compared."""
    acr: float | None = row.values["acr"]
    if acr is None or row.run.decided_radii is None:
        return acr
    return f"{metrics.round_down(acr)} (at radii)"


def _of_noise(name: str) -> Callable[[Row], Any]:
    return lambda row: row.run.noise and getattr(row.run.noise, name)


def _without_labels(key: str) -> Callable[[Row], float | None]:
    """A figure of the radii, which only runs without labels show."""
    return lambda row: None if row.run.labelled else row.values[key]


_FIGURES = ("smallest", "median", "mean")
_SHARES = {"75%": 0.75, "50%": 0.5}
FIRST = (
    Column("run", "name", key="run"),
    Column("method", "method", key="method"),
    Column("noise", _of_noise("short"), only_where_different=True, key="noise"),
    Column("radii in", _of_noise("norm"), only_where_different=True, key="norm"),
    Column("of inputs in", "values"),
    Column("question", "question"),
    Column("alpha", "alpha", "{:g}".format, only_where_different=True, key="alpha"),
    Column("number format", "dtype", only_where_different=True, key="format"),
    Column("inputs", _inputs, key="inputs"),
    Column(
        "unlabelled, as wrong",
        lambda row: (row.run.unlabelled or None) if row.run.labelled else None,
    ),
    Column("unreadable, left out", lambda row: row.run.left_out or None),
    Column("avg samples", "average_samples", "{:,.0f}".format, min, key="samples"),
    Column("time", lambda row: row.run.total_seconds or None, duration, min, key="time"),
    Column("MAD", "mad", "{:.3f}".format, min, key="mad"),
    Column("ACR", _acr, metrics.round_down, max, lambda run: run.radius * run.correct, key="acr"),
)
"""The columns before those at radii."""
LAST = (
    Column(
        "abstained",
        lambda row: None if row.run.known_labels else row.values["abstained"],
        "{:.1%}".format,
        key="abstained",
    ),
    Column(
        "not certified",
        lambda row: row.values["abstained"] if row.run.known_labels else None,
        "{:.1%}".format,
        key="not-certified",
    ),
    *(
        Column(f"{name} radius", _without_labels(f"{name}_radius"), metrics.round_down, max)
        for name in _FIGURES
    ),
    *(Column(f"p {share}", f"p_reached_by_{share}", metrics.round_down) for share in _SHARES),
)
"""The columns after them."""
_OFFERED = (*FIRST[1:], accuracy_column(0), attacked_column(0), *LAST)
"""Those at radii stand for all of their kind."""
COLUMNS = tuple(column.key for column in _OFFERED if column.key)
"""The keys of columns that can be chosen."""

"""Results: one value per input in every column. Metrics, words, tables and files stand beside."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert._check import NO_CLASS
from smoothcert.errors import InvalidInput, needs, number_of
from smoothcert.noises import Noise
from smoothcert.plans import Certificate, Plan
from smoothcert.plans.follow import unanimous
from smoothcert.plans.groups import Groups
from smoothcert.runs.manifest import BudgetEntry, Manifest
from smoothcert.statistics import metrics
from smoothcert.statistics.bounds import Interval

COLUMNS: dict[str, type[np.int64] | type[np.float64]] = {
    **dict.fromkeys(("id", "label", "prediction"), np.int64),
    "radius": np.float64,
    **dict.fromkeys(("samples", "count", "counted", "missing"), np.int64),
    **dict.fromkeys(("seconds", "lower", "upper"), np.float64),
}

_UNKNOWN = {np.int64: NO_CLASS, np.float64: np.nan}
"""What stands in a column where a certificate has no value."""
_FIRST_SHOWN = ("id", "label", "prediction", "correct")


@dataclass(frozen=True, eq=False, repr=False)
class Results:
    """One value per input in every column, sorted by id.

    Values that a published log does not contain are 0 (samples, count, counted, missing), NaN
    (lower, upper) or None (noise, plan, manifest).

    Args:
        name: Shown in tables and charts.
        id: The number of each input.
        label: Its label; -1 if it is unknown.
        prediction: The certified class; -1 for an abstention.
        radius: The certified radius.
        samples: Every forward pass that was spent, with pilots and abstentions.
        count: Votes for the class among the `counted` samples that the bound rests on.
        counted: Samples that the bound rests on.
        missing: Samples whose output was not finite.
        seconds: How long each input took.
        lower: The proved lower bound on the probability of the class.
        upper: The proved upper bound on the probability of every other class; NaN if the plan has
            none.
        noise: The smoothing noise.
        plan: The plan.
        manifest: What was certified and how.
        claimed: The only radii at which the answer to a question is claimed, where its plan
            measures radii.
        path: The folder or file that they were read from; None if they are in memory.
        kept: The certificates by id, for results in memory.
    """

    name: str
    id: NDArray[np.int64]
    label: NDArray[np.int64]
    prediction: NDArray[np.int64]
    radius: NDArray[np.float64]
    samples: NDArray[np.int64]
    count: NDArray[np.int64]
    counted: NDArray[np.int64]
    missing: NDArray[np.int64]
    seconds: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    noise: Noise | None = None
    plan: Plan | None = None
    manifest: Manifest | None = None
    claimed: tuple[float, ...] | None = None
    path: Path | None = None
    kept: Mapping[int, Certificate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = {name: np.asarray(getattr(self, name), dtype) for name, dtype in COLUMNS.items()}
        if any(column.shape != columns["id"].shape for column in columns.values()):
            raise InvalidInput(
                "unequal-columns",
                "{name}: all columns must have the same length, got {lengths}",
                name=self.name,
                lengths=", ".join(f"{name} {len(column)}" for name, column in columns.items()),
            )
        order = np.argsort(columns["id"], kind="stable")
        for name, column in columns.items():
            object.__setattr__(self, name, column[order])
        repeated = self.id[1:][self.id[1:] == self.id[:-1]].tolist()
        if repeated:
            raise InvalidInput(
                "repeated-input",
                "{name}: input {id} occurs more than once",
                name=self.name,
                id=repeated[0],
            )
        self._check_numbers("radius", self.radius)
        self._check_numbers("seconds", self.seconds)

    def _check_numbers(self, column: str, values: NDArray[np.float64]) -> None:
        wrong = ~(np.isfinite(values) & (values >= 0))
        if np.any(wrong):
            raise InvalidInput(
                "impossible-value",
                "{name}: {column} of input {id} must be a finite number of at least 0, got {value}",
                name=self.name,
                column=column,
                id=int(self.id[wrong][0]),
                value=float(values[wrong][0]),
            )

    @classmethod
    def from_certificates(
        cls, name: str, certificates: Iterable[Certificate], *, manifest: Manifest | None = None
    ) -> Self:
        """Results from certificates. Noise and plan are those of the first one.

        Args:
            name: Shown in tables and charts.
            certificates: The certificates.
            manifest: What was certified and how.
        """
        certificates = list(certificates)
        columns: dict[str, Any] = columns_of(map(numbers_of, certificates))
        return cls(
            name=name,
            **columns,
            noise=certificates[0].noise if certificates else None,
            plan=certificates[0].plan if certificates else None,
            manifest=manifest,
            kept={c.id: c for c in certificates},
        )

    def only(self, chosen: NDArray[np.bool_]) -> Self:
        """The results of some of the inputs.

        Args:
            chosen: Whether to keep each input.
        """
        columns: dict[str, Any] = {name: column[chosen] for name, column in self.columns.items()}
        return replace(self, **columns)

    def without_copies(self) -> Self:
        """The results with every input once: copies of an input say nothing more about others."""
        if self.manifest is None or not self.manifest.copies:
            return self
        copies = self.manifest.copies
        ids = tuple(id for id in self.manifest.ids if id not in set(copies))
        distinct = self.only(~np.isin(self.id, copies))
        return replace(distinct, manifest=replace(self.manifest, ids=ids))

    def __len__(self) -> int:
        return len(self.id)

    def certificates(self) -> Iterator[Certificate]:
        """The certificates with their votes, in the order of their ids.

        Raises:
            InvalidInput: These are the results of an export or a published log without votes.
        """
        if len(self.kept) < len(self):
            raise InvalidInput(
                "no-votes",
                "{name} has no certificates with votes: open the folder of the run",
                name=self.name,
            )
        return (self.kept[id] for id in self.id.tolist())

    def __iter__(self) -> Iterator[Certificate]:
        """The certificates in the order of their ids."""
        return self.certificates()

    def __getitem__(self, id: int) -> Certificate:
        """The certificate of one input.

        Args:
            id: The number of the input in its data set.
        """
        if id not in self or id not in self.kept:
            raise KeyError(f"{self.name} has no certificate of input {id}")
        return self.kept[id]

    def __contains__(self, id: object) -> bool:
        """Whether there is a certificate for an input, or whether this certificate is among them.

        Args:
            id: The number of the input, or a certificate.
        """
        if isinstance(id, Certificate):
            return id.id in self and self[id.id] == id
        is_number = isinstance(id, (int, np.integer)) and not isinstance(id, bool)
        return is_number and bool(np.any(self.id == id))

    def __repr__(self) -> str:
        settings = [str(part) for part in (self.plan, self.noise) if part is not None]
        acr = metrics.round_down(self.acr) if self.labelled else "-"
        about = ", ".join([number_of(len(self), "input"), *settings, f"ACR {acr}"])
        return f"<{type(self).__name__} {self.name!r}: {about}>"

    def to_pandas(self) -> Any:
        """All columns as a data frame, one row per input. `correct` is empty without a label.

        Raises:
            MissingExtra: pandas is not installed.
        """
        with needs("pandas", what="to_pandas"):
            import pandas as pd
        correct = "boolean" if self.unlabelled else "bool"
        return pd.DataFrame(shown_columns(self)).astype({**COLUMNS, "correct": correct})

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """All columns by name."""
        return {name: getattr(self, name) for name in COLUMNS}

    @property
    def asked(self) -> int:
        """How many inputs should have a certificate. A run that is not finished has fewer."""
        return len(self) if self.manifest is None else len(self.manifest.ids)

    @property
    def left_out(self) -> int:
        """How many inputs were left out because they could not be read."""
        if self.manifest is None:
            return 0
        return len(set(self.manifest.unreadable).difference(self.manifest.ids))

    @property
    def left_out_in_words(self) -> str:
        """How many inputs could not be read, in words; empty if all could."""
        if not self.left_out:
            return ""
        return f"{number_of(self.left_out, 'input')} unreadable and left out"

    @property
    def tried(self) -> int:
        """How many inputs could get a wrong certificate, also unfinished and unreadable ones."""
        return self.asked + self.left_out

    @property
    def complete(self) -> bool:
        """Whether every input has its certificate.

        A run that is continued has them when it is finished.
        """
        if self.manifest is None:
            return True
        goes_on = bool(self.manifest.plan.earlier_plans) and self.manifest.finished is None
        return set(self.id.tolist()) == set(self.manifest.ids) and not goes_on

    @property
    def certified_by(self) -> Plan | None:
        """The plan behind the certificates: `plan`, or the first one of a combined plan."""
        return None if self.plan is None else self.plan.primary

    @property
    def requested_plan(self) -> Plan | None:
        """The plan that was asked for. A budget may lower the ceiling of `certified_by`."""
        if self.manifest is None or self.budget is None:
            return self.certified_by
        return self.manifest.requested_plan

    @cached_property
    def largest_radius(self) -> float | None:
        """The largest radius that an input can have; None if unknown or infinite.

        It is the largest one that is decided, or that of unanimous votes at the ceiling.
        """
        if self.decided_radii is not None:
            return max(self.decided_radii)
        plan = self.requested_plan
        if plan is None or self.noise is None:
            return None
        radius = unanimous(plan, self.noise).proof().radius
        return radius if radius and radius < math.inf else None

    @property
    def known_labels(self) -> bool:
        """Whether the label was certified instead of a predicted class."""
        return self.certified_by is not None and self.certified_by.known_labels

    @property
    def decided_radii(self) -> tuple[float, ...] | None:
        """The radii that the plan decides; None if it measures the radius."""
        if self.claimed is not None or self.certified_by is None:
            return self.claimed
        return self.certified_by.radii

    @property
    def closed(self) -> bool:
        """Whether a radius of exactly r counts in CA(r), as where radii are decided."""
        return self.decided_radii is not None

    @property
    def budget(self) -> BudgetEntry | None:
        """The budget of the run; None without one."""
        return None if self.manifest is None else self.manifest.budget

    @property
    def groups(self) -> Groups | None:
        """The groups that the predictions stand for; None for classes."""
        return None if self.manifest is None else self.manifest.groups

    @property
    def in_unit_interval(self) -> bool:
        """Whether the values of all inputs are known to lie in [0, 1], the unit of radii then."""
        return self.manifest is not None and is_unit(self.manifest.values)

    @property
    def other_range(self) -> str | None:
        """The range of the inputs, as in "[0, 255]", if it is known and not within [0, 1]."""
        if self.manifest is None or self.manifest.values is None or self.in_unit_interval:
            return None
        return "[{:g}, {:g}]".format(*self.manifest.values)

    @property
    def abstained(self) -> NDArray[np.bool_]:
        """Whether each input has no certificate."""
        return np.asarray(self.prediction == NO_CLASS)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether each input is certified for its label."""
        return np.asarray((self.prediction == self.label) & ~self.abstained)

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Whether each input is certified for another class than its label, if it has one."""
        return np.asarray(~self.correct & ~self.abstained & (self.label != NO_CLASS))

    @property
    def labelled(self) -> bool:
        """Whether any input has a label. Without labels, ACR and CA have no meaning."""
        return self.unlabelled < len(self)

    @property
    def unlabelled(self) -> int:
        """The number of inputs without a label.

        If other inputs have one, these count as not correct in ACR and CA.
        """
        return int(np.sum(self.label == NO_CLASS))

    @property
    def p(self) -> NDArray[np.float64]:
        """The share of votes for the class among the counted samples; NaN if it is unknown.

        Where votes decide when to stop, it is too large or too small on average. The certified
        radius takes this into account.
        """
        return np.where(self.counted > 0, self.count / np.maximum(self.counted, 1), np.nan)

    def share_above(self, p: ArrayLike) -> NDArray[np.float64]:
        """The share of inputs that are correct with a probability of the class above p.

        Unlike ACR and certified accuracy, it hardly depends on the number of samples: it is the
        certified accuracy that unlimited samples would prove at the radius that belongs to p.

        Args:
            p: The probabilities.
        """
        return metrics.certified_accuracy(p_correct(self), np.isfinite(self.p), p)

    @property
    def acr(self) -> float:
        """Average certified radius; NaN without labels."""
        if not self.labelled:
            return math.nan
        return metrics.average_certified_radius(self.radius, self.correct)

    @property
    def acr_band(self) -> Interval | None:
        """The 95% band of the ACR over inputs; None without labels or for fewer than two inputs."""
        if not self.labelled or len(self) < 2:
            return None
        return metrics.acr_band(self.radius, self.correct, largest=self.largest_radius)

    def certified(self, radii: ArrayLike) -> NDArray[np.bool_]:
        """Whether each input (row) is correct and its radius is proved to be above each r (column).

        Args:
            radii: The radii r.
        """
        return metrics.certified(self.radius, self.correct, radii, closed=self.closed)

    def certified_accuracy(self, radii: ArrayLike) -> NDArray[np.float64]:
        """CA(r): the share of inputs that are correct and whose radius is proved to be above r.

        It is NaN without labels.

        Args:
            radii: The radii r.
        """
        shares = metrics.certified_accuracy(self.radius, self.correct, radii, closed=self.closed)
        return shares if self.labelled else np.full_like(shares, math.nan)

    def certified_accuracy_band(self, radii: ArrayLike) -> Interval:
        """The 95% band of each CA(r) over inputs.

        Args:
            radii: The radii r.
        """
        return metrics.certified_accuracy_band(self.radius, self.correct, radii, closed=self.closed)

    @property
    def average_samples(self) -> float | None:
        """Forward passes per input; None if they are unknown."""
        return float(np.mean(self.samples)) if np.any(self.samples) else None

    @property
    def samples_saved(self) -> float | None:
        """The share of forward passes saved, compared with the ceiling of the plan on every input.

        It is None if samples are unknown.
        """
        if self.plan is None or self.average_samples is None:
            return None
        return metrics.samples_saved(self.samples, self.plan.most_samples)

    @property
    def total_seconds(self) -> float:
        """How long all inputs took together."""
        return float(np.sum(self.seconds))


def numbers_of(certificate: Certificate) -> list[Any]:
    """The value of every column for one certificate; None for what it does not have."""
    bounds = certificate.proof
    return [
        getattr(bounds if name in ("lower", "upper") else certificate, name) for name in COLUMNS
    ]


def columns_of(rows: Iterable[Sequence[Any]]) -> dict[str, NDArray[Any]]:
    """The columns of several certificates, from the numbers of each."""
    rows = list(rows)
    columns = {}
    for place, (name, dtype) in enumerate(COLUMNS.items()):
        values = [_UNKNOWN[dtype] if row[place] is None else row[place] for row in rows]
        columns[name] = np.array(values, dtype)
    return columns


def shown_columns(results: Results) -> dict[str, list[Any]]:
    """Every column as Python values, and `correct` after `prediction`. Unknown values are None."""
    columns: dict[str, list[Any]] = {}
    for name, column in results.columns.items():
        columns[name] = [None if value != value else value for value in column.tolist()]
    has_label = (results.label != NO_CLASS).tolist()
    correct = zip(results.correct.tolist(), has_label, strict=True)
    columns["correct"] = [
        is_correct if is_labelled else None for is_correct, is_labelled in correct
    ]
    return {name: columns[name] for name in dict.fromkeys((*_FIRST_SHOWN, *columns))}


def p_correct(results: Results) -> NDArray[np.float64]:
    """`p` where it is about the label, and 0 where another class or none is certified.

    Without any labels, this is `p` itself.
    """
    if results.known_labels or not results.labelled:
        return results.p
    return np.where(results.correct, results.p, 0.0)


def check_finished(results: Results) -> None:
    """Refuse results without certified accuracy: inputs are left, or labels are missing."""
    if not len(results) or len(results) < results.asked:
        raise InvalidInput(
            "not-finished",
            "{name} is not finished ({done:,} of {asked:,} inputs), and those left may be harder: "
            "run certify again to go on",
            name=results.name,
            done=len(results),
            asked=results.asked,
        )
    if not results.labelled:
        raise InvalidInput(
            "no-labels",
            "{name} has no labels, so there is no certified accuracy",
            name=results.name,
        )


def is_unit(values: tuple[float, float] | None) -> bool:
    """Whether a range is known and lies in [0, 1]."""
    return values is not None and values[0] >= 0 and values[1] <= 1

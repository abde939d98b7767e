"""The columns of a run, an export or a published log, and the figures computed from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert._check import NO_CLASS
from smoothcert.errors import InvalidInput, needs, number_of
from smoothcert.noises import Noise
from smoothcert.plans import Certificate, Plan, Price
from smoothcert.runs.manifest import Manifest
from smoothcert.statistics import metrics
from smoothcert.statistics.bounds import Interval

COLUMNS: dict[str, type[np.int64] | type[np.float64]] = {
    **dict.fromkeys(("id", "label", "prediction"), np.int64),
    "radius": np.float64,
    **dict.fromkeys(("samples", "count", "counted", "missing"), np.int64),
    **dict.fromkeys(("seconds", "lower", "upper"), np.float64),
}


@dataclass(frozen=True, eq=False, repr=False)
class Results:
    """One value per input in every column, sorted by id.

    Values that a published log does not contain are 0 (samples, count, counted, missing), NaN (lower, upper) or None
    (noise, plan, manifest).

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
        upper: The proved upper bound on the probability of every other class; NaN if the plan has none.
        noise: The smoothing noise.
        plan: The plan.
        manifest: What was certified and how.
        tested: The radius of a published log that only says whether it was proved.
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
    tested: float | None = None
    path: Path | None = None
    kept: Mapping[int, Certificate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = {name: np.asarray(getattr(self, name), dtype) for name, dtype in COLUMNS.items()}
        if any(column.shape != columns["id"].shape for column in columns.values()):
            lengths = ", ".join(f"{name} {len(column)}" for name, column in columns.items())
            raise InvalidInput(f"{self.name}: all columns must have the same length, got {lengths}")
        order = np.argsort(columns["id"], kind="stable")
        for name, column in columns.items():
            object.__setattr__(self, name, column[order])
        if twice := self.id[1:][self.id[1:] == self.id[:-1]].tolist():
            raise InvalidInput(f"{self.name}: input {twice[0]} occurs more than once")
        for name in ("radius", "seconds"):
            column = getattr(self, name)
            sound = np.isfinite(column) & (column >= 0)
            if not np.all(sound):
                i = int(np.argmin(sound))
                raise InvalidInput(
                    f"{self.name}: {name} of input {self.id[i]} must be a finite number of at least 0, got {column[i]}"
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
        rows = list(certificates)
        found = list(map(numbers_of, rows))
        none = {np.int64: NO_CLASS, np.float64: np.nan}
        columns: dict[str, Any] = {
            name: np.array([none[dtype] if row[i] is None else row[i] for row in found], dtype)
            for i, (name, dtype) in enumerate(COLUMNS.items())
        }
        return cls(
            name=name,
            **columns,
            noise=rows[0].noise if rows else None,
            plan=rows[0].plan if rows else None,
            manifest=manifest,
            kept={c.id: c for c in rows},
        )

    def only(self, kept: NDArray[np.bool_]) -> Self:
        """The results of some of the inputs.

        Args:
            kept: Whether to keep each input.
        """
        columns: dict[str, Any] = {name: column[kept] for name, column in self.columns.items()}
        return replace(self, **columns)

    def __len__(self) -> int:
        return len(self.id)

    @property
    def asked(self) -> int:
        """How many inputs should have a certificate. A run that is not finished has fewer."""
        return len(self) if self.manifest is None else len(self.manifest.ids)

    @property
    def left_out(self) -> int:
        """How many inputs were left out because they could not be read."""
        return (
            0
            if self.manifest is None
            else len(set(self.manifest.unreadable).difference(self.manifest.ids))
        )

    @property
    def complete(self) -> bool:
        """Whether every input has its certificate."""
        return len(self) >= self.asked

    def certificates(self) -> Iterator[Certificate]:
        """The certificates with their votes, in the order of their ids.

        Raises:
            InvalidInput: These are the results of an export or a published log, which have no votes.
        """
        if len(self.kept) < len(self):
            raise InvalidInput(
                f"{self.name} has no certificates with votes: open the folder of the run"
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
        if isinstance(id, slice):
            raise InvalidInput(f"give the id of one input, as in run[0], got {id}")
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
        return (
            not isinstance(id, bool)
            and isinstance(id, (int, np.integer))
            and bool(np.any(self.id == id))
        )

    def __repr__(self) -> str:
        known = [str(part) for part in (self.plan, self.noise) if part is not None]
        acr = metrics.round_down(self.acr) if self.labelled else "-"
        about = ", ".join([number_of(len(self), "input"), *known, f"ACR {acr}"])
        return f"<{type(self).__name__} {self.name!r}: {about}>"

    def _repr_html_(self) -> str:
        """The results in a notebook: the row of a table, or a sentence if there is no certificate yet."""
        from smoothcert.runs.table import table  # that module imports this one

        return (
            table([self])._repr_html_()
            if len(self)
            else f"<p>{escape(self.name)}: no certificates yet</p>"
        )

    def to_pandas(self) -> Any:
        """All columns as a data frame, one row per input. `correct` is empty where the label is unknown.

        Raises:
            MissingExtra: pandas is not installed.
        """
        from smoothcert.runs.formats import shown_columns

        with needs("pandas", what="to_pandas"):
            import pandas as pd
        columns = {
            name: self.columns.get(name, values) for name, values in shown_columns(self).items()
        }
        frame = pd.DataFrame(columns)
        frame["correct"] = frame["correct"].astype("boolean" if self.unlabelled else "bool")
        return frame

    @property
    def certified_by(self) -> Plan | None:
        """The plan behind the certificates: `plan`, or the first one of a combined plan."""
        return None if self.plan is None else self.plan.primary

    @property
    def known_labels(self) -> bool:
        """Whether the label was certified instead of a predicted class."""
        return self.certified_by is not None and self.certified_by.known_labels

    @property
    def in_unit_interval(self) -> bool:
        """Whether the values of all inputs are known to lie in [0, 1], so that this is the unit of radii."""
        return self.manifest is not None and is_unit(self.manifest.values)

    @property
    def other_range(self) -> str | None:
        """The range of the inputs, as in "[0, 255]", if it is known and not within [0, 1]: the unit of radii."""
        values = None if self.manifest is None or self.in_unit_interval else self.manifest.values
        return None if values is None else "[{:g}, {:g}]".format(*values)

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """All columns by name."""
        return {name: getattr(self, name) for name in COLUMNS}

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
        """Whether each input is certified for another class than its label. Without a label, it is not wrong."""
        return np.asarray(~self.correct & ~self.abstained & (self.label != NO_CLASS))

    @property
    def labelled(self) -> bool:
        """Whether any input has a label. Without labels, ACR and CA have no meaning."""
        return self.unlabelled < len(self)

    @property
    def unlabelled(self) -> int:
        """The number of inputs without a label. If other inputs have one, these count as not correct in ACR and CA."""
        return int(np.sum(self.label == NO_CLASS))

    @property
    def p(self) -> NDArray[np.float64]:
        """The share of votes for the class among the counted samples; NaN if it is unknown.

        Where votes decide when to stop, it is too large or too small on average (`bias_of_p`). The certified radius
        takes this into account.
        """
        return np.where(self.counted > 0, self.count / np.maximum(self.counted, 1), np.nan)

    @property
    def bias_of_p(self) -> str | None:
        """Where sampling stopped, and what that does to `p`, in words; None if votes did not decide when to stop."""
        if isinstance(self.certified_by, Price):
            return "stopped where votes were bad, so p is too small on average for inputs with few samples"
        if self.decided_radii is not None:
            return (
                "stopped where votes were clear, so p is too large on average for certified inputs"
            )
        return None

    @property
    def p_correct(self) -> NDArray[np.float64]:
        """`p` where it is the share of votes for the label, and 0 where another class was certified, or none.

        Without any labels, this is `p` itself.
        """
        return (
            self.p
            if self.known_labels or not self.labelled
            else np.where(self.correct, self.p, 0.0)
        )

    def share_above(self, p: ArrayLike) -> NDArray[np.float64]:
        """The share of inputs that are correct with a probability of the class above p.

        Unlike ACR and certified accuracy, it hardly depends on the number of samples: it is the certified accuracy that
        unlimited samples would prove at the radius that belongs to p.

        Args:
            p: The probabilities.
        """
        return metrics.certified_accuracy(self.p_correct, np.isfinite(self.p), p)

    def share_above_band(self, p: ArrayLike) -> Interval:
        """The 95% band of each share over inputs.

        Args:
            p: The probabilities.
        """
        return metrics.certified_accuracy_band(self.p_correct, np.isfinite(self.p), p)

    def p_reached_by(self, share: float) -> float | None:
        """The largest p that this share of all inputs reaches; None if votes are unknown.

        Args:
            share: The share of inputs, as in 0.5 for the median.
        """
        if not np.any(self.counted):
            return None
        return float(np.sort(np.nan_to_num(self.p_correct))[-max(math.ceil(share * len(self)), 1)])

    @property
    def certified_radii(self) -> dict[str, float] | None:
        """The smallest, median and mean radius of the inputs that have a certificate; None if none has one."""
        radii = self.radius[~self.abstained]
        if not len(radii):
            return None
        return {
            "smallest": float(radii.min()),
            "median": float(np.median(radii)),
            "mean": float(radii.mean()),
        }

    @property
    def acr(self) -> float:
        """Average certified radius; NaN without labels."""
        return (
            metrics.average_certified_radius(self.radius, self.correct)
            if self.labelled
            else math.nan
        )

    @property
    def acr_band(self) -> Interval | None:
        """The 95% band of the ACR over inputs; None without labels or for fewer than two inputs."""
        return (
            metrics.acr_band(self.radius, self.correct) if self.labelled and len(self) > 1 else None
        )

    @property
    def decided_radii(self) -> tuple[float, ...] | None:
        """The radii that the plan decides; None if it measures the radius."""
        if self.certified_by is None:
            return None if self.tested is None else (self.tested,)
        return self.certified_by.radii

    def certified_accuracy(self, radii: ArrayLike) -> NDArray[np.float64]:
        """CA(r): the share of inputs that are correct and whose radius is proved to be above r; NaN without labels.

        Args:
            radii: The radii r.
        """
        shares = metrics.certified_accuracy(
            self.radius, self.correct, radii, closed=self.decided_radii is not None
        )
        return shares if self.labelled else np.full_like(shares, math.nan)

    def certified(self, radii: ArrayLike) -> NDArray[np.bool_]:
        """Whether each input (row) is correct and its radius is proved to be above each r (column).

        Args:
            radii: The radii r.
        """
        return metrics.certified(
            self.radius, self.correct, radii, closed=self.decided_radii is not None
        )

    def certified_accuracy_band(self, radii: ArrayLike) -> Interval:
        """The 95% band of each CA(r) over inputs.

        Args:
            radii: The radii r.
        """
        closed = self.decided_radii is not None
        return metrics.certified_accuracy_band(self.radius, self.correct, radii, closed=closed)

    @property
    def average_samples(self) -> float | None:
        """Forward passes per input; None if they are unknown."""
        return float(np.mean(self.samples)) if np.any(self.samples) else None

    @property
    def samples_saved(self) -> float | None:
        """The share of forward passes saved, compared with the ceiling of the plan on every input; None if unknown."""
        if self.plan is None or self.average_samples is None:
            return None
        return metrics.samples_saved(self.samples, self.plan.most_samples)

    @property
    def total_seconds(self) -> float:
        """How long all inputs took together."""
        return float(np.sum(self.seconds))

    def not_comparable(self, reference: Results) -> str | None:
        """Why the radii cannot be compared with those of `reference` one by one; None if they can.

        Args:
            reference: Results at the full ceiling.
        """
        for run in (self, reference):
            if run.certified_by is None:
                return f"the plan of {run.name} is unknown"
        if self.noise != reference.noise:
            return f"the noise of {self.name} is {self.noise}, not {reference.noise}"
        mine, theirs = self.manifest, reference.manifest
        if mine is None or theirs is None or not mine.same_draws(theirs):
            return f"{self.name} has another model, data, seed or number format, and so other votes"
        if not np.all(np.isin(self.id, reference.id)):
            return f"{self.name} has inputs that {reference.name} has not"
        bases = [
            run.certified_by.basis() for run in (self, reference) if run.certified_by is not None
        ]
        if None in bases:
            one = (self, reference)[bases.index(None)]
            return f"the radii of {one.name} ({one.certified_by}) cannot be compared with those of other plans"
        if bases[0] != bases[1]:
            return f"the plans of {self.name} and {reference.name} differ in pilot, alpha, bound or known labels"
        return None

    def decline(self, reference: Results) -> float | None:
        """MAD, the largest decline of a radius against `reference`; None if the two cannot be compared.

        They can be compared if they have the same draws, if `reference` has every input of these results, and if both
        plans have the same basis, so that both bounds count from the same sample on.

        Args:
            reference: Results at the full ceiling.
        """
        if self.not_comparable(reference) is not None:
            return None
        return metrics.largest_decline(
            self.radius, reference.radius[np.searchsorted(reference.id, self.id)]
        )


def numbers_of(certificate: Certificate) -> list[Any]:
    """The value of every column for one certificate; None for what it does not have."""
    return [
        getattr(certificate.proof if c in ("lower", "upper") else certificate, c) for c in COLUMNS
    ]


def check_finished(results: Results) -> None:
    """Refuse results whose certified accuracy is not known: because of inputs that are left, or without labels."""
    if not len(results) or len(results) < results.asked:
        raise InvalidInput(
            f"{results.name} is not finished ({len(results):,} of {results.asked:,} inputs), and those left may be "
            "harder: run certify again to go on"
        )
    if not results.labelled:
        raise InvalidInput(f"{results.name} has no labels, so there is no certified accuracy")


def usual_radii(results: Sequence[Results]) -> list[float]:
    """The radii to show certified accuracy at: those that the plans decide, or steps up to the largest radius."""
    decided = {radius for r in results for radius in r.decided_radii or ()}
    return sorted(decided) or metrics.default_radii(
        max(float(r.radius.max(initial=0.0)) for r in results)
    )


def is_unit(values: tuple[float, float] | None) -> bool:
    """Whether a range is known and lies in [0, 1]."""
    return values is not None and values[0] >= 0 and values[1] <= 1

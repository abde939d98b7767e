"""Two runs on the same inputs: is B as robust as A?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothcert import _check
from smoothcert._text_table import TextTable
from smoothcert.errors import InvalidInput, number_of
from smoothcert.runs.comparison_rules import check_comparable, notes_on, refusal
from smoothcert.runs.formats import Source, distinct_names, read_results
from smoothcert.runs.results import Results
from smoothcert.runs.summary import usual_radii
from smoothcert.runs.words import guaranteed
from smoothcert.statistics import comparison as paired
from smoothcert.statistics import metrics
from smoothcert.statistics.bounds import Interval

_CURVE_POINTS = 151

Verdict = Literal["better", "not worse", "worse", "undecided"]


@dataclass(frozen=True)
class Difference:
    """Certified accuracy (CA) of A and B at one radius. Shares and differences are from -1 to 1.

    Args:
        a: The name of A.
        b: The name of B.
        radius: The radius.
        inputs: The number of inputs.
        both: How many of them both certify.
        only_a: The inputs that only A certifies.
        only_b: The inputs that only B certifies.
        margin: How much less B may certify and still count as not worse.
        confidence: The confidence of the intervals at all radii together.
        interval: CA of B minus CA of A lies in here.
        detectable: The smallest difference that so many inputs usually show; None if inputs were
            added until it showed.
    """

    a: str
    b: str
    radius: float
    inputs: int
    both: int
    only_a: tuple[int, ...]
    only_b: tuple[int, ...]
    margin: float
    confidence: float
    interval: Interval
    detectable: float | None

    @property
    def shares(self) -> tuple[float, float]:
        """CA of A and of B."""
        of_a = (self.both + len(self.only_a)) / self.inputs
        of_b = (self.both + len(self.only_b)) / self.inputs
        return of_a, of_b

    @property
    def difference(self) -> float:
        """CA of B minus CA of A, on these inputs."""
        return (len(self.only_b) - len(self.only_a)) / self.inputs

    @property
    def verdict(self) -> Verdict:
        """What the interval shows about B."""
        low, high = self.interval
        if low > 0:
            return "better"
        if self.margin and low > -self.margin:
            return "not worse"
        return "worse" if high < -self.margin else "undecided"

    @property
    def ends(self) -> tuple[str, str]:
        """The ends of the interval in points, rounded outward."""
        return f"{-_up(-self.interval.low) + 0:+.1f}", f"{_up(self.interval.high) + 0:+.1f}"

    @property
    def figures(self) -> str:
        """The difference and its interval in points. If they show nothing, what could be shown."""
        interval = f"{100 * self.confidence:g}% interval {' to '.join(self.ends)}"
        return f"{_signed(self.difference)} points, {interval}{self._limits()}"

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        return f"{self._claim}: {self.figures}."

    @property
    def _claim(self) -> str:
        """The verdict without figures."""
        a, b = self.a, self.b
        at = f"at {self.radius:g}"
        margin = _points(100 * self.margin)
        if self.verdict == "better":
            return f"{b} certifies more than {a} {at}"
        if self.verdict == "not worse":
            return f"{b} certifies at most {margin} less than {a} {at}"
        if self.verdict == "worse":
            by = f", by more than {margin}" if self.margin else ""
            return f"{b} certifies less than {a} {at}{by}"
        if self.margin:
            return f"Whether {b} loses more than {margin} against {a} {at} cannot be told"
        return f"{a} and {b} cannot be told apart {at}"

    def _limits(self) -> str:
        """What so many inputs could show; empty if they have shown something."""
        if self.detectable is None or self.verdict != "undecided":
            return ""
        visible = f"only differences above {_points(_up(self.detectable))} would show"
        if self.margin:
            above = _signed(self.detectable - self.margin)
            below = _signed(-self.detectable - self.margin)
            visible = f"this shows only for differences above {above} or below {below} points"
        if self.detectable >= 0.99:
            visible = "no difference would show"
        return f"; with {self.inputs:,} inputs, {visible}"


class Curve(NamedTuple):
    """CA of B minus CA of A over the radius.

    Args:
        band: A difference that is larger than this, at any radius, is more than chance.
    """

    radii: NDArray[np.float64]
    difference: NDArray[np.float64]
    band: float


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What two runs on the same inputs show about their difference. Print it to read every claim.

    Args:
        a: The results of A on the common inputs.
        b: The results of B on the common inputs.
        differences: Certified accuracy by radius. All intervals hold together.
        average: The average certified radius of B minus that of A lies in here; None if a plan
            decides radii instead of measuring them, or if no input differs.
        curve: The whole curve of certified accuracy; None as for `average`.
        notes: What else a reader should know.
        anytime: Whether inputs were added until the difference was clear. The intervals allow for
            that.
        average_is_exact: Whether `average` covers the truth as often as it says. Without the
            largest radius that votes can prove, which a published log does not tell, it is
            Student's interval.
    """

    a: Results
    b: Results
    differences: tuple[Difference, ...]
    average: Interval | None
    curve: Curve | None
    notes: tuple[str, ...]
    anytime: bool
    average_is_exact: bool

    @property
    def verdict(self) -> Verdict:
        """The verdict about all radii: the worst of those about each radius."""
        verdicts = {difference.verdict for difference in self.differences}
        from_worst: tuple[Verdict, ...] = ("worse", "undecided", "not worse", "better")
        return next(verdict for verdict in from_worst if verdict in verdicts)

    @property
    def sentences(self) -> list[str]:
        """Every claim in words."""
        claims = [
            *(d.sentence for d in self.differences),
            self.average_sentence,
            self.curve_sentence,
        ]
        return [*filter(None, claims), self.scope, *self.notes, guaranteed([self.a, self.b])]

    @property
    def scope(self) -> str:
        """What the intervals are about."""
        radii = len(self.differences)
        intervals = "The interval is"
        if radii > 1:
            intervals = f"The intervals hold at all {radii} radii together and are"
        return (
            f"{intervals} about all inputs that these {len(self.a):,} are a random sample of, "
            "not only about these."
        )

    @property
    def average_sentence(self) -> str:
        """What the average certified radii show; empty if they are not measured."""
        if self.average is None:
            return ""
        low, high = self.average
        claim = "The average certified radii cannot be told apart"
        if low > 0:
            claim = f"{self.b.name} has the larger average certified radius"
        elif high < 0:
            claim = f"{self.b.name} has the smaller average certified radius"
        values = " and ".join(
            f"{metrics.round_down(run.acr)} for {run.name}" for run in (self.b, self.a)
        )
        interval = "interval" if self.average_is_exact else "approximate interval"
        return f"{claim}: {values}, {interval} of the difference {low:+.3f} to {high:+.3f}."

    @property
    def curve_sentence(self) -> str:
        """Where the curves differ; empty if they are not measured."""
        if self.curve is None:
            return ""
        radii, difference, band = self.curve
        parts = []
        for name, gain in ((self.b.name, difference), (self.a.name, -difference)):
            where = radii[gain > band]
            if len(where):
                parts.append(f"{name} certifies more from {where.min():.2f} to {where.max():.2f}")
        claim = " and ".join(parts) or "neither certifies more anywhere"
        confidence = f"{100 * self.differences[0].confidence:g}%"
        limit = f"differences above {_points(_up(band))} are more than chance, at {confidence}"
        return f"On the whole curve, {claim} ({limit})."

    def plain(self) -> dict[str, Any]:
        """The comparison as a dictionary for JSON."""
        return {
            "a": self.a.name,
            "b": self.b.name,
            "verdict": self.verdict,
            "inputs": len(self.a),
            "samples": [int(self.a.samples.sum()), int(self.b.samples.sum())],
            "anytime": self.anytime,
            "certified_accuracy": [
                {**vars(d), "shares": d.shares, "difference": d.difference, "verdict": d.verdict}
                for d in self.differences
            ],
            "acr": [self.a.acr, self.b.acr],
            "acr_interval": self.average,
            "acr_interval_exact": self.average_is_exact,
            "sentences": self.sentences,
        }

    def __repr__(self) -> str:
        return "\n".join([str(self._table()), *self.sentences])

    def _table(self) -> TextTable:
        """How many inputs each run certifies."""
        return TextTable(
            f"A: {self.a.name}, B: {self.b.name}, {number_of(len(self.a), 'input')}",
            ["radius", "A certifies", "B certifies", "both", "only A", "only B"],
            [
                [
                    f"{d.radius:g}",
                    *(f"{share:.1%}" for share in d.shares),
                    f"{d.both}",
                    f"{len(d.only_a)}",
                    f"{len(d.only_b)}",
                ]
                for d in self.differences
            ],
        )


def compare_runs(
    a: Source,
    b: Source,
    *,
    radius: float | Sequence[float] | None = None,
    margin: float = 0.0,
    confidence: float = metrics.CONFIDENCE,
) -> Comparison:
    """Compare two runs on their common inputs. See `smoothcert.compare`."""
    margin = _check.at_least("margin", margin, 0) / 100
    alpha = 1 - _check.confidence("confidence", confidence)
    a, b = distinct_names([read_results(a), read_results(b)])
    check_comparable(a, b)
    a = a.without_copies()
    b = b.without_copies()
    common = np.intersect1d(a.id, b.id)
    notes = tuple(notes_on(a, b, len(common)))
    anytime = any(r.manifest is not None and r.manifest.until_clear for r in (a, b))
    a = a.only(np.isin(a.id, common))
    b = b.only(np.isin(b.id, common))
    radii = _radii(a, b, radius)
    settings = {"margin": margin, "confidence": confidence, "alpha": alpha / len(radii)}
    differences = tuple(_difference(a, b, r, **settings, anytime=anytime) for r in radii)
    average = None
    curve = None
    limits = (a.largest_radius, b.largest_radius)
    gained = b.radius * b.correct - a.radius * a.correct
    is_measured = a.decided_radii is None and b.decided_radii is None
    # If no input differs, neither an average nor a band would tell what other inputs could show.
    if is_measured and len(common) > 1 and np.any(gained):
        average = paired.mean_interval(gained, alpha=alpha)
        if limits[0] is not None and limits[1] is not None:
            average = paired.bounded_mean_interval(gained, (-limits[0], limits[1]), alpha=alpha)
        curve = _curve(a, b, alpha)
    return Comparison(a, b, differences, average, curve, notes, anytime, None not in limits)


def _difference(
    a: Results,
    b: Results,
    radius: float,
    *,
    margin: float,
    confidence: float,
    alpha: float,
    anytime: bool,
) -> Difference:
    """The difference at one radius, on the same inputs, with an interval at this alpha."""
    inputs = len(a)
    in_a = a.certified([radius])[:, 0]
    in_b = b.certified([radius])[:, 0]
    only_a = tuple(a.id[in_a & ~in_b].tolist())
    only_b = tuple(a.id[in_b & ~in_a].tolist())
    counts = (len(only_a), len(only_b), inputs)
    detectable = None
    if anytime:
        interval = paired.anytime_interval(*counts, alpha=alpha)
    else:
        interval = paired.difference_interval(*counts, alpha=alpha)
        differing = (len(only_a) + len(only_b)) / inputs
        detectable = paired.detectable(differing, inputs, alpha=alpha)
    return Difference(
        a=a.name,
        b=b.name,
        radius=radius,
        inputs=inputs,
        both=int(np.sum(in_a & in_b)),
        only_a=only_a,
        only_b=only_b,
        margin=margin,
        confidence=confidence,
        interval=interval,
        detectable=detectable,
    )


def _curve(a: Results, b: Results, alpha: float) -> Curve:
    largest = max(float(a.radius.max()), float(b.radius.max()))
    radii = np.linspace(0, largest, _CURVE_POINTS)
    difference = b.certified(radii).astype(np.int8) - a.certified(radii)
    return Curve(radii, difference.mean(axis=0), paired.curve_band(difference, alpha=alpha))


def _radii(a: Results, b: Results, radius: float | Sequence[float] | None) -> list[float]:
    """The radii to compare at. Plans that decide radii know nothing about others."""
    decided = _decided_by_both(a, b)
    if radius is None:
        return decided or usual_radii([a, b])
    radii = sorted(set(_check.radii(np.atleast_1d(radius).tolist())))
    if not radii:
        raise InvalidInput(
            "no-radii",
            "give at least one `radius` to compare at",
        )
    undecided = [r for r in radii if decided is not None and r not in decided]
    if undecided:
        raise refusal(
            "undecided-radius",
            a,
            b,
            "at {radius:g}, choose among the radii that both decide, {radii}",
            radius=undecided[0],
            radii=", ".join(f"{r:g}" for r in decided or ()),
        )
    return radii


def _decided_by_both(a: Results, b: Results) -> list[float] | None:
    """The radii that both plans decide; None if neither decides radii."""
    decided = [set(r.decided_radii) for r in (a, b) if r.decided_radii is not None]
    if not decided:
        return None
    common = sorted(set.intersection(*decided))
    if not common:
        raise refusal(
            "no-common-radius", a, b, "they decide different radii; certify both at the same"
        )
    return common


def _signed(difference: float) -> str:
    return f"{100 * difference + 0:+.1f}"


def _up(share: float) -> float:
    """A share in points, rounded up."""
    return math.ceil(1000 * share - 1e-9) / 10


def _points(points: float) -> str:
    return f"{points:g} point" + ("" if points == 1 else "s")

"""Runs on the same inputs: is B as robust as A, and which of several is best? Every claim is made in words.

`compare_runs` gives the difference of two runs with its interval; `recommend` is the end of a sweep over many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothcert import _check
from smoothcert.errors import InvalidInput, setting
from smoothcert.runs.formats import Source, collect, distinct_names, read_results
from smoothcert.runs.results import Results, check_finished, usual_radii
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
        detectable: The smallest difference that so many inputs usually show; None if inputs were added until it showed.
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
        return (self.both + len(self.only_a)) / self.inputs, (
            self.both + len(self.only_b)
        ) / self.inputs

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
        """The difference and its interval in points, and what so many inputs could show if this is not enough."""
        interval = f"{100 * self.confidence:g}% interval {' to '.join(self.ends)}"
        return f"{_signed(self.difference)} points, {interval}{self._limits()}"

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        a, b, at, margin = self.a, self.b, f"at {self.radius:g}", _points(100 * self.margin)
        claims: dict[Verdict, str] = {
            "better": f"{b} certifies more than {a} {at}",
            "not worse": f"{b} certifies at most {margin} less than {a} {at}",
            "worse": f"{b} certifies less than {a} {at}"
            + (f", by more than {margin}" if self.margin else ""),
            "undecided": f"Whether {b} loses more than {margin} against {a} {at} cannot be told"
            if self.margin
            else f"{a} and {b} cannot be told apart {at}",
        }
        return f"{claims[self.verdict]}: {self.figures}."

    def _limits(self) -> str:
        if self.detectable is None or self.verdict != "undecided":
            return ""
        above, below = (_signed(side * self.detectable - self.margin) for side in (1, -1))
        shown = f"this shows only for differences above {above} or below {below} points"
        if not self.margin:
            shown = f"only differences above {_points(_up(self.detectable))} would show"
        return f"; with {self.inputs:,} inputs, {shown if self.detectable < 0.99 else 'no difference would show'}"


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
    """What two runs on the same inputs show about their difference. Print it to read every claim in words.

    Args:
        a: The results of A on the common inputs.
        b: The results of B on the common inputs.
        differences: Certified accuracy by radius. All intervals hold together.
        average: The average certified radius of B minus that of A lies in here; None if a plan decides radii instead of
            measuring them, or if no input differs.
        curve: The whole curve of certified accuracy; None as for `average`.
        notes: What else a reader should know.
        anytime: Whether inputs were added until the difference was clear. The intervals allow for that.
    """

    a: Results
    b: Results
    differences: tuple[Difference, ...]
    average: Interval | None
    curve: Curve | None
    notes: tuple[str, ...]
    anytime: bool

    @property
    def verdict(self) -> Verdict:
        """About all radii: "worse" if B is worse at one of them, and so on down to "better" at all of them."""
        found = {difference.verdict for difference in self.differences}
        ordered: tuple[Verdict, ...] = ("worse", "undecided", "not worse", "better")
        return next(verdict for verdict in ordered if verdict in found)

    @property
    def sentences(self) -> list[str]:
        """Every claim in words."""
        claims = [
            *(d.sentence for d in self.differences),
            self.average_sentence,
            self.curve_sentence,
        ]
        return [*filter(None, claims), self.scope, *self.notes]

    @property
    def scope(self) -> str:
        """What the intervals are about."""
        radii = len(self.differences)
        which = (
            f"The intervals hold at all {radii} radii together and are"
            if radii > 1
            else "The interval is"
        )
        return f"{which} about all inputs that these {len(self.a):,} are a random sample of, not only about these."

    @property
    def average_sentence(self) -> str:
        """What the average certified radii show; empty if they are not measured."""
        if self.average is None:
            return ""
        low, high = self.average
        claim = "The average certified radii cannot be told apart"
        if low > 0 or high < 0:
            claim = f"{self.b.name} has the {'larger' if low > 0 else 'smaller'} average certified radius"
        found = f"{metrics.round_down(self.b.acr)} against {metrics.round_down(self.a.acr)}"
        return f"{claim}: {found}, interval of the difference {low:+.3f} to {high:+.3f}."

    @property
    def curve_sentence(self) -> str:
        """Where the curves differ; empty if they are not measured."""
        if self.curve is None:
            return ""
        radii, difference, band = self.curve
        sides = [
            (name, radii[side * difference > band])
            for name, side in ((self.b.name, 1), (self.a.name, -1))
        ]
        parts = [
            f"{name} certifies more from {r.min():.2f} to {r.max():.2f}"
            for name, r in sides
            if len(r)
        ]
        found = " and ".join(parts) or "neither certifies more anywhere"
        confidence = f"{100 * self.differences[0].confidence:g}%"
        limit = f"differences above {_points(_up(band))} are more than chance, at {confidence}"
        return f"On the whole curve, {found} ({limit})."

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
            "sentences": self.sentences,
        }

    def __repr__(self) -> str:
        return "\n".join(self.sentences)


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
    a, b = runs = distinct_names([read_results(a), read_results(b)])
    notes = _check_alike(a, b)
    common = np.intersect1d(a.id, b.id)
    anytime = any(r.manifest is not None and r.manifest.until_clear for r in runs)
    a, b = (r.only(np.isin(r.id, common)) for r in runs)
    radii = _radii(a, b, radius)

    def difference(radius: float) -> Difference:
        in_a, in_b = (r.certified([radius])[:, 0] for r in (a, b))
        only_a, only_b = (tuple(common[only].tolist()) for only in (in_a & ~in_b, in_b & ~in_a))
        pairs, each = (len(only_a), len(only_b), len(common)), alpha / len(radii)
        interval = (paired.anytime_interval if anytime else paired.difference_interval)(
            *pairs, alpha=each
        )
        shown = (
            None
            if anytime
            else paired.detectable(sum(pairs[:2]) / len(common), len(common), alpha=each)
        )
        known = (radius, len(common), int(np.sum(in_a & in_b)), only_a, only_b)
        return Difference(a.name, b.name, *known, margin, confidence, interval, shown)

    differences = tuple(map(difference, radii))
    gained = b.radius * b.correct - a.radius * a.correct
    # If no input differs, neither an average nor a band would tell what other inputs could show.
    decided = a.decided_radii is not None or b.decided_radii is not None
    measured = not decided and len(common) > 1 and bool(np.any(gained))
    average = paired.mean_interval(gained, alpha=alpha) if measured else None
    return Comparison(
        a, b, differences, average, _curve(a, b, alpha) if measured else None, tuple(notes), anytime
    )


def _ceiling_asked_for(results: Results, ceiling: int) -> int:
    budget = results.manifest and results.manifest.budget
    return budget["ceiling"] if budget else ceiling


def _curve(a: Results, b: Results, alpha: float) -> Curve:
    radii = np.linspace(0, max(float(r.radius.max()) for r in (a, b)), _CURVE_POINTS)
    d = b.certified(radii).astype(np.int8) - a.certified(radii)
    return Curve(radii, d.mean(axis=0), paired.curve_band(d, alpha=alpha))


def _radii(a: Results, b: Results, radius: float | Sequence[float] | None) -> list[float]:
    """The radii to compare at. Plans that decide radii know nothing about others."""
    decided = [set(r.decided_radii) for r in (a, b) if r.decided_radii is not None]
    known = sorted(set.intersection(*decided)) if decided else None
    if known == []:
        raise InvalidInput(
            f"{a.name} and {b.name} cannot be compared: they decide different radii; certify both at the same"
        )
    if radius is None:
        return known or usual_radii([a, b])
    radii = sorted(set(_check.radii(np.atleast_1d(radius).tolist())))
    if not radii:
        raise InvalidInput(
            "no-radii", "give at least one {radius} to compare at", radius=setting("radius")
        )
    if known is not None and (unknown := [r for r in radii if r not in known]):
        raise InvalidInput(
            f"{a.name} and {b.name} cannot be compared at {unknown[0]:g}: choose among the radii that both decide, "
            f"{', '.join(f'{r:g}' for r in known)}"
        )
    return radii


def _check_alike(a: Results, b: Results) -> list[str]:
    """Refuse results that cannot be compared; returns remarks on those that can."""
    for r in (a, b):
        check_finished(r)

    def refuse(why: str, instead: str) -> InvalidInput:
        return InvalidInput(f"{a.name} and {b.name} cannot be compared: {why}; {instead}")

    if a.manifest and b.manifest and a.manifest.data_hash != b.manifest.data_hash:
        names = f"{a.manifest.data} and {b.manifest.data}"
        raise refuse(
            f"their data ({names}) have other inputs or labels", "certify both on the same data"
        )
    common, of_a, of_b = np.intersect1d(a.id, b.id, return_indices=True)
    if not len(common):
        raise refuse(
            "they have no inputs in common",
            "certify both on the same data with the same ids, skip and limit",
        )
    if len(other := common[a.label[of_a] != b.label[of_b]]):
        raise refuse(f"input {other[0]} has another label in each", "certify both on the same data")
    if a.noise is not None and b.noise is not None and a.noise.norm != b.noise.norm:
        raise refuse(
            f"their radii are in {a.noise.norm} and {b.noise.norm}",
            "compare runs with radii in one norm",
        )
    notes = []
    if len(common) < max(len(a), len(b)):
        notes.append(
            f"Of {len(a):,} and {len(b):,} inputs, only the {len(common):,} that both have are compared."
        )
    notes += [
        f"{r.name} had a budget of minutes: later inputs got the samples that were left, so all intervals are rough."
        for r in (a, b)
        if r.manifest is not None and r.manifest.timed
    ]
    first, second = a.certified_by, b.certified_by
    if first is None or second is None:
        return [
            *notes,
            "A published log does not tell inputs, noise, alpha and samples; these are taken to be alike.",
        ]
    if a.manifest is None or b.manifest is None:
        notes.append(
            "Only runs tell their data; both are taken to have the same inputs, in the same units."
        )
    for name in ("alpha", "samples", "bound"):
        one, two = getattr(first, name), getattr(second, name)
        if name == "samples":  # a budget may lower the ceiling that was asked for
            one = _ceiling_asked_for(a, one)
            two = _ceiling_asked_for(b, two)
        if one != two:
            again = f"certify {b.name} again with {setting(name, one)}, or {a.name} with {setting(name, two)}"
            raise refuse(f"they were certified with {name} {one} and {two}", again)
    if first != second:
        notes.append(
            f"The plans differ ({first}; {second}), so the difference is not that of the models alone."
        )
    return notes


def best_of(values: Sequence[NDArray[Any]]) -> tuple[int, list[int]]:
    """The place of the run with the largest mean, and of all runs that chance could explain to be as good as it.

    Chance is at 95%, paired on the inputs. `values` has one array per run, with one value per input.
    """
    best = max(range(len(values)), key=lambda place: values[place].mean())
    alpha = (1 - metrics.CONFIDENCE) / max(len(values) - 1, 1)
    return best, [
        place
        for place, value in enumerate(values)
        if not paired.differ(value, values[best], alpha=alpha)
    ]


@dataclass(frozen=True)
class AtRadius:
    """The run that certifies most inputs at a radius.

    Args:
        radius: The radius r.
        best: The name of the run.
        share: Its certified accuracy.
        as_good: Other runs that differ from it by no more than chance (95%, paired on the inputs), with their shares.
    """

    radius: float
    best: str
    share: float
    as_good: dict[str, float]


@dataclass(frozen=True)
class Recommendation:
    """The run to take.

    Args:
        run: Its name.
        radii: What is best at each radius. Radii at which no run certifies anything are left out.
        alpha: The probability that any certificate of one input is wrong, over all runs.
    """

    run: str
    radii: tuple[AtRadius, ...]
    alpha: float

    @property
    def reasons(self) -> list[str]:
        """Why, in sentences."""
        good = [at for at in self.radii if self.run == at.best or self.run in at.as_good]
        others = [at for at in self.radii if at not in good]
        where = f"{len(good)} of {len(self.radii)} radii" if others else "every radius"
        where += f" ({', '.join(f'{at.radius:g}' for at in good)})"
        return [
            f"Take {self.run}: at {where}, no other run certifies more inputs beyond chance.",
            *(
                f"At radius {at.radius:g}, take {at.best}, which certifies {at.share:.1%}."
                for at in others
            ),
            "This depends on the radii: ask for those that matter to you. It was chosen on these inputs: for figures "
            "without selection, certify other inputs. The certificates that all runs give to one input hold together "
            f"with probability {1 - self.alpha:g}.",
        ]

    def plain(self) -> dict[str, Any]:
        """The recommendation as a dictionary for JSON."""
        return {"run": self.run, "reasons": self.reasons, "radii": [vars(at) for at in self.radii]}


def recommend(
    results: Sequence[Source], *, radii: Sequence[float] | None = None
) -> Recommendation | None:
    """The run that is best, or as good as the best within chance, at most radii; with a tie, the one with larger ACR.

    Args:
        results: Runs on the same inputs, with radii in the same norm, or their folders.
        radii: The radii r at which certified accuracy counts. Default: those of `table`.

    Returns:
        The recommendation; None if no input is certified for its label.
    """
    runs = collect(results)
    if any(not np.array_equal(run.id, runs[0].id) for run in runs):
        raise InvalidInput("the runs have different inputs, so they cannot be compared")
    found = []
    for radius in radii if radii is not None else usual_radii(runs):
        best, good = best_of(proved := [run.certified([radius])[:, 0] for run in runs])
        shares = {run.name: float(mine.mean()) for run, mine in zip(runs, proved, strict=True)}
        if proved[best].any():
            as_good = {(name := runs[place].name): shares[name] for place in good if place != best}
            found.append(AtRadius(float(radius), runs[best].name, shares[runs[best].name], as_good))
    if not found:
        return None
    wins = {
        run.name: sum(run.name == at.best or run.name in at.as_good for at in found) for run in runs
    }
    chosen = max(runs, key=lambda run: (wins[run.name], run.acr))
    alpha = sum(run.plan.alpha for run in runs if run.plan is not None)
    return Recommendation(chosen.name, tuple(found), alpha)


def _signed(difference: float) -> str:
    return f"{100 * difference + 0:+.1f}"


def _up(share: float) -> float:
    """A share in points, rounded up."""
    return math.ceil(1000 * share - 1e-9) / 10


def _points(points: float) -> str:
    return f"{points:g} point" + ("" if points == 1 else "s")

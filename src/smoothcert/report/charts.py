"""What the charts show, without a word on how they are drawn.

Each function computes the numbers of one chart from `Results`. `vega.spec` draws a chart in the page, `figures.plot` as
a figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from smoothcert.noises import Noise
from smoothcert.plans import Plan
from smoothcert.plans.base import Outlook
from smoothcert.plans.coverage import outlook
from smoothcert.runs.results import Results
from smoothcert.statistics.metrics import distribution, round_down

Values: TypeAlias = NDArray[Any]

OUTCOMES = ("correct", "wrong", "abstained", "not certified", "no label")
"""What can become of an input. Each outcome has its own shape in charts."""

_CURVE_POINTS = 201
_BINS_OF_SAMPLES = 24
_BINS_OF_P = 50
_P = np.concatenate([np.linspace(0.5, 0.995, 100), 1 - np.geomspace(4e-3, 1e-5, 30), [1.0]])
# A plan without a closed form needs a forward pass over its states for every p, so it gets fewer of them.
_FEW_P = np.concatenate([np.linspace(0.5, 0.95, 16), [0.97, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9999, 1.0]])


@dataclass(frozen=True)
class Axis:
    """One axis.

    Args:
        title: What it shows.
        kind: How its numbers are written: as they are, as percentages, or as counts ("5k").
        log: Whether the scale is logarithmic.
        zero: Whether the scale includes 0.
    """

    title: str
    kind: Literal["number", "percent", "count"] = "number"
    log: bool = False
    zero: bool = True


@dataclass(frozen=True, eq=False)
class Column:
    """Values that a reader sees when pointing at a mark.

    Args:
        title: What the values are. It is unique within a layer.
        values: One value per mark. Where a layer draws the same array, it is stored only once.
        format: A format that Python and D3 both understand, as in ",.0f"; empty for text.
    """

    title: str
    values: Values
    format: str = ""


@dataclass(frozen=True, eq=False)
class Line:
    """A curve, with a band around it where `low` and `high` are given.

    Args:
        series: The run that it belongs to. Several lines may belong to one run.
        x: Where the curve is known.
        y: Its values there.
        low: The lower end of the band.
        high: The upper end of the band.
        step: Whether each value holds from the previous x on. A decreasing curve then never shows too much.
        columns: What a reader sees when pointing at it.
    """

    series: str
    x: Values
    y: Values
    low: Values | None = None
    high: Values | None = None
    step: bool = False
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, eq=False)
class Points:
    """Marks, with a vertical line through each where `low` and `high` are given.

    Args:
        series: The run that they belong to.
        x: Their positions.
        y: Their positions.
        low: The lower ends of the vertical lines.
        high: The upper ends of the vertical lines.
        outcome: The outcome of each, one of `OUTCOMES`, which decides its shape; None for marks that are no inputs.
        columns: What a reader sees when pointing at one.
    """

    series: str
    x: Values
    y: Values
    low: Values | None = None
    high: Values | None = None
    outcome: Values | None = None
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, eq=False)
class Bars:
    """A histogram.

    Args:
        series: The run that it belongs to.
        edges: The edges of the bins, one more than there are bins.
        y: The height of each bar.
        columns: What a reader sees when pointing at a bar.
    """

    series: str
    edges: Values
    y: Values
    columns: tuple[Column, ...] = ()


Layer: TypeAlias = Line | Points | Bars


@dataclass(frozen=True)
class Chart:
    """A chart and the text around it.

    Args:
        id: Its name in the page and the name of its file.
        title: Its heading.
        series: The runs in the order of their colours, also those that this chart does not show.
        x: The horizontal axis.
        y: The vertical axis.
        layers: What is drawn; empty if the runs have no numbers for this chart.
        caption: The sentences below it.
        description: The chart in words, for readers who cannot see it.
    """

    id: str
    title: str
    series: tuple[str, ...]
    x: Axis
    y: Axis
    layers: tuple[Layer, ...]
    caption: str = ""
    description: str = ""


def charts(results: Sequence[Results], *, most_points: int | None = None) -> list[Chart]:
    """All charts that these results have numbers for.

    Args:
        results: The runs.
        most_points: As for `radius_against_samples`.
    """
    made = (
        certified_accuracy(results),
        trade_off(results),
        radius_against_samples(results, most_points=most_points),
        samples(results),
        probabilities(results),
        sample_maps(results),
    )
    return [chart for chart in made if chart.layers]


def certified_accuracy(results: Sequence[Results], *, bands: bool = True) -> Chart:
    """Certified accuracy CA(r) against the radius r, one curve per run that has labels.

    Args:
        results: The runs.
        bands: Whether each curve has its 95% band over inputs.
    """
    results = distinct(results)
    shown = [r for r in results if r.labelled]
    largest = max((float(r.radius.max(initial=0)) for r in shown), default=0.0)
    grid = np.linspace(0, max(largest, 0.01) * 1.02, _CURVE_POINTS)
    layers = []
    for r in shown:
        radii = np.union1d(grid, r.decided_radii or ())
        share, (low, high) = r.certified_accuracy(radii), r.certified_accuracy_band(radii)
        columns = [Column("radius", radii, ".3f"), Column("certified accuracy", share, ".1%")]
        columns += [Column("95% band from", low, ".1%"), Column("to", high, ".1%")]
        layers.append(Line(r.name, radii, share, step=True, columns=tuple(columns)))
        if bands:
            layers[-1] = replace(layers[-1], low=low, high=high)
    caption = "The share of inputs whose answer is correct and provably stays correct under any change up to the radius."
    return Chart(
        "certified-accuracy",
        "Certified accuracy",
        _names(results),
        Axis(f"radius r{_in_norm(results)}"),
        Axis("certified accuracy", "percent"),
        tuple(layers),
        _sentences(
            caption,
            bands and "Bands: 95% Clopper-Pearson, where the inputs count as a random sample.",
            _different_norms(results),
            _decided(shown, "is known only at the radii that were asked for"),
        ),
        f"Certified accuracy against the radius for {', '.join(r.name for r in shown)}: "
        + "; ".join(f"{r.name} starts at {float(r.certified_accuracy([0])[0]):.1%}" for r in shown)
        + ".",
    )


def trade_off(results: Sequence[Results], *, bands: bool = True) -> Chart:
    """ACR against average samples, one mark per run that has labels and knows its samples.

    Args:
        results: The runs.
        bands: Whether each mark has its 95% band over inputs.
    """
    results = distinct(results)
    layers, words, shown = [], [], []
    for r in results:
        if not r.labelled or (average := r.average_samples) is None:
            continue
        x, y = np.array([average]), np.array([r.acr])
        columns = [Column("method", np.array([str(r.plan)])), Column("average samples", x, ",.0f")]
        columns.append(Column("ACR", y, ".4f"))
        low = high = None
        if bands and (band := r.acr_band) is not None:
            low, high = np.array([band.low]), np.array([band.high])
            columns += [Column("95% band from", low, ".3f"), Column("to", high, ".3f")]
        layers.append(Points(r.name, x, y, low, high, columns=tuple(columns)))
        words.append(f"{r.name} {round_down(r.acr)} at {average:,.0f}")
        shown.append(r)
    return Chart(
        "trade-off",
        "What the radius costs",
        _names(results),
        Axis("average samples per input", "count", zero=False),
        Axis(f"ACR{_in_norm(results)}", zero=False),
        tuple(layers),
        _sentences(
            "Average certified radius (ACR) against forward passes per input: up and to the left is better.",
            bands and "Lines: 95% band over inputs. Runs on the same inputs share it.",
            _different_norms(results),
            acr_note(shown),
        ),
        f"Average certified radius against average samples: {'; '.join(words)}.",
    )


def radius_against_samples(results: Sequence[Results], *, most_points: int | None = None) -> Chart:
    """The radius of each input against the samples that it got.

    Args:
        results: The runs.
        most_points: How many inputs are shown over all runs; larger runs are thinned out evenly. None shows all.
    """
    results = distinct(results)
    most = max((len(r) for r in results), default=0) if most_points is None else most_points // max(len(results), 1)
    layers = []
    for r in results:
        kept = evenly(len(r), most)
        kept = kept[r.samples[kept] > 0]
        if not len(kept):
            continue
        spent, radius = r.samples[kept], np.array([float(round_down(v, 4)) for v in r.radius[kept].tolist()])
        became = outcomes(r)[kept]
        columns = [Column("input", r.id[kept], "d"), Column("samples", spent, ",d"), Column("radius", radius, ".4f")]
        columns += [Column("p", r.p[kept], ".4f"), Column("outcome", became)]
        layers.append(Points(r.name, spent, radius, outcome=became, columns=tuple(columns)))
    adaptive = any(r.certified_by is not None and r.certified_by.adaptive for r in results)
    fewest, largest = (pick((int(pick(layer.x)) for layer in layers), default=0) for pick in (min, max))
    return Chart(
        "radius-against-samples",
        "Radius against samples spent",
        _names(results),
        Axis("samples spent (log scale)", "count", log=True),
        Axis(f"radius{_in_norm(results)}"),
        tuple(layers),
        _sentences(
            "Each mark is one input.",
            adaptive and "An adaptive plan spends its samples where they gain radius.",
            any(len(r) > most for r in results) and f"Of larger runs, {most:,} inputs are shown.",
            _different_norms(results),
        ),
        f"Radius of each input against the samples that it got, for {', '.join(layer.series for layer in layers)}. "
        f"Samples range from {fewest:,} to {largest:,}.",
    )


def samples(results: Sequence[Results]) -> Chart:
    """The distribution of samples over inputs.

    Args:
        results: The runs.
    """
    results = distinct(results)
    shown = {r.name: r.samples for r in results if r.average_samples is not None}
    low, high = (pick((int(pick(spent)) for spent in shown.values()), default=1) for pick in (min, max))
    edges = np.geomspace(max(low, 1) * 0.999, high * 1.001, _BINS_OF_SAMPLES + 1)
    return Chart(
        "samples",
        "Samples per input",
        _names(results),
        Axis("samples spent (log scale)", "count", log=True),
        Axis("share of inputs", "percent"),
        tuple(_bars(name, spent, edges, ",.0f") for name, spent in shown.items()),
        "How many forward passes inputs needed.",
        "Distribution of the samples that inputs got. "
        + "; ".join(f"{name}: median {np.median(spent):,.0f}" for name, spent in shown.items())
        + ".",
    )


def probabilities(results: Sequence[Results]) -> Chart:
    """The distribution of p, the share of votes for the class, over inputs.

    Args:
        results: The runs.
    """
    results = distinct(results)
    shown = {r.name: r.p for r in results if np.any(r.counted)}
    edges = np.linspace(0, 1, _BINS_OF_P + 1)
    lowest = min((float(np.nanmin(p)) for p in shown.values()), default=0.0)
    edges = edges[max(int(np.searchsorted(edges, lowest, side="right")) - 1, 0) :]
    majority = all(r.certified_by is None or not r.certified_by.uses_rivals for r in results)
    return Chart(
        "probabilities",
        "How sure the votes are",
        _names(results),
        Axis("share of votes for the class (p)", zero=False),
        Axis("share of inputs", "percent"),
        tuple(_bars(name, p, edges, ".2f") for name, p in shown.items()),
        _sentences(
            "The share of noisy copies that voted for the class.",
            majority and "At 0.5 or below there is nothing to certify.",
        ),
        "Distribution of the share of votes for the class. "
        + "; ".join(f"{name}: median {np.nanmedian(p):.2f}" for name, p in shown.items())
        + ".",
    )


def sample_maps(results: Sequence[Results]) -> Chart:
    """Samples against p, one curve per run whose plan gives inputs different numbers of samples.

    Args:
        results: The runs.
    """
    results = distinct(results)
    layers, words, expected = [], [], []
    for r in results:
        if (plan := r.certified_by) is None or r.noise is None or not plan.adaptive:
            continue
        p, found = _outlook(plan, r.noise)
        needed = np.asarray(found.samples)
        columns = (Column("p", p, ".5f"), Column("samples", needed, ",.0f"))
        layers.append(Line(r.name, p, needed, columns=columns))
        words.append(f"{r.name} ({plan}, {r.noise}) from {needed.min():,.0f} to {needed.max():,.0f}")
        expected.append(found.expected)
    title = "expected samples" if all(expected) else "samples needed"
    some = any(expected) and not all(expected)
    return Chart(
        "sample-map",
        "The sample map in use",
        _names(results),
        Axis("p, the probability of the class", zero=False),
        Axis("samples, needed or expected" if some else title, "count"),
        tuple(layers),
        _sentences(
            "How many samples an input gets, given the probability of its class.",
            any(expected) and "Where the number depends on chance, the curve shows its expectation.",
        ),
        f"Sample map, {title} against p: {'; '.join(words)}.",
    )


def outcomes(results: Results) -> NDArray[np.str_]:
    """What became of each input, as one of `OUTCOMES`.

    With known labels, an input without a certificate was not certified for its label. Nobody knows whether it is wrong.

    Args:
        results: The run.
    """
    conditions = [results.abstained, results.correct, results.wrong]
    return np.select(conditions, [uncertified(results), "correct", "wrong"], "no label")


def uncertified(results: Results) -> str:
    """The word for an input without a certificate: "abstained", or "not certified" where labels were known.

    Args:
        results: The run.
    """
    return "not certified" if results.certified_by is not None and results.certified_by.known_labels else "abstained"


def norms(results: Sequence[Results]) -> list[str]:
    """The norms in which these runs measure radii, each once. Published logs do not tell theirs.

    Args:
        results: The runs.
    """
    return list(dict.fromkeys(r.noise.norm for r in results if r.noise is not None))


def acr_note(results: Sequence[Results]) -> str:
    """A sentence about runs that decide chosen radii; empty if there are none.

    Args:
        results: The runs.
    """
    return _decided(results, "ACR counts only the radii that were asked for", before=True)


def distinct(results: Sequence[Results]) -> list[Results]:
    """The same runs; those of the same name are told apart by a number.

    Args:
        results: The runs.
    """
    names = [r.name for r in results]
    return [
        replace(r, name=f"{r.name} ({names[: i + 1].count(r.name)})") if names.count(r.name) > 1 else r
        for i, r in enumerate(results)
    ]


def evenly(length: int, most: int) -> NDArray[np.int64]:
    """Places in a sequence, at most `most` of them at even distances.

    Args:
        length: The length of the sequence.
        most: How many places are wanted.
    """
    return np.unique(np.linspace(0, length - 1, min(length, most)).astype(np.int64))


@lru_cache(maxsize=32)
def _outlook(plan: Plan, noise: Noise) -> tuple[Values, Outlook]:
    own = plan.outlook(_P, noise)
    return (_P, own) if own is not None else (_FEW_P, outlook(plan, noise, _FEW_P))


def _bars(series: str, values: Values, edges: Values, format: str) -> Bars:
    share = distribution(values, edges)
    inputs = np.rint(share * len(values)).astype(np.int64)
    columns = [Column("from", edges[:-1], format), Column("to", edges[1:], format), Column("inputs", inputs, ",d")]
    return Bars(series, edges, share, (*columns, Column("share", share, ".1%")))


def _names(results: Sequence[Results]) -> tuple[str, ...]:
    return tuple(r.name for r in results)


def _in_norm(results: Sequence[Results]) -> str:
    """The norm of the radii, to follow the title of an axis."""
    known = norms(results)
    if not known:
        return ""
    if len(known) > 1:
        return f" ({' or '.join(known)}, by run)"
    return f" ({known[0]})" if all(r.noise is not None for r in results) else f" ({known[0]} where known)"


def _different_norms(results: Sequence[Results]) -> str:
    known = norms(results)
    if len(known) < 2:
        return ""
    runs = "; ".join(f"{norm}: {', '.join(_of_norm(results, norm))}" for norm in known)
    return f"The runs measure radii in different norms, which cannot be compared ({runs})."


def _of_norm(results: Sequence[Results], norm: str) -> list[str]:
    return [r.name for r in results if r.noise is not None and r.noise.norm == norm]


def _decided(results: Sequence[Results], text: str, *, before: bool = False) -> str:
    """A sentence about the runs that decide radii, with their names unless all of them do."""
    names = [r.name for r in results if r.decided_radii is not None]
    if not names:
        return ""
    if before:
        return f"{text}." if len(names) == len(results) else f"{text} ({', '.join(names)})."
    subject = "The curve" if len(names) == len(results) else f"The curve of {', '.join(names)}"
    return f"{subject} {text}."


def _sentences(*parts: str | bool) -> str:
    return " ".join(part for part in parts if isinstance(part, str) and part)

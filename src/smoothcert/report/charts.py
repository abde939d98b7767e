"""The charts of a report: each function computes the numbers of one chart from `Results`.

`vega.spec` draws a chart in the page, `figures.plot` as a figure. Where runs have no numbers for a chart, it has no
layers. A new chart is one more function here and one more line in `charts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from smoothcert.noises import Noise
from smoothcert.plans import Plan
from smoothcert.plans.base import Outlook
from smoothcert.plans.coverage import outlook
from smoothcert.report.chart import Axis, Bars, Chart, Column, Line, Points, Values
from smoothcert.report.wording import acr_note, asked, different_norms, distinct, in_norm, outcomes
from smoothcert.runs.results import Results
from smoothcert.statistics.metrics import distribution, round_down

_CURVE_POINTS = 151
_BINS_OF_SAMPLES = 24
_BINS_OF_P = 50
_P = np.concatenate([np.linspace(0.5, 0.98, 97), 1 - np.geomspace(2e-2, 1e-5, 50)[1:], [1.0]])
# A plan without a closed form needs a forward pass over its states for every p, so it gets fewer of them.
_FEW_P = np.concatenate([np.linspace(0.5, 0.95, 16), [0.97, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9999, 1.0]])


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
    caption = (
        "The share of inputs whose answer is correct and provably stays correct under any change up to the radius."
    )
    return Chart(
        "certified-accuracy",
        "Certified accuracy",
        _names(results),
        Axis(f"radius r{in_norm(results)}"),
        Axis("certified accuracy", "percent"),
        tuple(layers),
        _sentences(
            caption,
            bands and "Bands: 95% Clopper-Pearson, where the inputs count as a random sample.",
            different_norms(results),
            asked("The curve is known only at the radii that were asked for", shown),
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
        Axis(f"ACR{in_norm(results)}", zero=False),
        tuple(layers),
        _sentences(
            "Average certified radius (ACR) against forward passes per input: up and to the left is better.",
            bands and "Lines: 95% band over inputs; for runs on the same inputs, the bands move together.",
            different_norms(results),
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
        Axis(f"radius{in_norm(results)}"),
        tuple(layers),
        _sentences(
            "Each mark is one input.",
            adaptive and "An adaptive plan spends its samples where they gain radius.",
            any(len(r) > most for r in results) and f"Of larger runs, {most:,} inputs are shown.",
            different_norms(results),
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
    room = 1.001 if high > 1.5 * low else 2.5  # where all inputs cost about the same, the axis still has some width
    edges = np.geomspace(max(low, 1) / room, high * room, _BINS_OF_SAMPLES + 1)
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


def _sentences(*parts: str | bool) -> str:
    return " ".join(part for part in parts if isinstance(part, str) and part)

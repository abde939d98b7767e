"""The charts of a report: each function computes the numbers of one chart from `Results`.

`vega.spec` draws a chart. Where runs have no numbers for a chart, it has no layers. A new chart is
one more function here and one more line in `charts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from smoothcert.noises import Noise, Transformed
from smoothcert.plans import Plan
from smoothcert.plans.expected import Expected, expected
from smoothcert.report.chart import Axis, Bars, Chart, Line, Points, Values, histogram
from smoothcert.report.wording import (
    acr_note,
    different_norms,
    in_norm,
    on_decided_radii,
    outcomes,
    promise,
    sentences,
    stopped,
    when,
)
from smoothcert.runs.attacks import read_attacks
from smoothcert.runs.comparison import Comparison, Curve
from smoothcert.runs.questions import level_of
from smoothcert.runs.results import Results
from smoothcert.runs.run import Run
from smoothcert.runs.summary import share_above_band
from smoothcert.statistics.metrics import certified_accuracy as certified_share
from smoothcert.statistics.metrics import evenly, round_down

POINTS = 6_000
"""Inputs that the scatter plot shows, over all runs; larger runs are thinned out evenly."""
_CURVE_POINTS = 151
_BINS_OF_SAMPLES = 24
_P_POWER = 6  # spreads out the values near 1, where small differences make large radii
_P = np.concatenate([np.linspace(0.5, 0.98, 97), 1 - np.geomspace(2e-2, 1e-5, 50)[1:], [1.0]])
_FEW_P = np.concatenate(
    [np.linspace(0.5, 0.95, 16), [0.97, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9999, 1.0]]
)
"""For a plan without a closed form, which needs a forward pass over its states for every p."""
_BANDS = "Bands: 95% Clopper-Pearson, where the inputs count as a random sample."


def charts(runs: Sequence[Results]) -> list[Chart]:
    """All charts that these runs have numbers for."""
    drawn = [
        certified_accuracy(runs),
        probabilities(runs),
        trade_off(runs),
        radius_against_samples(runs),
        samples(runs),
        sample_maps(runs),
    ]
    if len(runs) == 1:  # a single mark is not worth a chart
        drawn = [chart for chart in drawn if chart.id != "trade-off"]
    return [chart for chart in drawn if chart.layers]


def certified_accuracy(runs: Sequence[Results]) -> Chart:
    """Certified accuracy CA(r) against the radius r, one curve per run that has labels."""
    labelled = [run for run in runs if run.labelled]
    largest = max((float(run.radius.max(initial=0)) for run in labelled), default=0.0)
    grid = np.linspace(0, max(largest, 0.01) * 1.02, _CURVE_POINTS)
    layers = [_accuracy_curve(run, grid) for run in labelled]
    attacked = [_attacked_curve(run, grid[-1]) for run in labelled if isinstance(run, Run)]
    drawn = [line for line in attacked if line is not None]
    return Chart(
        "certified-accuracy",
        "Certified accuracy",
        (*_names(runs), *(line.series for line in drawn)),
        Axis(f"radius r{in_norm(runs)}"),
        Axis("certified accuracy", "percent"),
        (*layers, *drawn),
        sentences(
            "The share of inputs whose answer is correct, where no "
            f"{promise(labelled)} can alter it.",
            _BANDS,
            when(bool(drawn), "Attacked: what attacks left unbroken."),
            different_norms(runs),
            on_decided_radii("The curve is known only at the radii that were asked for", labelled),
        ),
    )


def _accuracy_curve(run: Results, grid: Values) -> Line:
    radii = grid
    if run.decided_radii is not None:
        radii = np.union1d(grid[grid <= max(run.decided_radii)], run.decided_radii)
    low, high = run.certified_accuracy_band(radii)
    return Line(run.name, radii, run.certified_accuracy(radii), low, high, step=True)


def _attacked_curve(run: Run, end: float) -> Line | None:
    """The share of inputs that attacks left unbroken, to the largest successful change or `end`."""
    attacks = read_attacks(run)
    if attacks is None:
        return None
    successful = attacks.distance[np.isfinite(attacks.distance)]
    radii = np.linspace(0, np.max(successful, initial=end), 2 * _CURVE_POINTS)
    return Line(f"{run.name}, attacked", radii, attacks.attacked_accuracy(radii), step=True)


def trade_off(runs: Sequence[Results]) -> Chart:
    """ACR against average samples, one mark per run that has labels and knows its samples."""
    counted = [run for run in runs if run.labelled and run.average_samples is not None]
    return Chart(
        "trade-off",
        "What the radius costs",
        _names(runs),
        Axis("average samples per input", "count", zero=False),
        Axis(f"ACR{in_norm(runs)}", zero=False),
        tuple(map(_acr_mark, counted)),
        sentences(
            "Average certified radius (ACR) against forward passes per input: up and to the left "
            "is better.",
            "Lines: 95% band over inputs; for runs on the same inputs, the bands move together.",
            different_norms(runs),
            acr_note(counted),
        ),
    )


def _acr_mark(run: Results) -> Points:
    mark = Points(
        run.name,
        np.array([run.average_samples]),
        np.array([run.acr]),
        columns={"method": np.array([str(run.plan)])},
    )
    if run.acr_band is None:
        return mark
    low, high = run.acr_band
    return replace(mark, low=np.array([low]), high=np.array([high]))


def radius_against_samples(runs: Sequence[Results]) -> Chart:
    """The radius of each input against the samples that it got."""
    most = POINTS // max(len(runs), 1)
    marks = [layer for layer in (_marks(run, most) for run in runs) if len(layer.x)]
    adaptive = any(run.certified_by and run.certified_by.adaptive for run in runs)
    thinned = any(len(run) > most for run in runs)
    return Chart(
        "radius-against-samples",
        "Radius against samples spent",
        _names(runs),
        Axis("samples spent (log scale)", "count", log=True),
        Axis(f"radius{in_norm(runs)}"),
        tuple(marks),
        sentences(
            "Each mark is one input.",
            when(adaptive, "An adaptive plan spends its samples where they gain radius."),
            when(thinned, f"Of larger runs, {most:,} inputs are shown."),
            different_norms(runs),
        ),
    )


def _marks(run: Results, most: int) -> Points:
    """Radius and samples of each input, of at most so many inputs."""
    kept = evenly(len(run), most)
    kept = kept[run.samples[kept] > 0]
    y = np.array([float(round_down(radius, 4)) for radius in run.radius[kept].tolist()])
    outcome = outcomes(run)[kept]
    columns = {"input": run.id[kept].astype(object), "p": run.p[kept], "outcome": outcome}
    return Points(run.name, run.samples[kept], y, outcome=outcome, columns=columns)


def samples(runs: Sequence[Results]) -> Chart:
    """The distribution of samples over inputs."""
    spent = {
        run.name: np.log(np.maximum(run.samples, 1))
        for run in runs
        if run.average_samples is not None
    }
    edges = np.histogram_bin_edges(np.concatenate([[], *spent.values()]), _BINS_OF_SAMPLES)
    return Chart(
        "samples",
        "Samples per input",
        _names(runs),
        Axis("samples spent (log scale)", "count", log=True),
        Axis("share of inputs", "percent"),
        tuple(
            histogram(name, np.exp(edges), np.histogram(values, edges)[0] / len(values))
            for name, values in spent.items()
        ),
        "How many forward passes inputs needed.",
    )


def probabilities(runs: Sequence[Results]) -> Chart:
    """The share of inputs that are correct with a p above t, against t.

    This figure hardly depends on the number of samples.
    """
    counted = [run for run in runs if np.any(run.counted)]
    grid = np.append(np.linspace(0.5, 0.99, 50), 1 - np.geomspace(8e-3, 1e-4, 20))
    layers = []
    for run in counted:
        low, high = share_above_band(run, grid)
        layers.append(Line(run.name, grid, run.share_above(grid), low, high, step=True))
    labelled = any(run.labelled for run in counted)
    return Chart(
        "probabilities",
        "How sure the votes are",
        _names(runs),
        Axis("p, the share of votes for the class", "percent", zero=False, power=_P_POWER),
        Axis("share of inputs above p", "percent"),
        tuple(layers),
        sentences(
            f"The share of inputs {'that are correct with' if labelled else 'with'} a share of "
            "votes above p. It hardly depends on the number of samples.",
            when(
                not any(isinstance(run.noise, Transformed) for run in runs),
                "With unlimited samples, these inputs would be certified at the radius that "
                "belongs to p.",
            ),
            _BANDS,
            stopped(runs),
        ),
    )


def sample_maps(runs: Sequence[Results]) -> Chart:
    """Samples against p, one curve per run whose plan gives inputs different numbers of samples."""
    layers = []
    expectations = []
    for run in runs:
        plan = run.certified_by
        # Under a transformation, samples depend on pictures.
        if plan and plan.adaptive and run.noise and not isinstance(run.noise, Transformed):
            p, spent = _expected(plan, run.noise)
            layers.append(Line(run.name, p, np.asarray(spent.samples)))
            expectations.append(spent)
    return Chart(
        "sample-map",
        "The sample map in use",
        _names(runs),
        Axis("p, the probability of the class", zero=False),
        Axis("samples", "count"),
        tuple(layers),
        sentences(
            "How many samples an input gets, given the probability of its class.",
            when(
                any(spent.average for spent in expectations),
                "Where the number depends on chance, the curve shows its expectation.",
            ),
            when(
                any(spent.pilot_not_counted for spent in expectations),
                "A planned number leaves out the pilot.",
            ),
        ),
    )


@lru_cache(maxsize=32)
def _expected(plan: Plan, noise: Noise) -> tuple[Values, Expected]:
    """What a plan spends, at many p or, if only its states tell, at a few."""
    derived = plan.expected(_P, noise)
    if derived is not None:
        return _P, derived
    return _FEW_P, expected(plan, noise, _FEW_P, simulated=0)


def difference(comparison: Comparison, curve: Curve) -> Chart:
    """The difference of certified accuracy between two runs against the radius, with its band."""
    a = comparison.a.name
    b = comparison.b.name
    low = np.clip(curve.difference - curve.band, -1, 1)
    high = np.clip(curve.difference + curve.band, -1, 1)
    confidence = comparison.differences[0].confidence
    return Chart(
        "difference",
        f"Certified accuracy of {b} minus that of {a}",
        (a, b),
        Axis(f"radius r{in_norm([comparison.a, comparison.b])}"),
        Axis("difference", "percent"),
        (Line(b, curve.radii, curve.difference, low, high, step=True),),
        f"Above 0, {b} certifies more. Where the band leaves out 0, the difference is more than "
        f"chance, for the whole curve together, at {100 * confidence:g}%.",
    )


def finest_shares(levels: Sequence[Results], radii: Sequence[float]) -> Values:
    """The share of inputs by their finest proved answer (answers, radii).

    The first row is for those that have none, the next one for the coarsest level. Where labels
    are known, only right answers count.

    Args:
        levels: The answers of each level, from coarse to fine.
        radii: The radii.
    """
    reached = [np.ones(len(radii))]
    for level in levels:
        counts = level.correct if level.labelled else ~level.abstained
        reached.append(certified_share(level.radius, counts, radii, closed=level.closed))
    return np.abs(np.diff(reached, axis=0, append=0))


def finest_answers(levels: Sequence[Results], radii: Sequence[float]) -> Chart:
    """The share of inputs by their finest proved answer, as one band over the radii.

    Args:
        levels: The answers of each level, from coarse to fine.
        radii: The radii.
    """
    shares = finest_shares(levels, radii)[:0:-1]  # from the classes, at the bottom, to the coarsest
    high = np.cumsum(shares, axis=0)
    places = np.array([f"{radius:g}" for radius in radii])
    titles = [level_of(level) for level in reversed(levels)]
    layers = [
        Bars(title, places, share, top - share, top)
        for title, share, top in zip(titles, shares, high, strict=True)
    ]
    right = "right " if any(level.labelled for level in levels) else ""
    return Chart(
        "finest-answers",
        "The finest answer that is proved",
        tuple(titles),
        Axis(f"radius r{in_norm(levels)}"),
        Axis("share of inputs", "percent"),
        tuple(layers),
        f"The share of inputs whose {right}answer no change smaller than r can alter, by the "
        "finest answer that is proved. Above the band, nothing is.",
    )


def _names(runs: Sequence[Results]) -> tuple[str, ...]:
    return tuple(run.name for run in runs)

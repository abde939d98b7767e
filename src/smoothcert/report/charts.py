"""The charts of a report: each function computes the numbers of one chart from `Results`.

`vega.spec` draws a chart. Where runs have no numbers for a chart, it has no layers. A new chart is one more function
here and one more line in `charts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from smoothcert.noises import Noise
from smoothcert.plans import Plan
from smoothcert.plans.expected import Expected, expected
from smoothcert.report.vega import Axis, Chart, Line, Points, Values, histogram
from smoothcert.report.wording import (
    acr_note,
    asked,
    different_norms,
    in_norm,
    outcomes,
    promise,
    stopped,
)
from smoothcert.runs.attacks import read_attacks
from smoothcert.runs.comparison import Comparison, Curve
from smoothcert.runs.results import Results
from smoothcert.runs.run import Run
from smoothcert.statistics.metrics import evenly, round_down

_CURVE_POINTS = 151
_BINS_OF_SAMPLES = 24
_P_POWER = 6  # spreads out the values near 1, where small differences make large radii
_P = np.concatenate([np.linspace(0.5, 0.98, 97), 1 - np.geomspace(2e-2, 1e-5, 50)[1:], [1.0]])
# A plan without a closed form needs a forward pass over its states for every p, so it gets fewer of them.
_FEW_P = np.concatenate(
    [np.linspace(0.5, 0.95, 16), [0.97, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9999, 1.0]]
)


def charts(results: Sequence[Results], *, most_points: int | None = None) -> list[Chart]:
    """All charts that these results have numbers for."""
    made = (
        certified_accuracy(results),
        probabilities(results),
        *([trade_off(results)] if len(results) > 1 else []),  # a single mark is not worth a chart
        radius_against_samples(results, most_points=most_points),
        samples(results),
        sample_maps(results),
    )
    return [chart for chart in made if chart.layers]


def certified_accuracy(results: Sequence[Results]) -> Chart:
    """Certified accuracy CA(r) against the radius r, one curve per run that has labels."""
    shown = [r for r in results if r.labelled]
    attacks = {
        r.name: found
        for r in shown
        if isinstance(r, Run) and (found := read_attacks(r)) is not None
    }
    largest = max((float(r.radius.max(initial=0)) for r in shown), default=0.0)
    grid = np.linspace(0, max(largest, 0.01) * 1.02, _CURVE_POINTS)
    layers = []
    for r in shown:
        decided = r.decided_radii
        radii = grid if decided is None else np.union1d(grid[grid <= max(decided)], decided)
        share, (low, high) = r.certified_accuracy(radii), r.certified_accuracy_band(radii)
        layers.append(Line(r.name, radii, share, low, high, step=True))
        if r.name in attacks:
            label = "attacked" if len(shown) == 1 else f"{r.name}, attacked"
            changes = attacks[r.name].distance
            wide = np.linspace(
                0, np.max(changes[np.isfinite(changes)], initial=grid[-1]), 2 * _CURVE_POINTS
            )
            layers.append(Line("", wide, attacks[r.name].attacked_accuracy(wide), label=label))
    fewest = min(map(len, attacks.values()), default=0)
    return Chart(
        "certified-accuracy",
        "Certified accuracy",
        _names(results),
        Axis(f"radius r{in_norm(results)}"),
        Axis("certified accuracy", "percent"),
        tuple(layers),
        _sentences(
            f"The share of inputs whose answer is correct, where no {promise(shown)} can alter it.",
            "Bands: 95% Clopper-Pearson, where the inputs count as a random sample.",
            fewest > 0
            and f"Grey: what attacks on {fewest:,} inputs left unbroken."
            + (" The truth lies between the curves." if fewest == len(shown[0]) else ""),
            different_norms(results),
            asked("The curve is known only at the radii that were asked for", shown),
        ),
    )


def trade_off(results: Sequence[Results]) -> Chart:
    """ACR against average samples, one mark per run that has labels and knows its samples."""
    shown = [r for r in results if r.labelled and r.average_samples is not None]
    layers = []
    for r in shown:
        x, y = np.array([r.average_samples]), np.array([r.acr])
        low, high = (
            (None, None) if (band := r.acr_band) is None else (np.array([end]) for end in band)
        )
        layers.append(Points(r.name, x, y, low, high, columns={"method": np.array([str(r.plan)])}))
    return Chart(
        "trade-off",
        "What the radius costs",
        _names(results),
        Axis("average samples per input", "count", zero=False),
        Axis(f"ACR{in_norm(results)}", zero=False),
        tuple(layers),
        _sentences(
            "Average certified radius (ACR) against forward passes per input: up and to the left is better.",
            "Lines: 95% band over inputs; for runs on the same inputs, the bands move together.",
            different_norms(results),
            acr_note(shown),
        ),
    )


def radius_against_samples(results: Sequence[Results], *, most_points: int | None = None) -> Chart:
    """The radius of each input against the samples that it got."""
    most = (
        max((len(r) for r in results), default=0)
        if most_points is None
        else most_points // max(len(results), 1)
    )
    layers = []
    for r in results:
        together = (
            r.decided_radii is not None
        )  # many inputs have the same radius and the same samples
        kept = np.arange(len(r)) if together else evenly(len(r), most)
        kept = kept[r.samples[kept] > 0]
        if len(kept):
            layers.append(_marks(r, kept, together=together))
    adaptive = any(r.certified_by is not None and r.certified_by.adaptive for r in results)
    return Chart(
        "radius-against-samples",
        "Radius against samples spent",
        _names(results),
        Axis("samples spent (log scale)", "count", log=True),
        Axis(f"radius{in_norm(results)}"),
        tuple(layers),
        _sentences(
            "Each mark is one input."
            if not any(layer.inputs is not None for layer in layers)
            else "Each mark is one input, or several with the same radius and samples; larger marks stand for more.",
            adaptive and "An adaptive plan spends its samples where they gain radius.",
            any(len(r) > most for r in results if r.decided_radii is None)
            and f"Of larger runs, {most:,} inputs are shown.",
            different_norms(results),
        ),
    )


def samples(results: Sequence[Results]) -> Chart:
    """The distribution of samples over inputs."""
    shown = {r.name: r.samples for r in results if r.average_samples is not None}
    low, high = (
        pick((int(pick(spent)) for spent in shown.values()), default=1) for pick in (min, max)
    )
    room = (
        1.001 if high > 1.5 * low else 2.5
    )  # where all inputs cost about the same, the axis still has some width
    edges = np.geomspace(max(low, 1) / room, high * room, _BINS_OF_SAMPLES + 1)
    return Chart(
        "samples",
        "Samples per input",
        _names(results),
        Axis("samples spent (log scale)", "count", log=True),
        Axis("share of inputs", "percent"),
        tuple(
            histogram(name, edges, np.histogram(spent, edges)[0] / len(spent))
            for name, spent in shown.items()
        ),
        "How many forward passes inputs needed.",
    )


def probabilities(results: Sequence[Results]) -> Chart:
    """The share of inputs that are correct with a p above t, against t: a figure that hardly depends on the samples."""
    shown = [r for r in results if np.any(r.counted)]
    grid = np.append(np.linspace(0.5, 0.99, 50), 1 - np.geomspace(8e-3, 1e-4, 20))
    layers = []
    for r in shown:
        share, (low, high) = r.share_above(grid), r.share_above_band(grid)
        layers.append(Line(r.name, grid, share, low, high, step=True))
    correct = any(r.labelled for r in shown)
    return Chart(
        "probabilities",
        "How sure the votes are",
        _names(results),
        Axis("p, the share of votes for the class", "percent", zero=False, power=_P_POWER),
        Axis("share of inputs above p", "percent"),
        tuple(layers),
        _sentences(
            f"The share of inputs {'that are correct with' if correct else 'with'} a share of votes above p. It hardly "
            "depends on the number of samples: with unlimited samples, these inputs would be certified at the radius "
            "that belongs to p.",
            "Bands: 95% Clopper-Pearson, where the inputs count as a random sample.",
            stopped(results),
        ),
    )


def sample_maps(results: Sequence[Results]) -> Chart:
    """Samples against p, one curve per run whose plan gives inputs different numbers of samples."""
    shown = {
        r.name: _expected(plan, r.noise)
        for r in results
        if (plan := r.certified_by) is not None and r.noise is not None and plan.adaptive
    }
    layers = tuple(Line(name, p, np.asarray(found.samples)) for name, (p, found) in shown.items())
    averages = [found.average for _, found in shown.values()]
    title = "expected samples" if all(averages) else "samples needed"
    some = any(averages) and not all(averages)
    return Chart(
        "sample-map",
        "The sample map in use",
        _names(results),
        Axis("p, the probability of the class", zero=False),
        Axis("samples, needed or expected" if some else title, "count"),
        layers,
        _sentences(
            "How many samples an input gets, given the probability of its class.",
            any(averages)
            and "Where the number depends on chance, the curve shows its expectation.",
            any(found.pilot_not_counted for _, found in shown.values())
            and "A planned number leaves out the pilot.",
        ),
    )


def difference(comparison: Comparison, curve: Curve) -> Chart:
    """The difference of certified accuracy between two runs against the radius, with its band."""
    a, b = comparison.a.name, comparison.b.name
    low, high = (np.clip(curve.difference + side * curve.band, -1, 1) for side in (-1, 1))
    return Chart(
        "difference",
        f"Certified accuracy of {b} minus that of {a}",
        (a, b),
        Axis(f"radius r{in_norm([comparison.a, comparison.b])}"),
        Axis("difference", "percent"),
        (
            Line(b, curve.radii, curve.difference, low, high, step=True),
            Line("", curve.radii, 0 * curve.radii, label="alike"),
        ),
        f"Above 0, {b} certifies more. Where the band leaves out 0, the difference is more than chance, for the whole "
        f"curve together, at {100 * comparison.differences[0].confidence:g}%.",
    )


@lru_cache(maxsize=32)
def _expected(plan: Plan, noise: Noise) -> tuple[Values, Expected]:
    derived = plan.expected(_P, noise)
    if derived is not None:
        return _P, derived
    return _FEW_P, expected(plan, noise, _FEW_P, simulated=0)


def _marks(results: Results, kept: Values, *, together: bool) -> Points:
    """Radius and samples of these inputs; `together` draws one mark for all that share both and the outcome."""
    became = outcomes(results)[kept]
    radius = np.array([float(round_down(v, 4)) for v in results.radius[kept].tolist()])
    spent, p, id = results.samples[kept], results.p[kept], results.id[kept].astype(object)
    inputs = None
    if together:
        _, first, group = np.unique(
            np.rec.fromarrays([spent, radius, became]), return_index=True, return_inverse=True
        )
        inputs = np.bincount(group)
        p = np.bincount(group, np.nan_to_num(p)) / inputs
        spent, radius, became = spent[first], radius[first], became[first]
        id = np.where(
            inputs > 1, np.array([f"{n:,} inputs" for n in inputs.tolist()], object), id[first]
        )
    columns = {"input": id, "p": p, "outcome": became}
    return Points(results.name, spent, radius, outcome=became, inputs=inputs, columns=columns)


def _names(results: Sequence[Results]) -> tuple[str, ...]:
    return tuple(r.name for r in results)


def _sentences(*parts: str | bool) -> str:
    return " ".join(part for part in parts if isinstance(part, str) and part)

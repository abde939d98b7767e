"""What a plan does with inputs whose class has a known probability: the sample map of `map`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert.noises import Noise
from smoothcert.plans.at_radii import AtRadii
from smoothcert.plans.base import ByRule, Plan, follows
from smoothcert.plans.combined import Combined
from smoothcert.plans.endings import Forward, TooManyStates, simulated_endings
from smoothcert.plans.exact import Exact
from smoothcert.plans.fixed import Fixed
from smoothcert.plans.input_specific import InputSpecific
from smoothcert.plans.pilot import PilotPlan
from smoothcert.plans.price import Price
from smoothcert.statistics.bounds import lower_bound, pmf

_FEW = 200  # inputs for each p, to plan with
_SIMULATED = 10_000  # inputs for each p, where the states are too many; of bets, for all p together


class Outlook(NamedTuple):
    """What a plan does with inputs whose class has a known probability; one entry per probability."""

    samples: Any
    """Samples as planned, without `pilot_not_counted`; where `expected` is true, the expectation of all samples."""
    proved: dict[str, Any]
    """What is proved, by column title: radii, or probabilities to prove a radius."""
    expected: bool
    simulated: bool = False
    """Whether both are shares and averages over simulated inputs."""
    pilot_not_counted: int = 0
    """Samples of a pilot that an input costs in addition to `samples`."""


def outlook(plan: Plan, noise: Noise, p: ArrayLike, *, simulated: int = _SIMULATED) -> Outlook:
    """What a plan does with inputs whose class has probability p; with bets, from `simulated` inputs in all."""
    plan, values = plan.primary.for_noise(noise), np.atleast_1d(_check.probabilities("p", p))
    known = in_closed_form(plan, values, noise)
    return _from_states(plan, values, noise, simulated) if known is None else known


@ByRule
def in_closed_form(plan: Plan, p: ArrayLike, noise: Noise) -> Outlook | None:
    """The outlook of plans that need no pass over all states for it; None for the others."""
    return None


@in_closed_form.register(Fixed)
def _(plan: Fixed, p: ArrayLike, noise: Noise) -> Outlook:
    p = np.asarray(p, float)
    radius = noise.radius(lower_bound(p * plan.samples, plan.samples, alpha=plan.level))
    samples, extra = np.full(p.shape, plan.samples), plan.pilot - plan.counted_before()
    return Outlook(
        samples, {"radius": np.maximum(radius, 0)}, expected=False, pilot_not_counted=extra
    )


@in_closed_form.register(InputSpecific)
def _(plan: InputSpecific, p: ArrayLike, noise: Noise) -> Outlook:
    p, psi = np.asarray(p, float), plan.sample_map(noise)
    needed = psi(p)
    kept = np.where(needed > 0, psi.radius(np.maximum(needed, 1), p), 0)
    full = noise.radius(p) if plan.reference == "ideal" else psi.radius(plan.samples, p)
    title = "ideal radius" if plan.reference == "ideal" else "radius at ceiling"
    proved, extra = (
        {"radius": np.maximum(kept, 0), title: np.maximum(full, 0)},
        plan.pilot - plan.counted_before(),
    )
    return Outlook(needed, proved, expected=False, pilot_not_counted=extra)


@in_closed_form.register(Price)
def _(plan: Price, p: ArrayLike, noise: Noise) -> Outlook:
    ended = simulated_endings(
        plan, noise, p, repetitions=_SIMULATED // 10, rng=np.random.default_rng(0)
    )
    radius = np.maximum(noise.radius(ended.needed), 0).mean(axis=1)
    return Outlook(ended.samples.mean(axis=1), {"radius": radius}, expected=True, simulated=True)


@in_closed_form.register(Exact)
def _(plan: Exact, p: ArrayLike, noise: Noise) -> Outlook:
    p = np.asarray(p, float)
    radius = np.maximum(noise.certified_radius(p), 0)
    return Outlook(np.full(p.shape, noise.outcomes or 0), {"radius": radius}, expected=False)


@in_closed_form.register(AtRadii)
def _(plan: AtRadii, p: ArrayLike, noise: Noise) -> Outlook | None:
    if plan.remembers:
        return None
    forward = Forward(plan, noise, most_groups=np.inf)
    found = [forward.ending(float(q), limit=np.inf) for q in np.atleast_1d(p)]
    proved = {
        f"proves {radius:g}": _without_rounding_errors(
            [
                sum(share for lower, share in end.proved.items() if lower >= threshold)
                for end in found
            ]
        )
        for radius, threshold in zip(
            plan.radii, plan.tables(noise).thresholds.tolist(), strict=True
        )
    }
    return Outlook(np.array([end.samples for end in found]), proved, expected=True)


def _from_states(plan: Plan, p: Any, noise: Noise, simulated: int) -> Outlook:
    limits = {
        f"proves {r:g}": np.nextafter(noise.needed_probability(r), 0) for r in plan.radii or ()
    }
    limits = limits or {"certified": 0.5}
    try:
        forward = Forward(plan, noise)
        samples = np.array([forward.ending(q, limit=np.inf).samples for q in p.tolist()])
        proved = {
            title: _without_rounding_errors(
                [forward.ending(q, limit=limit).failed for q in p.tolist()]
            )
            for title, limit in limits.items()
        }
        return Outlook(samples, proved, expected=True)
    except TooManyStates:
        repetitions = _SIMULATED if plan.radii is None else max(simulated // len(p), 100)
        ended = simulated_endings(
            plan, noise, p, repetitions=repetitions, rng=np.random.default_rng(0)
        )
        proved = {title: (ended.needed > limit).mean(axis=1) for title, limit in limits.items()}
        return Outlook(ended.samples.mean(axis=1), proved, expected=True, simulated=True)


def _without_rounding_errors(sums: ArrayLike) -> NDArray[np.float64]:
    """Sums of probabilities, which floating-point errors can move above 1."""
    return np.round(np.clip(sums, 0, 1), 12)


@ByRule
def expected_samples(plan: Plan, p: Any, noise: Noise) -> Any:
    """The samples that an input costs on average if its class has probability p, every forward pass counted."""
    return simulated_endings(
        plan, noise, p, repetitions=10, rng=np.random.default_rng(0)
    ).samples.mean(axis=1)


@expected_samples.register(PilotPlan)
def _(plan: PilotPlan, p: Any, noise: Noise) -> Any:
    if not plan.pilot:
        return np.full(len(p), float(plan.samples))
    votes = np.arange(plan.pilot + 1)
    return plan.pilot + pmf(votes, plan.pilot, p[:, None]) @ plan.after_pilot(votes, noise)


@expected_samples.register(Price)
def _(plan: Price, p: Any, noise: Noise) -> Any:
    goes_on = _misses(plan.looks, tuple(p)) < plan.limits(noise)[:, None, None]
    reached = np.logical_and.accumulate(goes_on, axis=0)[:-1].mean(
        axis=1
    )  # the share that draws for a later look
    first, *later = np.diff(plan.looks, prepend=0)
    return plan.pilot + first + np.array(later) @ reached


@lru_cache(maxsize=2)
def _misses(looks: tuple[int, ...], p: tuple[float, ...]) -> NDArray[np.int32]:
    """Simulated misses at each look, of `_FEW` inputs for each p: the same for every price that a budget tries."""
    rng, steps = np.random.default_rng(0), np.diff(looks, prepend=0)
    drawn = [rng.binomial(step, 1 - np.array(p), (_FEW, len(p))).astype(np.int32) for step in steps]
    return np.cumsum(drawn, axis=0, dtype=np.int32)


@expected_samples.register(Combined)
def _(plan: Combined, p: Any, noise: Noise) -> Any:
    return np.max([expected_samples(part, p, noise) for part in plan.plans], axis=0)


def basis(plan: Plan) -> tuple[Any, ...] | None:
    """Radii of two plans with equal bases count from the same sample on, so they can be compared one by one.

    None for a plan whose radii cannot be compared like that.
    """
    if not (isinstance(plan, PilotPlan) and follows(plan, PilotPlan, Price)):
        return None
    return (plan.pilot, plan.pilot_use, plan.alpha, plan.bound, plan.known_labels)


def is_adaptive(plan: Plan) -> bool:
    """Whether inputs get different numbers of samples."""
    return not follows(plan, Fixed, Exact)

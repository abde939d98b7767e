"""Settings and words that the two plans which decide radii share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smoothcert import _check
from smoothcert.errors import InvalidInput, setting
from smoothcert.noises import Noise
from smoothcert.plans.follow import unanimous
from smoothcert.statistics.group_sequential import GIVE_UP

if TYPE_CHECKING:
    from smoothcert.plans.at_radii import AtRadii
    from smoothcert.plans.betting_radii import BettingRadii


def checked_radii(radii: Any) -> tuple[float, ...]:
    """Radii in increasing order, at least one."""
    try:
        numbers = [] if radii is None else np.atleast_1d(np.asarray(radii, float)).tolist()
    except (TypeError, ValueError):
        raise InvalidInput(
            "radii-not-numbers",
            "radii must be numbers, as in [0, 0.25, 0.5], got {value!r}",
            value=radii,
        ) from None
    if not numbers:
        raise InvalidInput("no-radii", "radii must hold at least one radius, got none")
    return tuple(sorted(set(_check.radii(numbers))))


def checked_pilot(pilot: Any, default: int, *, known_labels: bool) -> int:
    """Samples of the pilot; known labels need none."""
    pilot = _check.whole("pilot", pilot)
    if not known_labels:
        return pilot or default
    if pilot:
        raise InvalidInput(
            "needless-pilot",
            "with known labels, deciding radii needs no pilot, got {given}",
            given=setting("pilot", pilot),
        )
    return 0


def checked_give_up(give_up: Any) -> float:
    """A chance from 0 to below 1."""
    chance = _check.at_least("give_up", give_up, 0)
    if chance >= 1:
        raise InvalidInput(
            "give-up-too-large", "give_up must be below 1, got {value:g}", value=chance
        )
    return chance


def in_words(plan: AtRadii | BettingRadii) -> str:
    radii = ", ".join(f"{radius:g}" for radius in plan.radii)
    words = [f"radii {radii}", f"ceiling {plan.samples:,}"]
    if plan.bound == "runner-up":
        words.append("runner-up bound")
    if plan.known_labels:
        words.append("known labels")
    if plan.give_up != GIVE_UP:
        words.append(f"giving up at {plan.give_up:g}")
    return ", ".join(words)


def check_provable(plan: AtRadii | BettingRadii, noise: Noise) -> None:
    """Refuse radii that not even unanimous votes prove."""
    most = unanimous(plan, noise).proof().radius
    for radius in plan.radii:
        if most is not None and radius <= most:
            continue
        if noise.needed_probability(radius) >= 1:
            raise InvalidInput(
                "radius-never-proved",
                "{noise} proves no radius above {largest:g}, whatever the number of samples, got "
                "{radius:g}: use smaller radii",
                noise=noise,
                largest=min(float(noise.certified_radius(1.0)), radius),
                radius=radius,
            )
        raise InvalidInput(
            "too-few-samples",
            "a radius above {radius:g} can never be proved with {samples:,} samples at alpha "
            "{alpha:g} under {noise}: use more samples or smaller radii",
            radius=radius,
            samples=plan.samples,
            alpha=plan.alpha,
            noise=noise,
        )

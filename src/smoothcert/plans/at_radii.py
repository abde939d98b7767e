"""Deciding chosen radii by exact sequential tests: look after look, until every radius is proved or given up.

Most tables report certified accuracy at a few radii. To decide whether the radius is above 0.5, an input with p = .95
needs a few hundred samples, not 100,000. All samples count, and the probability of a wrong certificate is at most
alpha, whatever the number of radii: the boundaries are nested, so proving any false radius implies proving the
smallest false one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert.errors import InvalidInput, setting
from smoothcert.noises import Noise
from smoothcert.plans.base import Plan
from smoothcert.plans.records import State
from smoothcert.statistics.boundaries import (
    boundary,
    crossing_probability,
    default_looks,
    give_up_counts,
)
from smoothcert.statistics.sample_map import check_ceiling

_PILOT = 50


@dataclass(frozen=True)
class AtRadii(Plan):
    """Decide for each input which of the given radii are proved, with as few samples as possible.

    A certificate states the largest radius that was proved. It says that the true radius is above it. A proved radius
    of 0 means that the class has the majority. Under noises whose radii are whole numbers, above r means at least
    r + 1, as in every table of certified accuracy.

    Args:
        radii: The radii to decide.
        samples: The ceiling: the most samples that a decision rests on.
        alpha: The probability that a certificate is wrong, at most.
        pilot: Samples that choose the class and do not count. 0 stands for the default: 50, or none with known labels.
        known_labels: Whether the class is the input's label instead of the pilot's choice.

    >>> from smoothcert import Certificate, Gaussian, Look
    >>> looks = [Look(50, {3: 49}), Look(60, {3: 60})]
    >>> Certificate.from_votes(looks, plan=AtRadii([0, 0.5], samples=10_000), noise=Gaussian(0.5)).radius
    0.5
    """

    radii: tuple[float, ...]
    samples: int = 100_000
    alpha: float = 0.001
    pilot: int = 0
    known_labels: bool = False
    name: ClassVar[str] = "radii"

    def __post_init__(self) -> None:
        try:
            given = [] if self.radii is None else np.atleast_1d(np.asarray(self.radii, float)).tolist()
        except (TypeError, ValueError):
            raise InvalidInput(f"radii must be numbers, as in [0, 0.25, 0.5], got {self.radii!r}") from None
        if not given:
            raise InvalidInput("radii must hold at least one radius, got none")
        radii = sorted({_check.at_least("each radius", radius, 0) for radius in given})
        pilot = _check.whole("pilot", self.pilot)
        if self.known_labels and pilot:
            raise InvalidInput(f"with known labels, deciding radii needs no pilot, got {setting('pilot', pilot)}")
        object.__setattr__(self, "radii", tuple(radii))
        object.__setattr__(self, "samples", check_ceiling(self.samples, self.alpha))
        object.__setattr__(self, "alpha", float(self.alpha))
        object.__setattr__(self, "pilot", 0 if self.known_labels else pilot or _PILOT)

    def __str__(self) -> str:
        radii = ", ".join(f"{radius:g}" for radius in self.radii)
        labels = ", known labels" if self.known_labels else ""
        return f"radii {radii}, ceiling {self.samples:,}{labels}"

    @property
    def smallest_request(self) -> int:
        return int(np.diff(default_looks(self.samples), prepend=0).min())

    def tables(self, noise: Noise) -> Tables:
        """Thresholds, looks and boundaries under this noise; computed once per process.

        Args:
            noise: The smoothing noise.
        """
        return _tables(self, noise)

    def for_noise(self, noise: Noise) -> Self:
        super().for_noise(noise)
        tables = self.tables(noise)
        hopeless = tables.needed[:, -1] > tables.looks[-1]
        if np.any(hopeless):
            first = int(np.argmax(hopeless))
            radius = self.radii[first]
            if tables.thresholds[first] >= 1:
                largest = min(float(noise.certified_radius(1.0)), radius)
                raise InvalidInput(
                    f"{noise} proves no radius above {largest:g}, whatever the number of samples, got {radius:g}: use "
                    "smaller radii"
                )
            raise InvalidInput(
                f"a radius above {radius:g} can never be proved with {self.samples:,} samples at alpha {self.alpha:g} "
                f"under {noise}: use more samples or smaller radii"
            )
        return self

    def request(self, state: State, noise: Noise) -> Any:
        tables = self.tables(noise)
        look = np.asarray(state.look) - (1 if self.pilot else 0)
        last = len(tables.looks)
        step = tables.steps[np.minimum(look, last - 1)]
        level = np.searchsorted(tables.thresholds, state.lower, side="right")
        undecided = np.minimum(level, len(self.radii) - 1)
        hopeless = np.asarray(state.count) <= tables.given_up[undecided, np.maximum(look - 1, 0)]
        stop = (look >= last) | ((look >= 1) & ((level >= len(self.radii)) | hopeless))
        return np.where(stop, 0, step)[()]

    def lower_bound(self, state: State, noise: Noise) -> Any:
        tables = self.tables(noise)
        look = np.asarray(state.look) - (2 if self.pilot else 1)
        # A boundary belongs to one number of samples: votes of any other number prove nothing.
        due = np.asarray(state.drawn) == np.asarray(tables.looks)[look]
        reached = due[..., None] & (np.asarray(state.count)[..., None] >= tables.needed.T[look])
        return np.concatenate([[0.0], tables.thresholds])[reached.sum(axis=-1)][()]

    def certified_radius(self, lower: ArrayLike, upper: ArrayLike | None, noise: Noise) -> Any:
        level = np.searchsorted(self.tables(noise).thresholds, lower, side="right")
        return np.concatenate([[np.nan], self.radii])[level][()]


class Tables(NamedTuple):
    """What a plan that decides radii needs to know about each look."""

    looks: tuple[int, ...]
    """Samples at each look."""
    steps: NDArray[np.int64]
    """Samples drawn for each look."""
    thresholds: NDArray[np.float64]
    """The probability that proves more than each radius."""
    needed: NDArray[np.int64]
    """Votes needed, by radius and look."""
    given_up: NDArray[np.int64]
    """The largest count with which a radius is given up, by radius and look."""
    spent: NDArray[np.float64]
    """The probability to prove each radius if its probability is just at the threshold."""


@lru_cache(maxsize=64)
def _tables(plan: AtRadii, noise: Noise) -> Tables:
    looks = default_looks(plan.samples)
    # Rounded on its own, the threshold of one radius may lie a hair above that of the next one.
    thresholds = np.maximum.accumulate([noise.needed_probability(radius) for radius in plan.radii])
    needed = np.empty((len(thresholds), len(looks)), np.int64)
    spent = np.empty(len(thresholds))
    for j, threshold in enumerate(thresholds.tolist()):
        if threshold >= 1:
            needed[j], spent[j] = np.asarray(looks) + 1, 0.0
            continue
        needed[j], spent[j] = boundary(threshold, looks, alpha=plan.alpha)
        if j and np.any(needed[j] < needed[j - 1]):  # nested boundaries need no correction for several radii
            needed[j] = np.maximum(needed[j], needed[j - 1])
            spent[j] = crossing_probability(needed[j], looks, threshold)
    given_up = np.stack([give_up_counts(int(row[-1]), looks) for row in needed])
    return Tables(looks, np.diff(looks, prepend=0), thresholds, needed, given_up, spent)

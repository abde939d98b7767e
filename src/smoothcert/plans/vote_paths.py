"""What a chart of a sequential plan shows: its boundaries, and the votes of inputs on their way to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothcert.noises import Noise
from smoothcert.plans.at_radii import AtRadii
from smoothcert.plans.base import Plan
from smoothcert.plans.combined import looks_seen_by, primary
from smoothcert.plans.dispatch import ByRule
from smoothcert.plans.machine import Case
from smoothcert.plans.records import Look


class Boundaries(NamedTuple):
    """How many votes prove something at each look of a sequential plan."""

    looks: NDArray[np.int64]
    """Samples that count at each look."""
    needed: dict[str, NDArray[np.int64]]
    """Votes needed at each look, by what they prove, as in "radius 0.5". More than the samples: no votes are enough."""


class Path(NamedTuple):
    """The votes of one input, summed up at each look that counts."""

    samples: NDArray[np.int64]
    """Samples that count."""
    votes: NDArray[np.int64]
    """Votes for the class among them."""


@ByRule
def boundaries(plan: Plan, noise: Noise) -> Boundaries | None:
    """How many votes prove something at each look; None for a plan that does not look again and again."""
    return None


@boundaries.register(AtRadii)
def _(plan: AtRadii, noise: Noise) -> Boundaries | None:
    if plan.remembers:
        return None
    tables = plan.tables(noise)
    needed = {f"radius {radius:g}": votes for radius, votes in zip(plan.radii, tables.needed, strict=True)}
    return Boundaries(np.asarray(tables.looks, np.int64), needed)


def path(plan: Plan, looks: Sequence[Look], noise: Noise, label: int | None = None) -> Path:
    """The votes of one input at each look that counts, to be drawn beside `boundaries`."""
    first = primary(plan)
    case, points = Case(first, noise, label), []
    for look in looks if first is plan else looks_seen_by(first, looks, noise, label):
        case.add(look)
        proof = case.proof()
        if proof.counted:
            points.append((proof.counted, proof.count))
    return Path(*np.array(points, np.int64).reshape(-1, 2).T)

"""Several plans on the same draws, at the cost of the most expensive one.

Samples are keyed, so what a short plan draws is the beginning of what a long one draws. The
combined plan draws once and pauses wherever one of the plans would have looked. So each plan sees
exactly the votes that it would see alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers
from smoothcert.plans.base import Plan, Proof, settle
from smoothcert.plans.expected import expected_samples
from smoothcert.plans.follow import Case, whole_samples
from smoothcert.plans.votes import Look, Votes


class Part(NamedTuple):
    """Where one of the plans stands."""

    state: Any
    more: int
    """Samples that it wants next."""
    since: Look = Look(0, {})
    """The votes since its last look."""


@dataclass(frozen=True, slots=True)
class Combined(Plan):
    """Runs several plans on the same samples. Its own certificates are those of the first plan.

    `Run.split` gives the results of every plan.

    Args:
        plans: The plans; the first one certifies.

    >>> from smoothcert import Fixed, Gaussian, InputSpecific
    >>> both = Combined((Fixed(10_000), InputSpecific(10_000, decline=0.05)))
    >>> case = Case(both, Gaussian(0.5))
    >>> case.add(Look(100, {3: 90, 5: 10}))  # what input-specific sampling wants next
    1924
    """

    plans: tuple[Plan, ...]
    name: ClassVar[str] = "combined"

    def __post_init__(self) -> None:
        if not self.plans:
            raise InvalidInput("no-plans", "plans must hold at least one plan, got none")
        settle(self, plans=tuple(self.plans))

    def __str__(self) -> str:
        return f"{self.name} {self.samples:,}, certificates of {self.plans[0]}"

    @property
    def samples(self) -> int:  # type: ignore[override]
        return max(plan.samples for plan in self.plans)

    @property
    def pilot(self) -> int:  # type: ignore[override]
        return min(plan.pilot for plan in self.plans)

    @property
    def known_labels(self) -> bool:  # type: ignore[override]
        return any(plan.known_labels for plan in self.plans)

    @property
    def alpha(self) -> float:  # type: ignore[override]
        return self.plans[0].alpha

    @property
    def radii(self) -> tuple[float, ...] | None:  # type: ignore[override]
        return self.plans[0].radii

    @property
    def bound(self) -> str:  # type: ignore[override]
        return self.plans[0].bound

    @property
    def primary(self) -> Plan:
        return self.plans[0].primary

    @property
    def most_samples(self) -> int:
        return max(plan.most_samples for plan in self.plans)

    @property
    def smallest_request(self) -> int:
        return min(plan.smallest_request for plan in self.plans)

    def for_noise(self, noise: Noise) -> Self:
        for plan in self.plans:
            plan.for_noise(noise)
        return self

    def init(self, noise: Noise, chosen: Numbers = None) -> tuple[Part, ...]:
        states = [plan.init(noise, chosen if plan.known_labels else None) for plan in self.plans]
        return tuple(_asked(*pair) for pair in zip(self.plans, states, strict=True))

    def update(self, state: tuple[Part, ...], votes: Votes) -> tuple[Part, ...]:
        if not isinstance(votes, Look):
            raise InvalidInput(
                "one-input-at-a-time",
                '"{plan}" follows one input at a time: ask each of its plans alone',
                plan=self,
            )
        return tuple(
            _after(plan, part, votes) for plan, part in zip(self.plans, state, strict=True)
        )

    def request(self, state: tuple[Part, ...]) -> int:
        return min((part.more - part.since.samples for part in state if part.more), default=0)

    def prove(self, state: tuple[Part, ...]) -> Proof:
        return self.plans[0].prove(state[0].state)

    def p_value(
        self, looks: Sequence[Look], radius: float, noise: Noise, label: int | None = None
    ) -> float | None:
        first = self.plans[0]
        return first.p_value(looks_seen_by(first, looks, noise, label), radius, noise, label)

    def expected_samples(self, p: Numbers, noise: Noise) -> Numbers:
        return np.max([expected_samples(plan, p, noise) for plan in self.plans], axis=0)


def _asked(plan: Plan, state: Any) -> Part:
    return Part(state, whole_samples(plan, plan.request(state)))


def _after(plan: Plan, part: Part, look: Look) -> Part:
    """Where a plan stands after more votes, which complete its look or not."""
    since = part.since + look
    if since.samples != part.more:
        return part._replace(since=since)
    return _asked(plan, plan.update(part.state, since))


def looks_seen_by(plan: Plan, looks: Sequence[Look], noise: Noise, label: int | None) -> list[Look]:
    """The looks that a plan would have had alone, out of the finer looks of a combined plan."""
    case = Case(plan, noise, label)
    seen = []
    since = Look(0, {})
    for look in looks:
        since = since + look
        if since.samples == case.more:
            seen.append(since)
            case.add(since)
            since = Look(0, {})
    return seen

"""Several plans on the same draws, at the cost of the most expensive one.

Samples are keyed, so what a short plan draws is the beginning of what a long one draws. The combined plan draws once
and pauses wherever one of the plans would have looked. So each plan sees exactly the votes that it would see alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from numpy.typing import ArrayLike

from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.plans.base import Look, Plan, Proof, State
from smoothcert.plans.machine import Case, accumulate, begin, conclude, proof


@dataclass(frozen=True)
class Combined(Plan):
    """Runs several plans on the same samples. Its own certificates are those of the first plan.

    `Run.split` gives the results of every plan.

    Args:
        plans: The plans; the first one certifies.

    >>> from smoothcert import Fixed, Gaussian, InputSpecific
    >>> both = Combined((Fixed(10_000), InputSpecific(10_000, decline=0.05)))
    >>> case = Case(both, Gaussian(0.5))
    >>> case.add(Look(100, {3: 90, 5: 10}))  # what input-specific sampling wants, on the way to 10,000
    1924
    """

    plans: tuple[Plan, ...]
    name: ClassVar[str] = "combined"

    def __post_init__(self) -> None:
        if not (plans := tuple(self.plans)):
            raise InvalidInput("plans must hold at least one plan, got none")
        vars(self).update(
            plans=plans,
            samples=max(plan.samples for plan in plans),
            pilot=min(plan.pilot for plan in plans),
            known_labels=any(plan.known_labels for plan in plans),
            **{name: getattr(plans[0], name) for name in ("alpha", "radii", "bound")},
        )

    def __str__(self) -> str:
        return f"{self.name} {self.samples:,}, certificates of {self.plans[0]}"

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

    def remember(self, state: State, votes: Any, noise: Noise) -> tuple[_Part, ...]:
        """Where each plan stands.

        Args:
            state: The state of the one input.
            votes: The votes of this look.
            noise: The smoothing noise.
        """
        return tuple(part.after(votes, noise) for part in self._parts(state, noise))

    def request(self, state: State, noise: Noise) -> Any:
        parts = self._parts(state, noise)
        return min(
            (part.state.more - part.since.samples for part in parts if part.state.more), default=0
        )

    def _parts(self, state: State, noise: Noise) -> tuple[_Part, ...]:
        """The memory, or where each plan stands before the first look."""
        starts = (
            begin(plan, noise, chosen=state.chosen if plan.known_labels else None)
            for plan in self.plans
        )
        return state.memory or tuple(map(_Part, self.plans, starts))

    def lower_bound(self, state: State, noise: Noise) -> Any:
        return state.memory[0].state.lower

    def certified_radius(self, lower: ArrayLike, upper: ArrayLike | None, noise: Noise) -> Any:
        return self.plans[0].certified_radius(lower, upper, noise)


class _Part(NamedTuple):
    """Where one of the plans stands, and the votes since its last look."""

    plan: Plan
    state: State
    since: Look = Look(0, {})

    def after(self, look: Look, noise: Noise) -> _Part:
        since = self.since + look
        if since.samples != self.state.more:
            return self._replace(since=since)
        return _Part(
            self.plan, conclude(self.plan, noise, accumulate(self.plan, noise, self.state, since))
        )


@proof.register
def _(plan: Combined, noise: Noise, state: State) -> Proof:
    first = plan._parts(state, noise)[0]
    return proof(first.plan, noise, first.state)


def looks_seen_by(plan: Plan, looks: Sequence[Look], noise: Noise, label: int | None) -> list[Look]:
    """The looks that a plan would have had alone, out of the finer looks of a combined plan."""
    case, seen, since = Case(plan, noise, label), [], Look(0, {})
    for look in looks:
        since = since + look
        if since.samples == case.more:
            seen.append(since)
            case.add(since)
            since = Look(0, {})
    return seen

"""Several plans on the same draws, at the cost of the most expensive one.

Samples are keyed, so what a short plan draws is the beginning of what a long one draws. The combined plan draws once
and pauses wherever one of the plans would have looked. So each plan sees exactly the votes that it would see alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from numpy.typing import ArrayLike

from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.plans.base import Plan
from smoothcert.plans.machine import Case, accumulate, begin, conclude, proof
from smoothcert.plans.records import Look, Proof, State


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
    def most_samples(self) -> int:
        return max(plan.most_samples for plan in self.plans)

    @property
    def smallest_request(self) -> int:
        return min(plan.smallest_request for plan in self.plans)

    def for_noise(self, noise: Noise) -> Self:
        for plan in self.plans:
            plan.for_noise(noise)
        return self

    def remember(self, state: State, votes: Any, noise: Noise) -> _Memory:
        """All votes so far, and where each plan stands.

        Args:
            state: The state of the one input.
            votes: The votes of this look.
            noise: The smoothing noise.
        """
        memory = state.memory or _start(self, noise, state.chosen)
        all_votes = memory.all_votes + Counter(votes.votes)
        drawn = memory.drawn + votes.samples
        parts = tuple(_advanced(part, drawn, all_votes, noise) for part in memory.parts)
        return _Memory(drawn, all_votes, parts)

    def request(self, state: State, noise: Noise) -> Any:
        memory = state.memory or _start(self, noise, state.chosen)
        ends = [part.start + part.state.more for part in memory.parts if part.state.more]
        return min(ends) - memory.drawn if ends else 0

    def lower_bound(self, state: State, noise: Noise) -> Any:
        return state.memory.parts[0].state.lower

    def certified_radius(self, lower: ArrayLike, upper: ArrayLike | None, noise: Noise) -> Any:
        return self.plans[0].certified_radius(lower, upper, noise)


class _Part(NamedTuple):
    """Where one of the plans stands, and what was drawn before its next look."""

    plan: Plan
    state: State
    start: int
    votes_at_start: Counter[int]


class _Memory(NamedTuple):
    """What was drawn so far, and where each plan stands."""

    drawn: int
    all_votes: Counter[int]
    parts: tuple[_Part, ...]


def _start(plan: Combined, noise: Noise, label: int | None) -> _Memory:
    parts = [(part, begin(part, noise, chosen=label if part.known_labels else None)) for part in plan.plans]
    return _Memory(0, Counter(), tuple(_Part(*part, 0, Counter()) for part in parts))


def _advanced(part: _Part, drawn: int, all_votes: Counter[int], noise: Noise) -> _Part:
    """The part after its next look, if that is due."""
    if not part.state.more or part.start + part.state.more != drawn:
        return part
    look = Look(part.state.more, dict(all_votes - part.votes_at_start))
    state = conclude(part.plan, noise, accumulate(part.plan, noise, part.state, look))
    return _Part(part.plan, state, drawn, all_votes)


@proof.register
def _(plan: Combined, noise: Noise, state: State) -> Proof:
    first = (state.memory or _start(plan, noise, state.chosen)).parts[0]
    return proof(first.plan, noise, first.state)


def primary(plan: Plan) -> Plan:
    """The plan whose certificates these are: the plan itself, or the first one of a combined plan."""
    return primary(plan.plans[0]) if isinstance(plan, Combined) else plan


def looks_seen_by(plan: Plan, looks: Sequence[Look], noise: Noise, label: int | None) -> list[Look]:
    """The looks that a plan would have had alone, out of the finer looks of a combined plan."""
    case, seen = Case(plan, noise, label), []
    drawn, votes = 0, Counter[int]()
    for look in looks:
        drawn, votes = drawn + look.samples, votes + Counter(look.votes)
        if drawn == case.more:
            seen.append(Look(drawn, dict(votes)))
            case.add(seen[-1])
            drawn, votes = 0, Counter[int]()
    return seen

"""Several plans on the same draws, at the cost of the most expensive one.

Samples are keyed, so what a short plan draws is the beginning of what a long one draws. The combined plan draws once
and pauses wherever one of the plans would have looked. So each plan sees exactly the votes that it would see alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.plans.base import Case, Plan
from smoothcert.plans.records import Boundaries, Look, Path, Proof, State


@dataclass(frozen=True)
class Combined(Plan):
    """Runs several plans on the same samples. Its own certificates are those of the first plan.

    `Run.split` gives the results of every plan.

    Args:
        plans: The plans; the first one certifies.

    >>> from smoothcert import Fixed, Gaussian, InputSpecific
    >>> both = Combined((Fixed(10_000), InputSpecific(10_000, decline=0.05)))
    >>> pilot = Look(100, {3: 90, 5: 10})
    >>> both.more([pilot], Gaussian(0.5))  # what input-specific sampling wants, on the way to 10,000
    1924
    """

    plans: tuple[Plan, ...]
    name: ClassVar[str] = "combined"
    former_names: ClassVar[tuple[str, ...]] = ("Together",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plans", tuple(self.plans))
        if not self.plans:
            raise InvalidInput("plans must hold at least one plan, got none")

    def __str__(self) -> str:
        return f"{self.name} {self.samples:,}, certificates of {self.plans[0]}"

    @property
    def samples(self) -> int:  # type: ignore[override]
        return max(plan.samples for plan in self.plans)

    @property
    def alpha(self) -> float:  # type: ignore[override]
        return self.primary.alpha

    @property
    def pilot(self) -> int:  # type: ignore[override]
        return min(plan.pilot for plan in self.plans)

    @property
    def known_labels(self) -> bool:  # type: ignore[override]
        return any(plan.known_labels for plan in self.plans)

    @property
    def primary(self) -> Plan:
        return self.plans[0].primary

    @property
    def most_samples(self) -> int:
        return max(plan.most_samples for plan in self.plans)

    @property
    def smallest_request(self) -> int:
        return min(plan.smallest_request for plan in self.plans)

    @property
    def usual_samples(self) -> float:
        return max(plan.usual_samples for plan in self.plans)

    @property
    def caveat(self) -> str | None:
        return self.primary.caveat

    @property
    def explanation(self) -> str:
        names = "; ".join(map(str, self.plans))
        return (
            "Combined sampling: several plans share the same samples, at the cost of the most expensive one "
            f"({names}). Each sees exactly the votes that it would see alone. It suits comparisons of plans. The "
            f"certificates of the run are those of the first plan. {self.plans[0].explanation}"
        )

    @property
    def radii(self) -> tuple[float, ...] | None:  # type: ignore[override]
        return self.primary.radii

    def check(self, noise: Noise) -> None:
        for plan in self.plans:
            plan.check(noise)

    def request(self, state: State, noise: Noise) -> Any:
        return self.primary.request(state, noise)

    def lower_bound(self, state: State, noise: Noise) -> Any:
        return self.primary.lower_bound(state, noise)

    def follow(self, looks: Sequence[Look], noise: Noise, label: int | None = None) -> Case:
        return _CombinedCase(self, looks, noise, label)

    def boundaries(self, noise: Noise) -> Boundaries | None:
        return self.plans[0].boundaries(noise)

    def path(self, looks: Sequence[Look], noise: Noise, label: int | None = None) -> Path:
        first = self.plans[0]
        return first.path(looks_seen_by(first, looks, noise, label), noise, label)

    def p_value(self, looks: Sequence[Look], p: float, noise: Noise, label: int | None = None) -> float | None:
        first = self.plans[0]
        return first.p_value(looks_seen_by(first, looks, noise, label), p, noise, label)


def looks_seen_by(plan: Plan, looks: Sequence[Look], noise: Noise, label: int | None) -> list[Look]:
    """The looks that a plan would have had alone, out of the finer looks of a combined plan."""
    draws = _Draws(looks)
    part = _Part(plan, noise, label)
    part.advance(draws)
    return part.looks


class _CombinedCase(Case):
    """One input's way through all of the plans at once."""

    def __init__(self, plan: Combined, looks: Sequence[Look], noise: Noise, label: int | None) -> None:
        self.plan: Combined = plan
        self.noise = noise
        self._label = label
        self._draws = _Draws(looks)
        self._parts = [_Part(part, noise, label) for part in plan.plans]
        self.more = self._wanted()

    def add(self, look: Look) -> int:
        self._draws.add(look)
        self.more = self._wanted()
        return self.more

    def proof(self) -> Proof:
        first = self.plan.plans[0]
        return first.prove(self._parts[0].looks, self.noise, self._label)

    def _wanted(self) -> int:
        for part in self._parts:
            part.advance(self._draws)
        ends = [part.start + part.case.more for part in self._parts if part.case.more]
        return min(ends) - self._draws.end if ends else 0


class _Draws:
    """Votes of an input from its first sample on, up to wherever there was a look."""

    def __init__(self, looks: Sequence[Look]) -> None:
        self.end = 0
        self._votes = {0: Counter[int]()}
        for look in looks:
            self.add(look)

    def add(self, look: Look) -> None:
        votes = self._votes[self.end] + Counter(look.votes)
        self.end += look.samples
        self._votes[self.end] = votes

    def between(self, start: int, stop: int) -> Look:
        return Look(stop - start, dict(self._votes[stop] - self._votes[start]))


class _Part:
    """One of the plans: the looks that it has had, and the sample up to which it has looked."""

    def __init__(self, plan: Plan, noise: Noise, label: int | None) -> None:
        self.case = plan.follow((), noise, label)
        self.looks: list[Look] = []
        self.start = 0

    def advance(self, draws: _Draws) -> None:
        while (wanted := self.case.more) and self.start + wanted <= draws.end:
            self.looks.append(draws.between(self.start, self.start + wanted))
            self.start += wanted
            self.case.add(self.looks[-1])

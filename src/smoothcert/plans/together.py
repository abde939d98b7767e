"""Several plans on the same draws, at the cost of the most expensive one.

Samples are keyed, so what a short plan draws is the beginning of what a long one draws. Drawing once and stopping
wherever one of the plans would have looked gives each of them exactly the votes that it would have had alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from smoothcert.errors import InvalidInput
from smoothcert.noise import Noise
from smoothcert.plans.base import Look, Plan, Tally


@dataclass(frozen=True)
class Together(Plan):
    """Serves all of `plans`; its own certificates are those of the first one, `Run.split` gives everybody's.

    >>> from smoothcert import Fixed, Gaussian, InputSpecific
    >>> both = Together((Fixed(10_000), InputSpecific(10_000, decline=0.05)))
    >>> pilot = Look(100, {3: 90, 5: 10})
    >>> both.more([pilot], Gaussian(0.5))  # what input-specific sampling wants, on the way to the 10,000
    1217
    """

    plans: tuple[Plan, ...]
    name: ClassVar[str] = "together"

    def __post_init__(self) -> None:
        object.__setattr__(self, "plans", tuple(self.plans))
        if not self.plans:
            raise InvalidInput("plans must hold at least one plan, got none")

    @property
    def samples(self) -> int:  # type: ignore[override]
        return max(plan.samples for plan in self.plans)

    @property
    def alpha(self) -> float:  # type: ignore[override]
        return self.plans[0].alpha

    def more(self, looks: Sequence[Look], noise: Noise) -> int:
        drawn = sum(look.samples for look in looks)
        ends = [end for plan in self.plans if (end := _seen_by(plan, looks, noise)[1])]
        return min(ends) - drawn if ends else 0

    def tally(self, looks: Sequence[Look], noise: Noise) -> Tally:
        first = self.plans[0]
        return first.tally(looks_of(first, looks, noise), noise)

    def check(self, noise: Noise) -> None:
        for plan in self.plans:
            plan.check(noise)


def looks_of(plan: Plan, looks: Sequence[Look], noise: Noise) -> list[Look]:
    """The looks that one of the plans would have had alone."""
    return _seen_by(plan, looks, noise)[0]


def _seen_by(plan: Plan, looks: Sequence[Look], noise: Noise) -> tuple[list[Look], int | None]:
    """What `plan` makes of these looks, and the sample at which it looks next (None if it has enough)."""
    own: list[Look] = []
    waiting = list(reversed(looks))
    while wanted := plan.more(own, noise):
        parts = []
        while waiting and wanted:
            parts.append(waiting.pop())
            wanted -= parts[-1].samples
        if wanted:
            return own, sum(look.samples for look in looks) + wanted
        own.append(_merge(parts))
    return own, None


def _merge(looks: Sequence[Look]) -> Look:
    votes = Counter[int]()
    for look in looks:
        votes.update(look.votes)
    return Look(sum(look.samples for look in looks), dict(votes))

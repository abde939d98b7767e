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

    @property
    def certifying(self) -> Plan:
        """The first one, or the first of that."""
        return self.plans[0].certifying

    def more(self, looks: Sequence[Look], noise: Noise) -> int:
        draws = _Draws(looks)
        ends = [end for plan in self.plans if (end := draws.seen_by(plan, noise)[1])]
        return min(ends) - draws.end if ends else 0

    def tally(self, looks: Sequence[Look], noise: Noise) -> Tally:
        first = self.plans[0]
        return first.tally(looks_of(first, looks, noise), noise)

    def check(self, noise: Noise) -> None:
        for plan in self.plans:
            plan.check(noise)


def looks_of(plan: Plan, looks: Sequence[Look], noise: Noise) -> list[Look]:
    """The looks that one of the plans would have had alone."""
    return _Draws(looks).seen_by(plan, noise)[0]


class _Draws:
    """Votes of an input from its first sample on, up to wherever there was a look."""

    def __init__(self, looks: Sequence[Look]) -> None:
        self.end = 0
        votes = Counter[int]()
        self._votes = {0: votes}
        for look in looks:
            self.end += look.samples
            votes = votes + Counter(look.votes)
            self._votes[self.end] = votes

    def seen_by(self, plan: Plan, noise: Noise) -> tuple[list[Look], int | None]:
        """The looks that `plan` would have had so far, and the sample at which it looks next (None: it has enough)."""
        looks: list[Look] = []
        start = 0
        while wanted := plan.more(looks, noise):
            stop = start + wanted
            if stop > self.end:
                return looks, stop
            looks.append(Look(wanted, dict(self._votes[stop] - self._votes[start])))
            start = stop
        return looks, None

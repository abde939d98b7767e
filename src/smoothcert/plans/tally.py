"""Counting votes for a class that a pilot chooses: the part that most plans share.

The first look is the pilot. It chooses the class, unless the class is fixed in advance. A plan may
read the votes of the pilot right after it, to decide what to draw. They do not count, and with the
next look they are gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

from smoothcert.errors import InvalidInput, setting
from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers
from smoothcert.plans.votes import Look, Votes

if TYPE_CHECKING:
    from smoothcert.plans.base import Rule


_NO_VOTES = Look(0, {})


class Rivals(NamedTuple):
    """Votes for groups of other classes: `RIVALS` that the first look finds strongest, and all
    others together.
    """

    strongest: Numbers = None
    """The classes that are counted one by one; None before the first look."""
    pilot: Numbers = None
    """Votes for each group in the pilot, right after it."""
    votes: Numbers = None
    """Votes for each group among the samples that count; None before the first of them."""

    def add(self, votes: Votes, chosen: Numbers, *, pilot: bool) -> Rivals:
        """The groups after one more look; `pilot` says whether its votes only plan."""
        strongest = self.strongest
        if strongest is None:
            strongest = votes.strongest_beside(chosen)
        groups = votes.in_groups(chosen, strongest)
        if pilot:
            return Rivals(strongest, groups, None)
        return Rivals(strongest, None, groups if self.votes is None else self.votes + groups)


class Tally(NamedTuple):
    """The class of each input and the votes for it: numbers for one input, arrays for many."""

    noise: Noise
    """The smoothing noise."""
    pilot: int
    """Samples of the first look that choose the class and do not count; 0 if all samples count."""
    look: int = 0
    """Looks so far; the pilot is one of them."""
    chosen: Numbers = None
    """The class; None before it is chosen, and where no sample of the first look had a vote."""
    pilot_count: Numbers = 0
    """Votes for the class in the pilot, right after it."""
    count: Numbers = 0
    """Votes for the class among the `drawn` samples."""
    drawn: Numbers = 0
    """Samples that count."""
    rivals: Rivals | None = None
    """Votes for other classes; None for a plan that does not need them."""
    every: Any = None
    """Votes for every class among the samples that count; None for a plan that does not need
    them."""

    @classmethod
    def begin(
        cls, rule: Rule, noise: Noise, chosen: Numbers = None, *, rivals: bool = False
    ) -> Self:
        """Before the first look. A class that counted votes would choose is refused.

        Args:
            rule: The plan. Its `pilot` samples do not count.
            noise: The smoothing noise.
            chosen: The class, if it is fixed in advance.
            rivals: Whether to count the votes for other classes.
        """
        if not (rule.pilot or rule.known_labels or noise.outcomes):
            raise InvalidInput(
                "no-pilot",
                '"{plan}" has no pilot, so the votes that choose the class would count for it, '
                "and certificates could be wrong more often than alpha says: give it a pilot, or "
                "{labels}",
                plan=rule,
                labels=setting("known_labels", True),
            )
        every = _NO_VOTES if rule.top > 1 else None
        return cls(
            noise, rule.pilot, chosen=chosen, rivals=Rivals() if rivals else None, every=every
        )

    def add(self, votes: Votes) -> Tally:
        """The tally after one more look."""
        chosen = self.chosen
        if chosen is None and self.look == 0:
            chosen = votes.top
        in_pilot = self.look == 0 and self.pilot > 0
        rivals = self.rivals
        if rivals is not None:
            rivals = rivals.add(votes, chosen, pilot=in_pilot)
        after = self._replace(look=self.look + 1, chosen=chosen, rivals=rivals)
        if in_pilot:
            return after._replace(pilot_count=votes.of(chosen))
        count = self.count + votes.of(chosen)
        every = self.every
        if every is not None:
            every = votes if every is _NO_VOTES else every + votes
        drawn = self.drawn + votes.samples
        return after._replace(pilot_count=0, count=count, drawn=drawn, every=every)

    @property
    def without_class(self) -> bool:
        """Whether no sample of the first look had a vote. Such an input needs no more samples."""
        return self.look > 0 and self.chosen is None

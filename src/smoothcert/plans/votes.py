"""The votes of one look, their tally, and whether recorded votes and answers are still the same.

The votes of a look are a dictionary by class for one input (`Look`), and arrays for many
(`ManyVotes`). A plan asks both the same questions: `of(chosen)` and `top`. What it asks about other
classes, it asks its `Tally`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import numpy as np

from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers
from smoothcert.statistics.bounds import Counts

if TYPE_CHECKING:
    from smoothcert.plans.base import Rule

Answer: TypeAlias = tuple[int, float]
"""The label that a model gives to an input, and its margin over the next label."""

_CHANGED_LABELS = 0.05
"""The share of recorded labels or votes that may differ: other GPUs and numbers of threads round
differently."""
_CHANGED_MARGIN = 0.02
"""The share of a recorded margin by which it may differ."""
RIVALS = 3
"""Classes beside the chosen one that are counted one by one; all others are counted together."""


class Cell(NamedTuple):
    """An interval of amounts by which a picture is transformed."""

    centre: float
    """The amount whose picture is drawn."""
    near: float
    """One end."""
    far: float
    """The other end."""


AS_IT_IS = Cell(0.0, 0.0, 0.0)
"""The picture that is not turned or zoomed."""


@dataclass(frozen=True)
class Look:
    """The votes of one request.

    Args:
        samples: Forward passes of this request.
        votes: Votes by class. A sample without a vote had an output that was not finite.
        margin: For the first look at a cell of transformed pictures: how far any of them can be
            from the picture that the samples are of.
    """

    samples: int
    votes: Mapping[int, int]
    margin: float | None = None

    def __post_init__(self) -> None:
        counts = list(self.votes.values())
        # `int` comes first because an abstract class is slow to ask, and there are many looks.
        are_counts = all(isinstance(n, (int, Integral)) and n >= 0 for n in (self.samples, *counts))
        if not are_counts or sum(counts) > self.samples:
            raise InvalidInput(
                "more-votes-than-samples",
                "votes must be counts that sum to at most samples ({samples}), got {votes}",
                samples=self.samples,
                votes=counts,
            )

    @property
    def top(self) -> int | None:
        """The class with most votes, the smallest one in a tie; None if there are no votes."""
        if not any(self.votes.values()):
            return None
        return min(self.votes, key=lambda c: (-self.votes[c], c))

    @property
    def missing(self) -> int:
        """Samples whose output was not finite: they count for no class."""
        return self.samples - sum(self.votes.values())

    def of(self, chosen: int | None) -> int:
        """Votes for a class.

        Args:
            chosen: The class; None for no class.
        """
        return 0 if chosen is None else self.votes.get(chosen, 0)

    def __add__(self, other: Look) -> Look:
        """The votes of both looks together."""
        return Look(self.samples + other.samples, dict(Counter(self.votes) + Counter(other.votes)))

    def in_array(self, classes: int) -> ManyVotes:
        """The votes as those of many inputs, of which there is one.

        Args:
            classes: The number of classes, above all that have votes.
        """
        votes = np.zeros(classes, np.int64)
        votes[list(self.votes)] = list(self.votes.values())
        return ManyVotes(np.asarray(self.samples), votes)


class ManyVotes:
    """The votes of one look at many inputs.

    Args:
        samples: Samples of each input; 0 for an input that has enough.
        votes: Votes by class, shape (..., classes).
    """

    def __init__(self, samples: Counts, votes: Counts) -> None:
        self.samples = samples
        self._votes = votes

    @property
    def votes(self) -> Counts:
        """Votes by class, shape (..., classes)."""
        return self._votes

    @property
    def top(self) -> Counts:
        return np.asarray(self.votes.argmax(axis=-1))

    def of(self, chosen: Numbers) -> Numbers:
        return np.take_along_axis(self.votes, np.asarray(chosen)[..., None], axis=-1)[..., 0]

    def __add__(self, other: ManyVotes) -> ManyVotes:
        return ManyVotes(self.samples + other.samples, self.votes + other.votes)

    def strongest_beside(self, chosen: Numbers) -> Counts:
        """The other classes with most votes, `RIVALS` of them at most; -1 for a class without a
        vote.

        Args:
            chosen: The class that they are rivals of.
        """
        is_chosen = np.arange(self.votes.shape[-1]) == np.asarray(chosen)[..., None]
        masked = np.where(is_chosen, -1, self.votes)
        most = min(RIVALS, masked.shape[-1] - 1)
        order = np.argsort(-masked, axis=-1, kind="stable")[..., :most]
        return np.where(np.take_along_axis(masked, order, axis=-1) > 0, order, -1)

    def in_groups(self, chosen: Numbers, rivals: Counts) -> Counts:
        """Votes for each rival, and for all other classes together.

        Args:
            chosen: The class that they are rivals of.
            rivals: Rivals that are counted one by one.
        """
        votes = np.take_along_axis(self.votes, np.maximum(rivals, 0), axis=-1)
        alone = np.where(rivals >= 0, votes, 0)
        pooled = (self.votes.sum(axis=-1) - self.of(chosen) - alone.sum(axis=-1))[..., None]
        missing = np.zeros((*alone.shape[:-1], RIVALS - alone.shape[-1]), np.int64)
        return np.concatenate([alone, missing, pooled], axis=-1)

    def largest_beside(self, chosen: Numbers, most: int) -> Counts:
        """The most votes that other classes have, 0 where there are fewer classes.

        Args:
            chosen: The class that they are rivals of.
            most: How many of them.
        """
        others = np.arange(self.votes.shape[-1]) != np.asarray(chosen)[..., None]
        missing = np.zeros((*self.votes.shape[:-1], most), np.int64)
        counts = np.concatenate([np.where(others, self.votes, 0), missing], axis=-1)
        return -np.partition(-counts, most - 1, axis=-1)[..., :most]


Votes = Look | ManyVotes

_NO_VOTES = Look(0, {})


class Tally(NamedTuple):
    """The class of each input and the votes for it: numbers for one input, arrays for many.

    Most plans count votes for a class that a pilot chooses. The pilot is the first look; it chooses
    the class, unless the class is fixed in advance. A plan may read the votes of the pilot right
    after it, to decide what to draw. They do not count, and with the next look they are gone.
    """

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
    first: Any = None
    """All votes of the first look; None before it."""
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
            rivals: Whether to keep the votes for other classes.
        """
        if not (rule.pilot or rule.known_labels or noise.outcomes):
            raise InvalidInput(
                "no-pilot",
                '"{plan}" has no pilot, so the votes that choose the class would count for it, '
                "and certificates could be wrong more often than alpha says: give it a pilot, or "
                "`known_labels=True`",
                plan=rule,
            )
        every = _NO_VOTES if rivals or rule.top > 1 else None
        return cls(noise, rule.pilot, chosen=chosen, every=every)

    def add(self, votes: Votes) -> Tally:
        """The tally after one more look."""
        chosen = self.chosen
        if chosen is None and self.look == 0:
            chosen = votes.top
        first = votes if self.first is None else self.first
        after = self._replace(look=self.look + 1, chosen=chosen, first=first)
        if self.look == 0 and self.pilot:
            return after._replace(pilot_count=votes.of(chosen))
        count = self.count + votes.of(chosen)
        every = self.every
        if every is not None:
            every = votes if every is _NO_VOTES else every + votes
        drawn = self.drawn + votes.samples
        return after._replace(pilot_count=0, count=count, drawn=drawn, every=every)

    def in_groups(self, votes: Votes) -> Counts:
        """Votes for each of the `RIVALS` that the first look finds strongest, and for all other
        classes together.

        Args:
            votes: Those of the first look, or of every sample that counts.
        """
        strongest = self.in_array(self.first).strongest_beside(self.chosen)
        return self.in_array(votes).in_groups(self.chosen, strongest)

    def in_array(self, votes: Votes) -> ManyVotes:
        """Votes as an array, which has a place for the class of one input.

        Args:
            votes: Those of the first look, or of every sample that counts.
        """
        if isinstance(votes, ManyVotes):
            return votes
        return votes.in_array(1 + max([self.chosen, *self.first.votes, *self.every.votes]))

    @property
    def without_class(self) -> bool:
        """Whether no sample of the first look had a vote. Such an input needs no more samples."""
        return self.look > 0 and self.chosen is None

    @property
    def counted_looks(self) -> int:
        """Looks so far, without the pilot."""
        return self.look - 1 if self.pilot and self.look else self.look

    def next_look(self, looks: Sequence[int]) -> int:
        """The samples of the next look; 0 after the last one, and without a class.

        Args:
            looks: The samples that count at each look after the pilot.
        """
        if self.look == 0 and self.pilot:
            return self.pilot
        if self.without_class or self.counted_looks == len(looks):
            return 0
        return int(np.diff(looks, prepend=0)[self.counted_looks])


def same_answers(there: Sequence[Answer] | None, now: Sequence[Answer] | None) -> bool:
    """Whether the labels and margins of a model are the same up to rounding.

    Without answers to compare, they are.

    >>> same_answers([(3, 1.0), (5, 0.001)], [(3, 1.001), (4, 0.001)])
    True
    >>> same_answers([(3, 1.0), (5, 0.001)], [(3, 0.9), (5, 0.001)])
    False
    """
    if there is None or now is None:
        return True
    if len(there) != len(now):
        return False
    typical = median([margin for _, margin in [*there, *now]] or [0.0])
    others = 0
    for (label, margin), (label_now, margin_now) in zip(there, now, strict=True):
        # Where the label has changed, one class had to catch up, and the other one took the lead.
        lead_now = margin_now if label == label_now else -margin_now
        if abs(margin - lead_now) > _CHANGED_MARGIN * (typical + min(margin, margin_now)):
            others += 1
    return others <= _CHANGED_LABELS * len(there)


def same_votes(there: Mapping[int, int], now: Mapping[int, int]) -> bool:
    """Whether the votes of the same samples are the same up to rounding, which can decide a few.

    >>> same_votes({3: 90, 5: 10}, {3: 91, 5: 9}), same_votes({3: 90, 5: 10}, {3: 80, 5: 20})
    (True, False)
    """
    changed = sum(abs(there.get(c, 0) - now.get(c, 0)) for c in {*there, *now}) / 2
    return changed <= 1 + _CHANGED_LABELS * sum(there.values())

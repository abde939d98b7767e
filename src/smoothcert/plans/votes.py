"""The votes of one look: by class in a dictionary for one input, in arrays for many.

A plan asks both the same questions: `of(chosen)`, `top`, `strongest_beside(chosen)`,
`in_groups(chosen, rivals)` and `largest_beside(chosen, most)`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import NamedTuple

import numpy as np

from smoothcert.errors import InvalidInput
from smoothcert.noises.base import Numbers
from smoothcert.statistics.bounds import Counts

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

    def strongest_beside(self, chosen: int | None) -> tuple[int, ...]:
        """The other classes with most votes, `RIVALS` of them at most.

        Args:
            chosen: The class that they are rivals of.
        """
        others = [c for c, count in self.votes.items() if count and c != chosen]
        return tuple(sorted(others, key=lambda c: (-self.votes[c], c))[:RIVALS])

    def in_groups(self, chosen: int | None, rivals: tuple[int, ...]) -> Counts:
        """Votes for each rival, and for all other classes together.

        Args:
            chosen: The class that they are rivals of.
            rivals: Rivals that are counted one by one.
        """
        alone = [self.votes.get(c, 0) for c in rivals] + [0] * (RIVALS - len(rivals))
        pooled = sum(self.votes.values()) - self.of(chosen) - sum(alone)
        return np.array([*alone, pooled])

    def largest_beside(self, chosen: int | None, most: int) -> Counts:
        """The most votes that other classes have, 0 where there are fewer classes.

        Args:
            chosen: The class that they are rivals of.
            most: How many of them.
        """
        counts = sorted((n for c, n in self.votes.items() if c != chosen), reverse=True)
        return np.array([*counts, *[0] * most][:most])


class ManyVotes:
    """The votes of one look at many inputs; the same questions as to a `Look`.

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
        return np.take_along_axis(self.votes, chosen[..., None], axis=-1)[..., 0]

    def strongest_beside(self, chosen: Numbers) -> Numbers:
        masked = np.where(np.arange(self.votes.shape[-1]) == chosen[..., None], -1, self.votes)
        order = np.argsort(-masked, axis=-1, kind="stable")[
            ..., : min(RIVALS, masked.shape[-1] - 1)
        ]
        # As for one input, a class without a vote is not counted alone: -1 stands for it.
        return np.where(np.take_along_axis(masked, order, axis=-1) > 0, order, -1)

    def in_groups(self, chosen: Numbers, rivals: Numbers) -> Numbers:
        votes = np.take_along_axis(self.votes, np.maximum(rivals, 0), axis=-1)
        alone = np.where(rivals >= 0, votes, 0)
        pooled = (self.votes.sum(axis=-1) - self.of(chosen) - alone.sum(axis=-1))[..., None]
        missing = np.zeros((*alone.shape[:-1], RIVALS - alone.shape[-1]), np.int64)
        return np.concatenate([alone, missing, pooled], axis=-1)

    def __add__(self, other: ManyVotes) -> ManyVotes:
        return ManyVotes(self.samples + other.samples, self.votes + other.votes)

    def largest_beside(self, chosen: Numbers, most: int) -> Counts:
        others = np.arange(self.votes.shape[-1]) != np.asarray(chosen)[..., None]
        missing = np.zeros((*self.votes.shape[:-1], most), np.int64)
        counts = np.concatenate([np.where(others, self.votes, 0), missing], axis=-1)
        return -np.partition(-counts, most - 1, axis=-1)[..., :most]


Votes = Look | ManyVotes

"""What goes into a plan and what comes out of it: votes, states and proofs of inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothcert import _check
from smoothcert.errors import InvalidInput

RIVALS = 3
"""Classes beside the predicted one that get an upper bound of their own; all others share one."""


@dataclass(frozen=True)
class Look:
    """The votes of one request.

    Args:
        samples: Forward passes of this request.
        votes: Votes by class. A sample without a vote had an output that was not finite.
    """

    samples: int
    votes: Mapping[int, int]

    def __post_init__(self) -> None:
        cast = sum(_check.whole(f"votes for class {c}", count) for c, count in self.votes.items())
        if cast > _check.whole("samples", self.samples):
            raise InvalidInput(f"votes must be counts that sum to at most samples ({self.samples}), got {cast}")

    @property
    def top(self) -> int | None:
        """The class with most votes, the smallest one in a tie; None if there are no votes."""
        return min(self.votes, key=lambda c: (-self.votes[c], c), default=None) if any(self.votes.values()) else None

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

    def strongest_beside(self, chosen: int | None) -> tuple[int, ...]:
        """The other classes with most votes, `RIVALS` of them at most.

        Args:
            chosen: The class that they are rivals of.
        """
        others = [c for c, count in self.votes.items() if count and c != chosen]
        return tuple(sorted(others, key=lambda c: (-self.votes[c], c))[:RIVALS])

    def in_groups(self, chosen: int | None, rivals: tuple[int, ...]) -> NDArray[np.int64]:
        """Votes for each rival, and for all other classes together.

        Args:
            chosen: The class that they are rivals of.
            rivals: Rivals that are counted one by one.
        """
        alone = [self.votes.get(c, 0) for c in rivals] + [0] * (RIVALS - len(rivals))
        return np.array([*alone, sum(self.votes.values()) - self.of(chosen) - sum(alone)])


@dataclass(frozen=True)
class ManyVotes:
    """The votes of one look at many inputs, as a simulation draws them; the same questions as to a `Look`.

    Args:
        samples: Samples of each input; 0 for an input that has enough.
        votes: Votes by class, shape (..., classes).
    """

    samples: NDArray[np.int64]
    votes: NDArray[np.int64]

    @property
    def top(self) -> NDArray[np.int64]:
        return np.asarray(self.votes.argmax(axis=-1))

    def of(self, chosen: Any) -> Any:
        return np.take_along_axis(self.votes, chosen[..., None], axis=-1)[..., 0]

    def strongest_beside(self, chosen: Any) -> Any:
        masked = np.where(np.arange(self.votes.shape[-1]) == chosen[..., None], -1, self.votes)
        return np.argsort(-masked, axis=-1, kind="stable")[..., : min(RIVALS, masked.shape[-1] - 1)]

    def in_groups(self, chosen: Any, rivals: Any) -> Any:
        alone = np.take_along_axis(self.votes, rivals, axis=-1)
        pooled = (self.votes.sum(axis=-1) - self.of(chosen) - alone.sum(axis=-1))[..., None]
        missing = np.zeros((*alone.shape[:-1], RIVALS - alone.shape[-1]), np.int64)
        return np.concatenate([alone, missing, pooled], axis=-1)


@dataclass(frozen=True)
class ClassVotes:
    """The votes of one look for the class alone, where nothing is known about other classes.

    Args:
        samples: Samples of each input; 0 for an input that has enough.
        count: Votes for the class among them.
    """

    samples: Any
    count: Any

    def of(self, chosen: Any) -> Any:
        return self.count


Votes = Look | ManyVotes | ClassVotes
"""The votes of one look: by class in a dictionary for one input, in arrays for many, or for the class alone."""


class State(NamedTuple):
    """Where inputs stand: arrays of one shape, or plain numbers for one input.

    Args:
        look: How many looks were taken so far; one number for all inputs.
        count: Votes for the class among the `drawn` samples.
        drawn: Samples that count. Right after a pilot that does not count, these are the pilot's samples: a plan may
            use them to decide what to draw, and they are dropped with the next look.
        lower: The largest lower bound that an earlier look proved, 0 for none.
        rivals: Votes for groups of other classes, shape (..., RIVALS + 1); None unless the plan asks for them.
        memory: What `Plan.remember` returned at the last look; None before the first.
        chosen: The class; None until it is chosen.
        strongest: The classes behind all but the last of the `rivals`.
        more: Samples that are wanted next; 0 for an input that has enough.
    """

    look: Any
    count: Any
    drawn: Any
    lower: Any = 0.0
    rivals: Any = None
    memory: Any = None
    chosen: Any = None
    strongest: Any = None
    more: Any = 0


@dataclass(frozen=True)
class Proof:
    """What votes prove about one input.

    Args:
        prediction: The class that the proof is about; None if no class was chosen.
        lower: The probability of the class is at least this. 0 proves nothing.
        upper: The probability of every other class is at most this; None where only `lower` is known.
        count: Votes for the class among the `counted` samples that the bound rests on.
        counted: Samples that the bound rests on.
        radius: The radius that is proved without bounds on probabilities; None where only these tell it.
    """

    prediction: int | None
    lower: float
    upper: float | None = None
    count: int = 0
    counted: int = 0
    radius: float | None = None

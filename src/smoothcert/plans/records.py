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


@dataclass(frozen=True)
class State:
    """Where inputs stand: arrays of one shape, or plain numbers for one input.

    Args:
        look: How many looks were taken so far.
        count: Votes for the class among the `drawn` samples.
        drawn: Samples that count. Right after a pilot that does not count, these are the pilot's samples: a plan may
            use them to decide what to draw, and they are dropped with the next look.
        lower: The largest lower bound that an earlier look proved, 0 for none.
        rivals: Votes for groups of other classes, shape (..., RIVALS + 1); None unless the plan asks for them.
    """

    look: Any
    count: Any
    drawn: Any
    lower: Any = 0.0
    rivals: Any = None


@dataclass(frozen=True)
class Proof:
    """What votes prove about one input.

    Args:
        prediction: The class that the proof is about; None if no class was chosen.
        lower: The probability of the class is at least this. 0 proves nothing.
        upper: The probability of every other class is at most this; None where only `lower` is known.
        count: Votes for the class among the `counted` samples that the bound rests on.
        counted: Samples that the bound rests on.
    """

    prediction: int | None
    lower: float
    upper: float | None = None
    count: int = 0
    counted: int = 0


class Outlook(NamedTuple):
    """What a plan does with inputs whose class has a known probability; one entry per probability."""

    samples: Any
    """Samples, every forward pass counted: as planned, or expected where `expected` is true."""
    proved: dict[str, Any]
    """What is proved, by column title: radii, or probabilities to prove a radius."""
    expected: bool


class Boundaries(NamedTuple):
    """How many votes prove something at each look of a sequential plan."""

    looks: NDArray[np.int64]
    """Samples that count at each look."""
    needed: dict[str, NDArray[np.int64]]
    """Votes needed at each look, by what they prove, as in "radius 0.5". More than the samples: no votes are enough."""


class Path(NamedTuple):
    """The votes of one input, summed up at each look that counts."""

    samples: NDArray[np.int64]
    """Samples that count."""
    votes: NDArray[np.int64]
    """Votes for the class among them."""

"""What a plan is: a pure, immutable rule for how many samples an input gets and which of them count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noise import Noise
from smoothcert.sample_map import check_ceiling

PilotUse = Literal["fresh", "reuse"]


@dataclass(frozen=True)
class Look:
    """The votes of one request: class -> count. Samples without a vote gave no finite output."""

    samples: int
    votes: Mapping[int, int]

    def __post_init__(self) -> None:
        cast = sum(_check.whole(f"votes for class {c}", count) for c, count in self.votes.items())
        if cast > _check.whole("samples", self.samples):
            raise InvalidInput(f"votes must be counts that sum to at most samples ({self.samples}), got {cast}")

    @property
    def top(self) -> int | None:
        """The class with most votes, the smallest one in a tie; None if nothing was voted for."""
        return min(self.votes, key=lambda c: (-self.votes[c], c), default=None) if any(self.votes.values()) else None

    @property
    def missing(self) -> int:
        """Samples whose output was not finite: a vote for no class."""
        return self.samples - sum(self.votes.values())


@dataclass(frozen=True)
class Tally:
    """What goes into the bound: `count` of `samples` votes for the class `prediction`."""

    prediction: int | None
    count: int
    samples: int


class Plan(ABC):
    """Told the votes so far, a plan answers "n more" or "enough" (0), and at the end which votes count.

    A plan may look as often as it wants; it knows nothing of devices, batches or files.
    """

    name: ClassVar[str]
    samples: int
    alpha: float

    @property
    def certifying(self) -> Plan:
        """The plan whose certificates these are: itself, unless it serves several."""
        return self

    @abstractmethod
    def more(self, looks: Sequence[Look], noise: Noise) -> int:
        """How many more samples this input gets; 0 when it has enough."""

    @abstractmethod
    def tally(self, looks: Sequence[Look], noise: Noise) -> Tally:
        """The class, and which votes for it count."""

    def check(self, noise: Noise) -> None:  # noqa: B027 -- a hook: most plans can certify under any noise
        """Raise if this plan can never certify anything under this noise."""


@dataclass(frozen=True, kw_only=True)
class PilotPlan(Plan):
    """A plan of two looks: the pilot picks the class, then one more draw.

    With `pilot_use="fresh"` only the second draw counts. Class and size are then fixed before it is drawn, so
    Clopper-Pearson holds exactly. `"reuse"` counts the pilot again, as published; `coverage` says what that costs.
    """

    samples: int = field(default=100_000, kw_only=False)
    pilot: int = 0
    """0 stands for the default: 1% of the ceiling, at least 100."""
    alpha: float = 0.001
    pilot_use: PilotUse = "fresh"

    def __post_init__(self) -> None:
        samples = check_ceiling(self.samples, self.alpha)
        _check.one_of("pilot_use", self.pilot_use, ("fresh", "reuse"))
        pilot = _check.whole("pilot", self.pilot) or min(max(samples // 100, 100), samples)
        if pilot > samples:
            raise InvalidInput(f"pilot must not exceed samples ({samples}), got {pilot}")
        object.__setattr__(self, "samples", samples)
        object.__setattr__(self, "pilot", pilot)
        object.__setattr__(self, "alpha", float(self.alpha))

    def __str__(self) -> str:
        """The plan in words, for titles."""
        return f"{self.name}, ceiling {self.samples:,}, pilot {self.pilot:,} ({self.pilot_use}), alpha {self.alpha:g}"

    @abstractmethod
    def after_pilot(self, count: ArrayLike, noise: Noise) -> NDArray[np.int64]:
        """How many samples are drawn once the pilot's top class has `count` votes (`a0`)."""

    def more(self, looks: Sequence[Look], noise: Noise) -> int:
        if not looks:
            return self.pilot
        if len(looks) > 1 or (top := looks[0].top) is None:
            return 0
        return int(self.after_pilot(looks[0].votes[top], noise))

    def tally(self, looks: Sequence[Look], noise: Noise) -> Tally:
        top = looks[0].top
        counted = looks if self.pilot_use == "reuse" else looks[1:]
        votes = sum(look.votes.get(top, 0) for look in counted) if top is not None else 0
        return Tally(top, votes, sum(look.samples for look in counted))

    def counted_before(self) -> int:
        """How many samples of the pilot count for the bound."""
        return self.pilot if self.pilot_use == "reuse" else 0

    @property
    def ceiling_cost(self) -> int:
        """What one input costs at the ceiling, pilot included."""
        return self.samples + self.pilot - self.counted_before()


def describe(config: Any) -> dict[str, Any]:
    """A plan or noise as a plain dictionary with its name, for manifests and JSON."""
    settings = {field.name: getattr(config, field.name) for field in fields(config)}
    for name, value in settings.items():
        if isinstance(value, tuple):
            settings[name] = [describe(part) for part in value]
    return {"name": type(config).__name__} | settings

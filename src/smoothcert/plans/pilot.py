"""Plans of two looks: a pilot that chooses the class, then one more draw. And the plan of a pilot alone.

`Price` goes on after the first draw, with further looks.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert.errors import InvalidInput, setting
from smoothcert.noises import Noise
from smoothcert.plans.base import RIVALS, Plan, State
from smoothcert.statistics import bounds
from smoothcert.statistics.sample_map import check_ceiling

PilotUse = Literal["fresh", "reuse"]
Bound = Literal["binary", "runner-up"]


@dataclass(frozen=True, kw_only=True)
class PilotPlan(Plan):
    """A pilot picks the class, then one more draw gives the bound.

    With `pilot_use="fresh"` only the second draw counts. Class and size are then fixed before it is drawn, so
    Clopper-Pearson holds exactly. `"reuse"` counts the pilot again, as published; `coverage` says what that costs.
    `Price` goes on after the first draw, with further looks.

    Args:
        samples: The ceiling: the most samples that a bound rests on.
        pilot: Samples of the first look. 0 stands for the default: 1% of the ceiling, at least 100; none where the
            class is known and nothing has to be planned.
        alpha: The largest probability that a certificate is wrong.
        pilot_use: Whether the pilot only plans ("fresh") or counts again ("reuse").
        bound: "binary" bounds the class alone, as papers do. "runner-up" also bounds the other classes, with half of
            alpha for the class and half for the others, and certifies a class that leads without a majority.
        known_labels: Whether the class is the input's label instead of the pilot's choice.
    """

    samples: int = field(default=100_000, kw_only=False)
    pilot: int = 0
    alpha: float = 0.001
    pilot_use: PilotUse = "fresh"
    bound: Bound = "binary"
    known_labels: bool = False
    plans_ahead: ClassVar[bool] = True
    """Whether the size of the second draw depends on the pilot."""
    default_pilot: ClassVar[int | None] = None
    """Samples of the pilot by default; None for 1% of the ceiling, at least 100."""

    def __post_init__(self) -> None:
        samples = check_ceiling(self.samples, self.alpha)
        _check.one_of("pilot_use", self.pilot_use, ("fresh", "reuse"))
        _check.one_of("bound", self.bound, ("binary", "runner-up"))
        if self.bound == "runner-up" and self.pilot_use == "reuse":
            raise InvalidInput(
                'bound "runner-up" needs fresh samples: pilot_use must be "fresh", got "reuse"'
            )
        pilot = _check.whole("pilot", self.pilot)
        if self.known_labels and not self.plans_ahead and self.bound == "binary":
            if pilot:
                raise InvalidInput(
                    f"with known labels, {self.name} sampling has no pilot, got {setting('pilot', pilot)}"
                )
        else:
            pilot = pilot or min(self.default_pilot or max(samples // 100, 100), samples)
        if pilot > samples:
            raise InvalidInput(f"pilot must not exceed samples ({samples}), got {pilot}")
        vars(self).update(samples=samples, pilot=pilot, alpha=float(self.alpha))
        vars(self).update(
            pilot_counts=self.pilot_use == "reuse", uses_rivals=self.bound == "runner-up"
        )

    def __str__(self) -> str:
        return self._in_words()

    def _in_words(self, *own: str) -> str:
        words = [f"{self.name} {self.samples:,}", *own]
        if self.bound == "runner-up":
            words.append("runner-up bound")
        if self.known_labels:
            words.append("known labels")
        if self.pilot_use == "reuse":
            words.append("pilot reused")
        return ", ".join(words)

    @abstractmethod
    def after_pilot(
        self, count: ArrayLike, noise: Noise, rivals: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """How many samples are drawn after the pilot.

        Args:
            count: Votes for the class in the pilot (`a0`).
            noise: The smoothing noise.
            rivals: Votes for the groups of other classes, where the plan bounds them.
        """

    @property
    def level(self) -> float:
        """The alpha that the lower bound is computed at."""
        return self.alpha / 2 if self.uses_rivals else self.alpha

    def counted_before(self) -> int:
        """How many samples of the pilot count for the bound."""
        return self.pilot if self.pilot_counts else 0

    def request(self, state: State, noise: Noise) -> Any:
        if state.look >= (2 if self.pilot else 1):
            return np.zeros(np.shape(state.count), np.int64)[()]
        if not self.pilot:
            return np.full(np.shape(state.count), self.samples)[()]
        return self.after_pilot(state.count, noise, state.rivals)[()]

    def lower_bound(self, state: State, noise: Noise) -> Any:
        # A pilot that counts proves something by itself only if it is the last look.
        last = (np.asarray(self.request(state, noise)) == 0) & (np.asarray(state.drawn) > 0)
        if not np.any(last):  # a bound takes longer than everything else at a look
            return np.zeros(np.shape(last))[()]
        return np.where(
            last, bounds.lower_bound(state.count, np.maximum(state.drawn, 1), alpha=self.level), 0.0
        )[()]

    def upper_bound(self, state: State, noise: Noise) -> Any:
        groups = RIVALS + 1
        drawn = np.maximum(np.asarray(state.drawn), 1)[..., None]
        highest = bounds.upper_bound(state.rivals, drawn, alpha=self.alpha / (2 * groups)).max(
            axis=-1
        )
        rest = bounds.one_minus_up(bounds.lower_bound(state.count, drawn[..., 0], alpha=self.level))
        return np.minimum(highest, rest)[()]


@dataclass(frozen=True)
class OneLook(Plan):
    """Look once. It certifies nothing: its votes are for predictions, estimates and forecasts."""

    pilot: int
    alpha: float = 0.001
    samples: ClassVar[int] = 0  # type: ignore[misc]
    name: ClassVar[str] = "one-look"

    def __str__(self) -> str:
        return f"one look at {self.pilot:,} samples"

    def request(self, state: State, noise: Noise) -> int:
        return 0

    def lower_bound(self, state: State, noise: Noise) -> float:
        return 0.0

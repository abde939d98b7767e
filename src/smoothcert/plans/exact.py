"""Counting instead of sampling, for noises with few outcomes: certificates that hold without alpha."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from smoothcert import _check
from smoothcert.errors import InvalidInput, either, setting
from smoothcert.noises import Noise
from smoothcert.plans.base import RIVALS, Plan, State


@dataclass(frozen=True)
class Exact(Plan):
    """Classify every outcome of the noise once. The shares of the classes are then their exact probabilities.

    Args:
        samples: The number of outcomes. 0 takes it from the noise.

    >>> from smoothcert.noises import Splitting
    >>> Exact().for_noise(Splitting(0.5, levels=255))
    Exact(samples=255)
    """

    samples: int = 0
    name: ClassVar[str] = "exact"
    alpha: ClassVar[float] = 0.0  # type: ignore[misc]
    pilot: ClassVar[int] = 0  # type: ignore[misc]
    uses_rivals: ClassVar[bool] = True  # type: ignore[misc]

    def __post_init__(self) -> None:
        _check.fields(self, _check.whole, "samples")

    def __str__(self) -> str:
        return f"exact, {self.samples:,} outcomes" if self.samples else "exact"

    def for_noise(self, noise: Noise) -> Self:
        if noise.outcomes is None:
            raise InvalidInput(
                f"{noise} has too many outcomes to count: use a plan that samples, or a noise such as "
                f"{either('Splitting(0.5, levels=255)', '--noise splitting:0.5,255')}"
            )
        if self.samples not in (0, noise.outcomes):
            raise InvalidInput(
                f"{noise} has {noise.outcomes} outcomes, got {setting('samples', self.samples)}: leave it out"
            )
        return replace(self, samples=noise.outcomes)

    def request(self, state: State, noise: Noise) -> Any:
        return np.where(np.asarray(state.look) == 0, noise.outcomes or 0, 0)[()]

    def lower_bound(self, state: State, noise: Noise) -> Any:
        return np.asarray(np.asarray(state.count) / np.maximum(state.drawn, 1))[()]

    def upper_bound(self, state: State, noise: Noise) -> Any:
        votes = np.asarray(state.rivals)[..., :RIVALS].max(
            axis=-1
        )  # of the strongest classes of this very look
        if (
            noise.breaks_ties
        ):  # the class with the smaller number wins a tie; class 0 takes part without a vote, too
            first = np.asarray(state.strongest)[..., 0] if np.size(state.strongest) else 0
            votes = votes + (first < np.asarray(state.chosen))
        return (votes / np.maximum(np.asarray(state.drawn), 1))[()]

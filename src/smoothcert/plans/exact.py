"""Counting instead of sampling, for noises with few outcomes: certificates that hold without alpha."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.plans.base import Plan
from smoothcert.plans.records import RIVALS, Outlook, State


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
    adaptive: ClassVar[bool] = False
    enumerates: ClassVar[bool] = True
    alpha: ClassVar[float] = 0.0  # type: ignore[misc]
    pilot: ClassVar[int] = 0  # type: ignore[misc]

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", _check.whole("samples", self.samples))

    def __str__(self) -> str:
        return f"exact, {self.samples:,} outcomes" if self.samples else "exact"

    @property
    def explanation(self) -> str:
        outcomes = f"each of the {self.samples:,} outcomes" if self.samples else "every outcome"
        return " ".join(
            [
                f"Exact counting: the classifier answers {outcomes} of the noise once, so the share of a class is its "
                "exact probability.",
                self._choice_in_words(),
                "Nothing is random: alpha is 0, and the certificates are exact.",
            ]
        )

    @property
    def most_looks(self) -> int:
        return 1

    @property
    def uses_rivals(self) -> bool:
        return True

    def for_noise(self, noise: Noise) -> Self:
        self.check(noise)
        return replace(self, samples=noise.outcomes or 0)

    def check(self, noise: Noise) -> None:
        if noise.outcomes is None:
            raise InvalidInput(
                f"{noise} has too many outcomes to count: use a plan that samples, or a noise such as "
                "Splitting(0.5, levels=255)"
            )
        if self.samples not in (0, noise.outcomes):
            raise InvalidInput(f"{noise} has {noise.outcomes} outcomes, got samples={self.samples}: leave it out")

    def request(self, state: State, noise: Noise) -> Any:
        return np.where(np.asarray(state.look) == 0, noise.outcomes or 0, 0)[()]

    def lower_bound(self, state: State, noise: Noise) -> Any:
        return np.asarray(np.asarray(state.count) / np.maximum(state.drawn, 1))[()]

    def upper_bound(self, state: State, noise: Noise) -> Any:
        alone = np.asarray(state.rivals)[..., :RIVALS]  # the strongest classes of this very look
        return (alone.max(axis=-1) / np.maximum(np.asarray(state.drawn), 1))[()]

    def outlook(self, p: ArrayLike, noise: Noise) -> Outlook:
        p = np.asarray(p, float)
        radius = np.maximum(noise.certified_radius(p), 0)
        return Outlook(np.full(p.shape, noise.outcomes or 0), {"radius": radius}, expected=False)

    def worst_failure(self, noise: Noise) -> tuple[float, float]:
        return 0.0, 0.5

    def tie_failure(self, noise: Noise) -> float:
        return 0.0

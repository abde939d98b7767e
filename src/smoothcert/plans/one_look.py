"""A plan that certifies nothing: votes for predictions, estimates and forecasts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smoothcert.noises import Noise
from smoothcert.plans.base import Plan
from smoothcert.plans.records import State


@dataclass(frozen=True)
class OneLook(Plan):
    """Look once; there is nothing to certify."""

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

"""Rules that prove nothing: their votes are for predictions, estimates and forecasts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers
from smoothcert.plans.base import Rule
from smoothcert.plans.tally import Tally


@dataclass(frozen=True, slots=True)
class SingleDraw(Rule):
    """Draw once. The answer is the class with most votes.

    Args:
        samples: The samples of each input.
    """

    samples: int
    name: ClassVar[str] = "single-draw"

    def __str__(self) -> str:
        return f"a single draw of {self.samples:,} samples"

    def init(self, noise: Noise, chosen: Numbers = None) -> Tally:
        return Tally(noise, pilot=0, chosen=chosen)

    def request(self, state: Tally) -> int:
        return 0 if state.look else self.samples

    def answer(self, state: Tally) -> Any:
        return state.chosen

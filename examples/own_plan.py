"""A plan of your own: three looks, each with its own bound.

An input gets a tenth of the samples. If that proves the wanted radius, it is done; if not, it gets a third of them, and
then the rest. Each look spends a third of alpha, so that all three bounds hold together.

Run this file twice: the second time it resumes.

    python examples/own_plan.py
    smoothcert --import examples/own_plan.py table runs/own-plan
    smoothcert --import examples/own_plan.py coverage --method three-looks --sigma 0.25
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import smoothcert as sc
from smoothcert.statistics.bounds import lower_bound


@dataclass(frozen=True)
class ThreeLooks(sc.Plan):
    """Stop as soon as the wanted radius is proved. Its state is that of every plan which counts, a `Tally`."""

    samples: int = 3_000
    alpha: float = 0.001
    pilot: int = 50
    wanted: float = 0.25
    known_labels: bool = False
    name: ClassVar[str] = "three-looks"

    def __str__(self):
        return f"three looks, radius {self.wanted:g} wanted"

    def request(self, state):
        """How many more samples each input gets. The pilot is the first look, and chooses the class."""
        tenth, third = self.samples // 10, self.samples // 3
        draws = [self.pilot, tenth, third, self.samples - tenth - third, 0]
        if state.look <= 1:
            return draws[state.look]
        return np.where(self.prove(state).radius >= self.wanted, 0, draws[state.look])[()]

    def prove(self, state):
        """What the votes so far prove: a bound on the probability of the class, and its radius."""
        lower = lower_bound(state.count, np.maximum(state.drawn, 1), alpha=self.alpha / 3)
        return sc.Proof.from_bounds(state, lower)


if __name__ == "__main__":
    run = sc.certify(
        "fashion-cnn",
        "fashion-mnist",
        noise=sc.Gaussian(0.25),
        plan=ThreeLooks(),
        limit=50,
        out="runs/own-plan",
    )
    print(sc.table(run))

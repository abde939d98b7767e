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
    """Stop as soon as the wanted radius is proved."""

    samples: int = 3_000
    alpha: float = 0.001
    pilot: int = 50
    wanted: float = 0.25
    known_labels: bool = False
    name: ClassVar[str] = "three-looks"

    def __str__(self):
        return f"three looks, radius {self.wanted:g} wanted"

    def request(self, state, noise):
        """How many more samples each state gets. The pilot is look 1."""
        proved = noise.radius(self.lower_bound(state, noise)) >= self.wanted
        tenth, third = self.samples // 10, self.samples // 3
        next_draw = np.array([0, tenth, third, self.samples - tenth - third, 0])[
            np.minimum(state.look, 4)
        ]
        return np.where(proved & (np.asarray(state.look) > 1), 0, next_draw)[()]

    def lower_bound(self, state, noise):
        """The lower bound on the probability of the class that the votes so far prove."""
        return lower_bound(state.count, np.maximum(state.drawn, 1), alpha=self.alpha / 3)


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

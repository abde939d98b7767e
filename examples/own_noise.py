"""A noise of your own: uniform noise, which certifies in l1 (Yang et al. 2020).

A noise says how it is drawn, in a form that every device understands, and which radius a probability buys. Run this
file twice: the second time it resumes.

    python examples/own_noise.py
    smoothcert --import examples/own_noise.py report runs/own-noise
    smoothcert --import examples/own_noise.py map --noise uniform-noise:0.5
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import smoothcert as sc


@dataclass(frozen=True)
class UniformNoise(sc.Noise):
    """Every coordinate is moved by a number that is uniform on [-scale, scale]: R = scale * (2 p - 1) in l1."""

    scale: float
    norm: ClassVar[str] = "l1"

    @property
    def draw(self):
        """How both streams draw it."""
        return sc.Additive("uniform", self.scale)

    @property
    def deviation(self):
        return self.scale / np.sqrt(3)

    def radius(self, p):
        """Rounded down: the product is exact to one unit in the last place."""
        return np.nextafter(self.scale * (2 * np.asarray(p, float) - 1), -np.inf)[()]

    def probability(self, radius):
        return (1 + np.asarray(radius, float) / self.scale)[()] / 2


if __name__ == "__main__":
    run = sc.certify(
        "fashion-cnn",
        "fashion-mnist",
        noise=UniformNoise(0.25 * 3**0.5),  # the deviation that the model was trained with
        plan=sc.InputSpecific(2_000, decline=0.05),
        limit=50,
        out="runs/own-noise",
    )
    print(sc.table(run))

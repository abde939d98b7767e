"""What is added to an input, and what radius a probability buys.

Everything downstream (map, plans, coverage, replay, certificates) needs of a noise only a strictly increasing
p -> radius with its inverse. A radius <= 0 certifies nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from smoothcert import _check
from smoothcert.errors import InvalidInput


class Noise(ABC):
    """Base of all smoothing noises; to be a frozen dataclass, so that it can be recorded and compared."""

    norm: ClassVar[str]
    """The norm in which the radius is measured, as in "l2"."""

    @abstractmethod
    def radius(self, p: ArrayLike) -> Any:
        """Radius proved by a top-class probability of at least p, rounded down."""

    @abstractmethod
    def probability(self, radius: ArrayLike) -> Any:
        """The inverse: the probability that buys this radius."""


@dataclass(frozen=True)
class Gaussian(Noise):
    """Isotropic Gaussian noise: R = sigma * Phi^-1(p) in l2 (Cohen et al. 2019).

    >>> float(Gaussian(0.5).radius(0.99))
    1.16317393...
    """

    sigma: float
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", _check.between("sigma", self.sigma, 0))

    def radius(self, p: ArrayLike) -> Any:
        z = ndtri(_check.probabilities("p", p))
        # `ndtri` and the product are right to a few units in the last place; sixteen of them keep the radius below.
        return (self.sigma * z * (1 - np.copysign(16 * np.finfo(float).eps, z)))[()]

    def probability(self, radius: ArrayLike) -> Any:
        return ndtr(np.asarray(radius, float) / self.sigma)[()]


def check_drawn(noise: object) -> None:
    """Refuse a noise that the sampler cannot draw: it would draw Gaussian noise all the same."""
    if not isinstance(noise, Gaussian):
        raise InvalidInput(f"sampling knows Gaussian noise only: give noise=Gaussian(sigma), got {noise!r}")

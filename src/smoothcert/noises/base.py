"""What a noise is: how an input is randomised, and which radius a probability proves.

Everything else (sample map, plans, coverage, replay, certificates) needs of a noise only `radius`, `probability` and
`norm`. The sampler needs only `draw`, a description without torch that every stream knows how to draw.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from numpy.typing import ArrayLike

from smoothcert import _check
from smoothcert._registry import Recorded

Law = Literal["normal", "uniform", "laplace"]
LAWS: tuple[Law, ...] = ("normal", "uniform", "laplace")


@dataclass(frozen=True)
class Additive:
    """x + scale * z, where every coordinate of z is drawn independently from `law`.

    normal: mean 0, variance 1. uniform: on [-1, 1]. laplace: density exp(-|z|) / 2.
    """

    law: Law
    scale: float

    def __post_init__(self) -> None:
        _check.one_of("law", self.law, LAWS)
        object.__setattr__(self, "scale", _check.between("scale", self.scale, 0))


class Noise(Recorded, ABC):
    """Base of all smoothing noises. A subclass is a frozen dataclass, so that it can be recorded and compared."""

    norm: ClassVar[str]
    """The norm in which the radius is measured, as in "l2"; shown on axes and in tables."""

    @property
    @abstractmethod
    def draw(self) -> Additive:
        """How the noise is drawn."""

    @property
    @abstractmethod
    def deviation(self) -> float:
        """The standard deviation of each coordinate: which trained weights fit, and how strong the noise is."""

    @abstractmethod
    def radius(self, p: ArrayLike) -> Any:
        """The radius that is proved when the class has a probability of at least p, rounded down.

        A negative value (or NaN) means that nothing is proved. The function never decreases; it may have steps.

        Args:
            p: Lower bounds on the probability of the class, between 0 and 1.
        """

    @abstractmethod
    def probability(self, radius: ArrayLike) -> Any:
        """The smallest p that proves this radius.

        Args:
            radius: Radii of at least 0.
        """

    def radius_between(self, lower: ArrayLike, upper: ArrayLike) -> Any:
        """The radius that is proved by bounds on two probabilities, rounded down.

        A noise that has no such theorem keeps this default, which does not use `upper`.

        Args:
            lower: Lower bounds on the probability of the class.
            upper: Upper bounds on the probability of every other class.
        """
        return self.radius(lower)

"""The sample map psi: how many samples an input with top-class probability p needs (the paper's Algorithm 1).

    R(k, p)   = radius of L(p k, k, alpha)
    reference = R(samples, p), or the radius of p itself with reference "ideal" (the paper's Remark 1)
    required  = reference - decline          absolute decline
                (1 - decline) * reference    relative decline
    psi(p)    = 0 if required <= 0, else the smallest k <= samples with R(k, p) >= required, or samples if there is none

R grows with k, so psi is found by bisection, for all p at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.statistics.bounds import can_certify, check_alpha, keeps_bound, lower_bound

Kind = Literal["absolute", "relative"]
Reference = Literal["ceiling", "ideal"]


@dataclass(frozen=True)
class SampleMap:
    """psi for one noise, ceiling and agreed decline; call it with probabilities.

    Args:
        noise: The smoothing noise.
        samples: The ceiling.
        decline: How much of the reference radius may be lost.
        kind: Whether the decline is a radius ("absolute") or a share of the reference ("relative").
        alpha: The probability that a certificate is wrong, at most.
        reference: The radius at the ceiling ("ceiling"), or the radius of p itself ("ideal"), which no number of
            samples reaches; the ceiling then caps the samples where p is close to 1.

    >>> from smoothcert import Gaussian
    >>> psi = SampleMap(Gaussian(0.5), samples=100_000, decline=0.05)
    >>> psi([0.5, 0.8, 0.999]).tolist()
    [0, 1513, 21374]
    """

    noise: Noise
    samples: int = 100_000
    decline: float = 0.05
    kind: Kind = "absolute"
    alpha: float = 0.001
    reference: Reference = "ceiling"

    def __post_init__(self) -> None:
        _check.one_of("reference", self.reference, ("ceiling", "ideal"))
        object.__setattr__(self, "samples", check_ceiling(self.samples, self.alpha))
        object.__setattr__(self, "alpha", float(self.alpha))
        object.__setattr__(self, "decline", check_decline(self.decline, self.kind))
        largest = float(self.radius(self.samples, 1.0))
        if self.kind == "absolute" and self.decline >= largest:
            raise InvalidInput(
                f"decline {self.decline:g} gives up every radius: {self.samples} samples prove at most "
                f"{largest:.4f} under {self.noise}; use a smaller decline"
            )

    def __call__(self, p: ArrayLike) -> NDArray[np.int64]:
        p = _check.probabilities("p", p)
        required = self.required_radius(p)
        bound = self.noise.probability(np.maximum(required, 0))
        # Invariant: `low` does not keep the required radius; `high` does, or is the ceiling.
        low, high = np.zeros(p.shape, np.int64), np.full(p.shape, self.samples, np.int64)
        while np.any(high - low > 1):
            middle = (low + high) // 2
            enough = keeps_bound(p * middle, middle, bound, alpha=self.alpha)
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.where(required > 0, high, 0)

    def radius(self, samples: ArrayLike, p: ArrayLike) -> Any:
        """R(k, p): what k samples prove when a share p of them votes for the class.

        Args:
            samples: Sample sizes k.
            p: Shares of votes.
        """
        k = np.asarray(samples, float)
        return self.noise.radius(lower_bound(np.asarray(p, float) * k, k, alpha=self.alpha))

    def required_radius(self, p: ArrayLike) -> Any:
        """What must be left of the reference radius after the agreed decline.

        Args:
            p: Probabilities of the class.
        """
        full = self.noise.radius(p) if self.reference == "ideal" else self.radius(self.samples, p)
        return full - self.decline if self.kind == "absolute" else (1 - self.decline) * full

    def table(self, p: ArrayLike | None = None) -> SampleTable:
        """psi on a grid, by default one refined towards p = 1.

        Where the required radius turns positive, psi leaps from 0 to a peak. That p joins the grid, so that no look-up
        misses the peak.
        """
        grid = np.union1d(refined_grid() if p is None else _check.probabilities("p", p), self._smallest_with_radius())
        return SampleTable(grid, self(grid))

    def _smallest_with_radius(self) -> float:
        """The smallest p whose required radius is above 0."""
        low, high = 0.5, 1.0
        while low < (middle := (low + high) / 2) < high:
            low, high = (low, middle) if self.required_radius(middle) > 0 else (middle, high)
        return high


@dataclass(frozen=True, eq=False)
class SampleTable:
    """The piecewise map psi_ISS: between two grid points, the larger of their values.

    Once above 0, psi never decreases (absolute) or falls and then rises (relative), so its maximum over an interval
    lies at an end: a look-up only rounds up.
    """

    p: NDArray[np.float64]
    needed: NDArray[np.int64]

    def __call__(self, p: ArrayLike) -> NDArray[np.int64]:
        p = np.asarray(p, float)
        outside = ~((p >= self.p[0]) & (p <= self.p[-1]))
        if np.any(outside):
            raise InvalidInput(
                f"p must lie on the table, between {self.p[0]:g} and {self.p[-1]:g}, got {p[outside].flat[0]:g}"
            )
        right = np.searchsorted(self.p, p, side="left")
        left = np.searchsorted(self.p, p, side="right") - 1
        return np.maximum(self.needed[left], self.needed[right])


def paper_grid() -> NDArray[np.float64]:
    """The grid of the paper: 0, 0.001, ..., 1."""
    return np.linspace(0, 1, 1001)


def refined_grid(points: int = 1500) -> NDArray[np.float64]:
    """Two thirds evenly on [0, 1], one third ever closer to 1, where psi is steep."""
    near_one = 1 - np.geomspace(1e-3, 1e-8, points // 3)
    return np.union1d(np.linspace(0, 1, points - points // 3), near_one)


def check_ceiling(samples: Any, alpha: Any) -> int:
    """The ceiling as an integer; raises if not even unanimous votes would certify."""
    alpha = check_alpha(alpha)
    ceiling = _check.whole("samples", samples, least=1)
    if not can_certify(ceiling, alpha=alpha):
        raise InvalidInput(
            f"samples {ceiling} can never certify at alpha {alpha:g}: even unanimous votes prove only "
            f"{alpha ** (1 / ceiling):.3f}, not a majority; use at least "
            f"{next(fewest for fewest in count(ceiling) if can_certify(fewest, alpha=alpha))}"
        )
    return ceiling


def check_decline(decline: Any, kind: Any) -> float:
    if _check.one_of("kind", kind, ("absolute", "relative")) == "relative":
        return _check.between("relative decline", decline, 0, 1)
    return _check.between("decline", decline, 0)

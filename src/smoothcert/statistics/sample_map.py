"""The sample map psi: how many samples an input with top-class probability p needs (the paper's
Algorithm 1).

    R(k, p)   = radius of L(p k, k, alpha)
    reference = R(samples, p), or the radius of p itself with reference "ideal" (its Remark 1)
    required  = reference - decline          absolute decline
                (1 - decline) * reference    relative decline
    psi(p)    = 0 if required <= 0, else the smallest k with R(k, p) >= required, at most samples

R grows with k, so psi is found by bisection, for all p at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers, bisect
from smoothcert.statistics.bounds import (
    Array,
    Counts,
    can_certify,
    keeps_bound,
    lower_bound,
    smallest,
)

_TIGHT = 1.02
_MOST_HALVINGS = 60

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
        alpha: The largest probability that a certificate is wrong.
        reference: The radius at the ceiling ("ceiling"), or the radius of p itself ("ideal"), which
            no number of samples reaches; the ceiling then caps the samples where p is close to 1.

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
        vars(self).update(
            samples=check_ceiling(self.samples, self.alpha),
            alpha=float(self.alpha),
            decline=check_decline(self.decline, self.kind),
        )
        largest = float(self.radius(self.samples, 1.0))
        if self.kind == "absolute" and self.decline >= largest:
            advice = "use a smaller decline"
            if largest <= 0:
                advice = "use more samples, or another noise"
            raise InvalidInput(
                "decline-too-large",
                "decline {decline:g} gives up every radius: {samples} samples prove at most "
                "{largest:.4f} under {noise}; {advice}",
                decline=self.decline,
                samples=self.samples,
                largest=largest,
                noise=self.noise,
                advice=advice,
            )

    def __call__(self, p: ArrayLike) -> Counts:
        p = _check.probabilities("p", p)
        return self._at_most(p, p)

    def largest(self, low: ArrayLike, high: ArrayLike) -> Counts:
        """The largest psi(p) over low <= p <= high, or a few percent more.

        Where the noise says so, the larger value at the two ends is taken, as the paper does (its
        Proposition 1). With a relative decline this misses the leap of psi from 0 where it lies
        inside the interval. Then an input may get fewer samples than the decline needs; its
        certificate is true all the same. For every other noise, the interval is covered by cells.
        In a cell [a, b], psi is at most the smallest k for which a share a of the votes proves what
        b requires, because the radius never decreases with p.

        Args:
            low: The lower ends.
            high: The upper ends.
        """
        low, high = np.broadcast_arrays(
            _check.probabilities("p", low), _check.probabilities("p", high)
        )
        if self.noise.map_peaks_at_ends:
            return np.maximum(self(low), self(high))
        edges, cells = _cells(self)
        first = np.searchsorted(edges, low, side="left")  # the first edge inside of the interval
        last = np.searchsorted(edges, high, side="right") - 1  # the last one
        inside = first <= last
        # The parts of cells at both ends, and whole cells between them; an interval may lie within
        # one cell.
        left = self._at_most(low, np.where(inside, edges[np.minimum(first, len(edges) - 1)], high))
        right = self._at_most(np.where(inside, edges[np.maximum(last, 0)], low), high)
        whole = [
            max(cells[a:b], default=0) for a, b in zip(first.ravel(), last.ravel(), strict=True)
        ]
        return np.maximum(
            np.maximum(left, right), np.reshape(np.asarray(whole, np.int64), low.shape)
        )

    def _at_most(self, low: Array, high: Array) -> Counts:
        """The smallest k for which a share `low` of the votes proves what `high` requires; psi
        where they are equal.
        """
        required = self.required_radius(high)
        bound = self.noise.probability(np.maximum(required, 0))
        needed = smallest(
            lambda k: keeps_bound(low * k, k, bound, alpha=self.alpha), 0, self.samples
        )
        return np.where(required > 0, needed, 0)

    def radius(self, samples: ArrayLike, p: ArrayLike) -> Numbers:
        """R(k, p): what k samples prove when a share p of them votes for the class.

        Args:
            samples: Sample sizes k.
            p: Shares of votes.
        """
        k = np.asarray(samples, float)
        return self.noise.radius(lower_bound(np.asarray(p, float) * k, k, alpha=self.alpha))

    def required_radius(self, p: ArrayLike) -> Numbers:
        """What must be left of the reference radius after the agreed decline.

        Args:
            p: Probabilities of the class.
        """
        full = self.noise.radius(p) if self.reference == "ideal" else self.radius(self.samples, p)
        return after_decline(full, self.decline, self.kind)

    def on_paper_grid(self, p: ArrayLike) -> Counts:
        """psi as the paper looks it up: on a grid of step 0.001, the larger of the values at both
        neighbours of p.

        Once above 0, psi never decreases (absolute) or falls and then rises (relative), so a
        look-up only rounds up. Where the required radius turns positive, psi leaps from 0 to a
        peak. That p joins the grid.

        Args:
            p: Probabilities of the class.
        """
        p = _check.probabilities("p", p)
        _, leap = bisect(lambda p: bool(self.required_radius(p) > 0), 0.5, 1.0)
        grid = np.union1d(np.linspace(0, 1, 1001), leap)
        needed = self(grid)
        return np.maximum(
            needed[np.searchsorted(grid, p)], needed[np.searchsorted(grid, p, side="right") - 1]
        )


@lru_cache(maxsize=32)
def _cells(psi: SampleMap) -> tuple[Array, list[int]]:
    """Edges of cells that cover [0, 1], and an upper bound on psi in each.

    A cell is halved as long as its bound is more than 2% above psi at both of its ends. So an edge
    comes as close as floating point allows to every p where psi leaps.
    """
    edges = np.union1d(refined_grid(400), [0.5])
    at_edges = psi(edges)
    bounds = psi._at_most(edges[:-1], edges[1:])
    for _ in range(_MOST_HALVINGS):
        middle = (edges[:-1] + edges[1:]) / 2
        loose = bounds > _TIGHT * np.maximum(at_edges[:-1], at_edges[1:]) + 1
        loose &= (edges[:-1] < middle) & (middle < edges[1:])
        if not loose.any():
            break
        split = np.flatnonzero(loose)
        new = middle[split]
        left = psi._at_most(edges[split], new)
        right = psi._at_most(new, edges[split + 1])
        bounds[split] = left
        bounds = np.insert(bounds, split + 1, right)
        at_edges = np.insert(at_edges, split + 1, psi(new))
        edges = np.insert(edges, split + 1, new)
    return edges, bounds.tolist()


def refined_grid(points: int) -> Array:
    """Two thirds evenly on [0, 1], one third ever closer to 1, where psi is steep."""
    near_one = 1 - np.geomspace(1e-3, 1e-8, points // 3)
    return np.union1d(np.linspace(0, 1, points - points // 3), near_one)


def after_decline(radius: Numbers, decline: float, kind: Kind) -> Numbers:
    """What must be left of a reference radius."""
    return radius - decline if kind == "absolute" else (1 - decline) * radius


def check_ceiling(samples: Any, alpha: Any) -> int:
    """The ceiling as an integer; raises if not even unanimous votes would certify."""
    alpha = _check.alpha("alpha", alpha)
    ceiling = _check.whole("samples", samples, least=1)
    if not can_certify(ceiling, alpha=alpha):
        raise InvalidInput(
            "never-certifies",
            "samples {samples} can never certify at alpha {alpha:g}: even unanimous votes prove "
            "only {proved:.3f}, not a majority; use at least {least}",
            samples=ceiling,
            alpha=alpha,
            proved=alpha ** (1 / ceiling),
            least=next(n for n in count(ceiling) if can_certify(n, alpha=alpha)),
        )
    return ceiling


def check_decline(decline: Any, kind: Any) -> float:
    if _check.one_of("kind", kind, ("absolute", "relative")) == "relative":
        return _check.between("relative decline", decline, 0, 1)
    return _check.between("decline", decline, 0)

"""Counting instead of sampling, for noises with few outcomes: certificates that hold without alpha.

Every outcome of the noise is classified once, so the share of a class is its probability, not an
estimate.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from smoothcert import _check
from smoothcert._registry import LATER
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers
from smoothcert.plans.base import Plan, Proof, settle
from smoothcert.plans.coverage import Coverage
from smoothcert.plans.expected import Expected
from smoothcert.plans.votes import Tally
from smoothcert.statistics.top_k import top_k_radius


@dataclass(frozen=True, slots=True)
class Exact(Plan):
    """Classify every outcome of the noise once.

    The shares of the classes are then their exact probabilities.

    Args:
        samples: The number of outcomes. 0 takes it from the noise.
        top: Certify that the class stays among so many most probable ones.

    >>> from smoothcert.noises import Splitting
    >>> Exact().for_noise(Splitting(0.5, levels=255))
    Exact(samples=255, top=1)
    """

    samples: int = 0
    top: int = field(default=1, metadata=LATER)
    name: ClassVar[str] = "exact"
    alpha: ClassVar[float] = 0.0  # type: ignore[misc]
    adaptive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        samples = _check.whole("samples", self.samples)
        settle(self, samples=samples, top=_check.whole("top", self.top, least=1))

    def __str__(self) -> str:
        words = ["exact"]
        if self.samples:
            words.append(f"{self.samples:,} outcomes")
        return ", ".join(words + self._claim_in_words())

    def for_noise(self, noise: Noise) -> Self:
        if noise.outcomes is None:
            raise InvalidInput(
                "too-many-outcomes",
                "{noise} has too many outcomes to count: use a plan that samples, or a noise such "
                "as `Splitting(0.5, levels=255)|--noise splitting:0.5,255`",
                noise=noise,
            )
        if self.samples not in (0, noise.outcomes):
            raise InvalidInput(
                "other-outcomes",
                "{noise} has {outcomes} outcomes, got `samples={given}`: leave it out",
                noise=noise,
                outcomes=noise.outcomes,
                given=self.samples,
            )
        return replace(self, samples=noise.outcomes)

    def init(self, noise: Noise, chosen: Numbers = None) -> Tally:
        return Tally.begin(self, noise, chosen, rivals=True)

    def request(self, state: Tally) -> int:
        return 0 if state.look else state.noise.outcomes or 0

    def prove(self, state: Tally) -> Proof:
        if state.chosen is None or not state.look:
            return Proof()
        drawn = np.maximum(state.drawn, 1)
        lower = np.asarray(state.count) / drawn
        every = state.in_array(state.every)
        if self.top > 1:
            rivals = every.largest_beside(state.chosen, self.top) / drawn[..., None]
            radius = top_k_radius(state.noise, lower, rivals)
            return Proof(
                state.chosen, radius[()], lower[()], count=state.count, counted=state.drawn
            )
        votes = every.largest_beside(state.chosen, 1)[..., 0]
        if state.noise.breaks_ties:
            # The class with the smaller number wins a tie; class 0 takes part without a vote, too.
            strongest = every.strongest_beside(state.chosen)
            rival = np.maximum(strongest[..., 0], 0) if strongest.size else 0
            votes = votes + (rival < np.asarray(state.chosen))
        return Proof.from_bounds(state, lower[()], (votes / drawn)[()])

    def coverage(self, noise: Noise) -> Coverage:
        return Coverage(0.0, 0.0, 0.5, 0.0)

    def expected(self, p: ArrayLike, noise: Noise) -> Expected:
        p = np.asarray(p, float)
        radius = np.maximum(noise.certified_radius(p), 0)
        return Expected(np.full(p.shape, noise.outcomes or 0), {"radius": radius})

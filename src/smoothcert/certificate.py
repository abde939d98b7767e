"""The record of one certified input: everything a stranger needs to check it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from smoothcert.bounds import lower_bound
from smoothcert.noise import Noise
from smoothcert.plans.base import Look, Plan


@dataclass(frozen=True)
class Certificate:
    """No perturbation of norm below `radius` changes `prediction`, with confidence 1 - alpha.

    `prediction` is None, and `radius` 0, when the votes prove no majority (an abstention).
    """

    id: int
    label: int | None
    prediction: int | None
    radius: float
    count: int
    """Votes for the class among the `counted` samples that the bound rests on."""
    counted: int
    looks: tuple[Look, ...]
    """All votes in the order they were drawn; the first look is the pilot."""
    plan: Plan
    noise: Noise
    seconds: float = 0.0

    @property
    def samples(self) -> int:
        """Every forward pass spent, pilot included."""
        return sum(look.samples for look in self.looks)

    @property
    def missing(self) -> int:
        """Samples whose output was not finite; they are votes for no class."""
        return sum(look.missing for look in self.looks)

    @property
    def abstained(self) -> bool:
        return self.prediction is None

    @property
    def correct(self) -> bool:
        return self.prediction is not None and self.prediction == self.label


def conclude(
    looks: Sequence[Look],
    *,
    plan: Plan,
    noise: Noise,
    id: int = 0,
    label: int | None = None,
    seconds: float = 0.0,
) -> Certificate:
    """The certificate that these votes prove under this plan: bound, radius or abstention.

    >>> from smoothcert import Fixed, Gaussian
    >>> certificate = conclude([Look(100, {3: 99}), Look(1000, {3: 990})], plan=Fixed(1000), noise=Gaussian(0.5))
    >>> certificate.prediction, round(certificate.radius, 3)
    (3, 0.989)
    """
    tally = plan.tally(looks, noise)
    bound = lower_bound(tally.count, tally.samples, alpha=plan.alpha) if tally.samples else 0.0
    radius = float(noise.radius(bound))
    certified = radius > 0  # NaN and -inf certify nothing
    return Certificate(
        id=id,
        label=label,
        prediction=tally.prediction if certified else None,
        radius=radius if certified else 0.0,
        count=tally.count,
        counted=tally.samples,
        looks=tuple(looks),
        plan=plan,
        noise=noise,
        seconds=seconds,
    )

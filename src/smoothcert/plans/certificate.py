"""The record of one certified input: everything that a stranger needs to check it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lgamma
from typing import Self, cast

from smoothcert.noises import Noise
from smoothcert.plans.base import Plan, Proof
from smoothcert.plans.follow import Case
from smoothcert.plans.votes import Look

_ROUNDING = 1e-15
"""The relative error of the logarithm of a factorial, where the sum of a binomial tail starts."""


@dataclass(frozen=True)
class Certificate:
    """No change of the input below `radius` changes `prediction`, with confidence 1 - alpha.

    `noise.certified_change("r")` says in words which changes that are.

    Args:
        id: The number of the input in its data set.
        label: Its label, None where it is unknown.
        prediction: The certified class. None alone means an abstention; a proved radius of 0 is
            possible.
        radius: The certified radius, rounded down; 0 for an abstention.
        proof: What the votes prove about the class that was chosen, also where that is not enough
            for a certificate.
        looks: All votes in the order in which they were drawn.
        plan: The plan that asked for them.
        noise: The smoothing noise.
        seconds: How long the input took.
    """

    id: int
    label: int | None
    prediction: int | None
    radius: float
    proof: Proof
    looks: tuple[Look, ...]
    plan: Plan
    noise: Noise
    seconds: float = 0.0

    @classmethod
    def from_votes(
        cls,
        looks: Sequence[Look],
        *,
        plan: Plan,
        noise: Noise,
        id: int = 0,
        label: int | None = None,
        seconds: float = 0.0,
    ) -> Self:
        """The certificate that these votes prove: a radius, or an abstention.

        Args:
            looks: All votes of the input.
            plan: The plan that asked for them.
            noise: The smoothing noise.
            id: The number of the input.
            label: Its label, None where it is unknown.
            seconds: How long it took.

        >>> from smoothcert import Fixed, Gaussian
        >>> votes = [Look(100, {3: 99}), Look(1000, {3: 990})]
        >>> certificate = Certificate.from_votes(votes, plan=Fixed(1000), noise=Gaussian(0.5))
        >>> certificate.prediction, round(certificate.radius, 3)
        (3, 0.989)
        """
        return cls.from_case(Case(plan, noise, label, looks), looks, id=id, seconds=seconds)

    @classmethod
    def from_case(
        cls, case: Case, looks: Sequence[Look], *, id: int = 0, seconds: float = 0.0
    ) -> Self:
        """The certificate of an input that was told all of its votes.

        Args:
            case: Where the input stands.
            looks: All votes of the input.
            id: The number of the input.
            seconds: How long it took.
        """
        proof = case.proof()
        certified = proof.radius is not None
        return cls(
            id=id,
            label=case.label,
            prediction=proof.prediction if certified else None,
            radius=proof.radius if certified else 0.0,
            proof=proof,
            looks=tuple(looks),
            plan=cast(Plan, case.plan),  # or a rule, where nothing is certified
            noise=case.noise,
            seconds=seconds,
        )

    @property
    def count(self) -> int:
        """Votes for the class among the `counted` samples that the bound rests on."""
        return int(self.proof.count)

    @property
    def counted(self) -> int:
        """Samples that the bound rests on."""
        return int(self.proof.counted)

    @property
    def samples(self) -> int:
        """Every sample that was drawn, pilot included.

        Rows that only fill up a batch are not samples of any input. The manifest of a run counts
        them in `forwarded`.
        """
        return sum(look.samples for look in self.looks)

    @property
    def missing(self) -> int:
        """Samples whose output was not finite; they count for no class."""
        return sum(look.missing for look in self.looks)

    @property
    def abstained(self) -> bool:
        return self.prediction is None

    @property
    def correct(self) -> bool | None:
        """Whether the label is certified, so False for an abstention; None where the label is
        unknown.
        """
        return None if self.label is None else self.prediction == self.label


def keeps_alpha(c: Certificate) -> bool:
    """Whether the second method of the plan, if it has one, gives a p-value of at most alpha.

    Args:
        c: The certificate.
    """
    if c.abstained or not isinstance(c.plan, Plan):
        return True
    p_value = c.plan.p_value(c.looks, c.radius, c.noise, c.label)
    return p_value is None or p_value <= c.plan.alpha * (1 + _ROUNDING * lgamma(c.counted + 1))

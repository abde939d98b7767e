"""The settings that plans which decide radii share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from smoothcert import _check
from smoothcert._registry import LATER
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.plans.base import Plan, check_random, settle
from smoothcert.plans.follow import unanimous
from smoothcert.statistics.group_sequential import GIVE_UP
from smoothcert.statistics.sample_map import check_ceiling


@dataclass(frozen=True, slots=True)
class DecidingPlan(Plan):
    """Base of plans that decide which of the given radii are proved.

    A certificate states the largest radius that was proved. It says that the true radius is above
    it. Under noises whose radii are whole numbers, above r means at least r + 1, as in every table
    of certified accuracy.

    Args:
        radii: The radii to decide.
        samples: The ceiling: the most samples that a decision rests on.
        alpha: The largest probability that a certificate is wrong.
        pilot: Samples that choose the class and do not count. 0 stands for the default of the plan,
            which is none with known labels.
        known_labels: Whether the class is the input's label instead of the pilot's choice.
        give_up: A radius is given up when the chance to still prove it falls below this; 0 for
            never.
        top: Certify that the class stays among so many most probable ones.
    """

    radii: tuple[float, ...]
    samples: int = 100_000
    alpha: float = 0.001
    pilot: int = 0
    known_labels: bool = False
    give_up: float = field(default=GIVE_UP, metadata=LATER)
    top: int = field(default=1, metadata=LATER, kw_only=True)
    name: ClassVar[str] = "radii"
    smallest_request: ClassVar[int] = 12  # from the first look at 60 samples to the next one
    default_pilot: ClassVar[int]
    """Samples of the pilot where the label is not known."""

    def __post_init__(self) -> None:
        pilot = _check.whole("pilot", self.pilot)
        if self.known_labels and pilot:
            raise InvalidInput(
                "needless-pilot",
                "with known labels, deciding radii needs no pilot, got `pilot={pilot}`",
                pilot=pilot,
            )
        give_up = _check.at_least("give_up", self.give_up, 0)
        if give_up >= 1:
            raise InvalidInput(
                "give-up-too-large", "give_up must be below 1, got {value:g}", value=give_up
            )
        settle(
            self,
            radii=increasing(self.radii),
            samples=check_ceiling(self.samples, self.alpha),
            alpha=float(self.alpha),
            pilot=pilot if pilot or self.known_labels else self.default_pilot,
            give_up=give_up,
            top=_check.whole("top", self.top, least=1),
        )

    def __str__(self) -> str:
        radii = ", ".join(f"{radius:g}" for radius in self.radii)
        words = [f"radii {radii}", f"ceiling {self.samples:,}", *self._claim_in_words()]
        if self.give_up != GIVE_UP:
            words.append(f"giving up at {self.give_up:g}")
        return ", ".join(words)

    def for_noise(self, noise: Noise) -> Self:
        """Refuse a radius that even unanimous votes cannot prove."""
        check_random(noise)
        most = unanimous(self, noise).proof().radius
        for radius in self.radii:
            if most is not None and radius <= most:
                continue
            if noise.needed_probability(radius) >= 1:
                raise InvalidInput(
                    "radius-never-proved",
                    "{noise} proves no radius above {largest:g}, whatever the number of samples, "
                    "got {radius:g}: use smaller radii, or only show them with "
                    "`method=input-specific`",
                    noise=noise,
                    largest=min(float(noise.certified_radius(1.0)), radius),
                    radius=radius,
                )
            raise InvalidInput(
                "too-few-samples",
                "a radius above {radius:g} can never be proved with {samples:,} samples at alpha "
                "{alpha:g} under {noise}: use more samples or smaller radii, or only show them "
                "with `method=input-specific`",
                radius=radius,
                samples=self.samples,
                alpha=self.alpha,
                noise=noise,
            )
        return self


def increasing(radii: Any) -> tuple[float, ...]:
    """Radii in increasing order, at least one."""
    numbers = _check.radii(radii)
    if not numbers:
        raise InvalidInput("no-radii", "radii must hold at least one radius, got none")
    return tuple(sorted(set(numbers)))

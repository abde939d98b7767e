"""What the page shows about one certificate, for readers who are no specialists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil

import numpy as np

from smoothcert.noises import Transformed
from smoothcert.plans import Certificate, Look
from smoothcert.report.pictures import (
    COUNTED,
    NORMS,
    Picture,
    changed_picture,
    distance,
    picture_of,
)
from smoothcert.report.wording import class_name
from smoothcert.runs.results import is_unit
from smoothcert.statistics.metrics import confidence, round_down

_MOST_CLASSES = 5
_LARGEST_SIDE = 256


@dataclass(frozen=True)
class Shown:
    """A picture and the text below it.

    Args:
        picture: The picture as a data URI.
        text: The text.
        good: Whether the text is the answer that wins the vote.
    """

    picture: str
    text: str = ""
    good: bool = True


@dataclass(frozen=True)
class Bar:
    """A bar that is drawn to scale.

    Args:
        text: What it is.
        length: Its length as a share of the full width.
        number: Its length in words.
        main: Whether it stands out.
    """

    text: str
    length: float
    number: str
    main: bool = False


@dataclass(frozen=True, eq=False)
class Explained:
    """One certificate in pictures.

    Args:
        run: The name of the run.
        certificate: The certificate.
        x: The input.
        drawn: Noisy copies of the input.
        answers: The answer of the classifier to each copy.
        rounded: The input in the number format in which noise was added to it.
        cleaned: The same copies after the denoiser; empty if the run has none.
        class_names: The names of the classes, if they are known.
        values: The range of the values of the run's inputs; None if it is not recorded.
        attack: The input after the smallest change that an attack found, the answer to it, and the
            size of the change.
        same_noise: Whether the noisy copies are those of the run. They are not if the run drew its
            noise on another kind of device.
    """

    run: str
    certificate: Certificate
    x: Picture = field(repr=False)
    drawn: Sequence[Picture] = field(repr=False)
    answers: Sequence[int]
    rounded: Picture = field(repr=False)
    cleaned: Sequence[Picture] = field(default=(), repr=False)
    class_names: Sequence[str] | None = None
    values: tuple[float, float] | None = None
    attack: tuple[Picture, int, float] | None = field(default=None, repr=False)
    same_noise: bool = True

    @property
    def id(self) -> int:
        """The number of the input."""
        return self.certificate.id

    @property
    def answer(self) -> str | None:
        """The name of the certified class; None if there is no certificate."""
        return self._named(self.certificate.prediction)

    @property
    def label(self) -> str | None:
        """The name of the label; None where it is unknown."""
        return self._named(self.certificate.label)

    @cached_property
    def picture(self) -> str:
        """The input as a data URI."""
        return self._picture(self.x)

    @property
    def pixelated(self) -> bool:
        """Whether the pictures are so small that their pixels should be seen."""
        return self.picture.startswith("data:image/png")

    @cached_property
    def noisy(self) -> tuple[Shown, ...]:
        """Noisy copies of the input, with the answer of the classifier to each."""
        return tuple(
            Shown(self._picture(copy), class_name(answer, self.class_names), answer == self._top)
            for copy, answer in zip(self.drawn, self.answers, strict=True)
        )

    @cached_property
    def denoised(self) -> tuple[str, ...]:
        """The same copies after the denoiser; empty if the run has none."""
        return tuple(map(self._picture, self.cleaned))

    @cached_property
    def attacked(self) -> Shown | None:
        """The input after the smallest change that an attack found; None if there is none."""
        if self.attack is None:
            return None
        changed, answer, length = self.attack
        name = class_name(answer, self.class_names)
        size = _number(length, self._norm)
        noise = self.certificate.noise
        if isinstance(noise, Transformed):
            size = f"{size} {noise.unit}"
        text = f"{name}, after a change of {size} that an attack found"
        return Shown(self._picture(changed), text)

    @cached_property
    def votes(self) -> tuple[Bar, ...]:
        """The votes of all samples by class, the most frequent classes first."""
        votes = sum(self.certificate.looks, Look(0, {})).votes
        order = sorted(votes, key=lambda n: (n != self._top, -votes[n], n))
        shown = order[:_MOST_CLASSES]
        others = order[_MOST_CLASSES:]
        # Two classes may have the same name.
        counts = [(class_name(n, self.class_names), votes[n], n == self._top) for n in shown]
        if others:
            rest = sum(votes[n] for n in others)
            counts.append((f"all others ({len(others)})", rest, False))
        if self.certificate.missing:
            counts.append(("no finite answer", self.certificate.missing, False))
        total = max(self.certificate.samples, 1)
        return tuple(Bar(text, n / total, f"{n:,}", main) for text, n, main in counts)

    @cached_property
    def distances(self) -> tuple[Bar, ...]:
        """The radius beside other distances, from near to far; empty without a certificate."""
        if self.certificate.abstained or self._norm not in NORMS:
            return ()
        radius = ("the certified radius", self.certificate.radius)
        others = self._other_distances()
        lengths = [radius, *sorted(others.items(), key=lambda item: item[1])]
        longest = max(length for _, length in lengths) or 1.0
        return tuple(
            Bar(text, length / longest, _number(length, self._norm), main=text == radius[0])
            for text, length in lengths
        )

    def _other_distances(self) -> dict[str, float]:
        """Distances that one can imagine, by what they are."""
        norm = self._norm
        lengths = {}
        if is_unit(self.values) or norm in COUNTED:
            black = np.zeros((len(self.x) if self.x.ndim == 3 else 1, 1, 1))
            lengths["one pixel turns from black to white"] = distance(black, black + 1, norm)
        if is_unit(self.values) and norm not in COUNTED:
            step = distance(self.x, self.x + 1 / 255, norm)
            lengths["every pixel changes by one of 255 steps"] = step
        if self.drawn:
            of_copies = [distance(copy, self.rounded, norm) for copy in self.drawn]
            lengths["a noisy copy, as above"] = float(np.median(of_copies))
        return lengths

    @cached_property
    def changed(self) -> Shown | None:
        """The input after a change that is as large as the radius; None without a certificate."""
        radius = self.certificate.radius
        if not radius or self._norm not in NORMS:
            return None
        changed = changed_picture(self.x, radius, self._norm, self.values)
        return Shown(self._picture(changed), "in as few pixels as possible")

    @property
    def everywhere(self) -> str | None:
        """By how much all values may change at once (l-infinity), rounded down.

        None if no such change is certified.
        """
        noise = self.certificate.noise
        if not self.certificate.radius > 0:
            return None
        radius = noise.other_radii(self.certificate.radius, self.x.shape).get("linf")
        if radius is None:
            return None
        if noise.grid is None:
            return f"less than {round_down(float(radius), 5).rstrip('0').rstrip('.')}"
        # A change of the radius itself is not certified.
        steps = ceil(float(radius) / noise.grid[0] * (1 - 1e-12)) - 1
        return f"at most {steps} of these steps" if steps else None

    @property
    def radius(self) -> str:
        """The radius as text, rounded down."""
        return _number(self.certificate.radius, self._norm)

    @property
    def change(self) -> str:
        """Which changes cannot alter the answer, in words that follow "no"."""
        return self.certificate.noise.certified_change(self.radius)

    @property
    def confidence(self) -> str:
        """The confidence level in percent."""
        return f"{confidence(self.certificate.plan.alpha):%}"

    @property
    def _top(self) -> int | None:
        """The class that wins the vote."""
        if self.certificate.prediction is not None:
            return self.certificate.prediction
        chosen: int | None = self.certificate.proof.prediction
        return chosen

    @property
    def _norm(self) -> str:
        return self.certificate.noise.norm

    def _named(self, number: int | None) -> str | None:
        return None if number is None else class_name(number, self.class_names)

    def _picture(self, x: Picture) -> str:
        return str(picture_of(x, self.values, side=_LARGEST_SIDE))


def _number(length: float, norm: str) -> str:
    if norm in COUNTED:
        return f"{length:,.0f}"
    return str(round_down(length, 3 if length < 10 else 1))
